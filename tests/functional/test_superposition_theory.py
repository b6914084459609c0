"""The predicted losses of weak and strong superposition."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from toolkit.functional import (
    fit_power_law,
    slope_guide,
    strong_superposition_exponent,
    weak_superposition_loss,
)


def power(exponent: float, num_features: int) -> Tensor:
    relative = torch.arange(1, num_features + 1, dtype=torch.float64) ** -exponent
    return relative / relative.sum()


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_weak_loss_is_the_summed_tail(exponent: float) -> None:
    chances = power(exponent, 1024)
    expected = [4 / 3 * math.fsum(chances.tolist()[m:]) for m in (6, 32, 1023, 1024, 2000)]
    result = weak_superposition_loss(chances, [6, 32, 1023, 1024, 2000])
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12)
    assert result.dtype == torch.float64


@pytest.mark.parametrize(("exponent", "published"), [(1.5, 0.548), (2.0, 0.976)])
def test_weak_exponent_at_finite_n(exponent: float, published: float) -> None:
    """The finite-n targets for n = 1024 and these five widths."""
    widths = [6, 9, 14, 21, 32]
    loss = weak_superposition_loss(power(exponent, 1024), widths)
    assert fit_power_law(torch.tensor(widths), loss).exponent == pytest.approx(published, abs=5e-4)


def test_weak_loss_does_not_depend_on_the_order(generator: torch.Generator) -> None:
    chances = power(1.0, 50)
    shuffled = chances[torch.randperm(50, generator=generator)]
    before = shuffled.clone()
    torch.testing.assert_close(
        weak_superposition_loss(shuffled, [3, 7]), weak_superposition_loss(chances, [3, 7])
    )
    assert torch.equal(shuffled, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_weak_loss_takes_any_float(dtype: torch.dtype) -> None:
    result = weak_superposition_loss(torch.tensor([0.5, 0.25, 0.125], dtype=dtype), [1])
    assert result.item() == pytest.approx(0.5, rel=1e-15)


@pytest.mark.parametrize(
    ("chances", "widths", "message"),
    [
        pytest.param(torch.tensor([0.5, 1.5]), [1], "between 0 and 1, got 0.5 to 1.5", id="above"),
        pytest.param(torch.tensor([-0.5, 0.5]), [1], "between 0 and 1", id="below"),
        pytest.param(torch.tensor([math.nan]), [1], "probabilities: expected finite", id="nan"),
        pytest.param(torch.ones(2, 2), [1], "probabilities: expected 1 dim", id="matrix"),
        pytest.param(torch.ones(2), [-1], "widths: expected an integer of at least 0", id="width"),
    ],
)
def test_weak_loss_refuses(chances: Tensor, widths: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weak_superposition_loss(chances, widths)


@pytest.mark.parametrize(
    ("frequency_exponent", "expected"),
    [(None, 1.0), (0.0, 1.0), (1.0, 1.0), (1.5, 1.0), (1.75, 1.5), (2.0, 2.0)],
)
def test_strong_exponent(frequency_exponent: float | None, expected: float) -> None:
    assert strong_superposition_exponent(frequency_exponent) == expected


@pytest.mark.parametrize("bad", [-0.1, math.nan])
def test_strong_exponent_refuses(bad: float) -> None:
    with pytest.raises(
        ValueError, match="frequency_exponent: expected a finite number of at least 0"
    ):
        strong_superposition_exponent(bad)


def test_slope_guide_has_the_slope_and_the_geometric_mean() -> None:
    x, y = torch.tensor([10, 20, 50]), torch.tensor([3.0, 0.5, 0.7])
    guide = slope_guide(x, y, 1.5)
    fit = fit_power_law(x, guide)
    assert fit.exponent == pytest.approx(1.5)
    assert guide.log().mean().item() == pytest.approx(y.double().log().mean().item())
    assert x.tolist() == [10, 20, 50]
    assert y.tolist() == pytest.approx([3.0, 0.5, 0.7])


def test_slope_guide_of_points_on_the_line_is_the_points() -> None:
    x = torch.tensor([1.0, 2.0, 4.0], dtype=torch.bfloat16)
    np.testing.assert_allclose(slope_guide(x, 8 / x, 1.0).numpy(), [8, 4, 2], rtol=1e-12)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        pytest.param([1.0, 0.0], [1.0, 1.0], "x: expected positive numbers, got 0", id="zero"),
        pytest.param([1.0, 2.0], [1.0, -1.0], "y: expected positive numbers, got -1", id="sign"),
        pytest.param([1.0, 2.0], [1.0], "y: expected as many values as x", id="length"),
        pytest.param([1.0, math.inf], [1.0, 1.0], "x: expected finite", id="inf"),
    ],
)
def test_slope_guide_refuses(x: list[float], y: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        slope_guide(torch.tensor(x), torch.tensor(y), 1.0)
