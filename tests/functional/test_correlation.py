"""Ranks and rank correlation against scipy, with ties, zeros of both signs and wide numbers."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import rankdata, spearmanr
from torch import Tensor

from toolkit.functional import average_ranks, spearman

VECTORS = {
    "random": torch.randn(200, generator=torch.Generator().manual_seed(0)),
    "few values": torch.randint(-3, 4, (200,), generator=torch.Generator().manual_seed(1)),
    "integers": torch.tensor([3, -1, 2, 2, -7]),
    "both zeros": torch.tensor([0.0, -0.0, 1.0, -1.0, 0.0]),
    "constant": torch.full((5,), 2.5),
    "one": torch.tensor([4.0]),
    "tie at both ends": torch.tensor([1.0, 1.0, 2.0, 3.0, 3.0, 3.0]),
    "extremes": torch.tensor([3e38, -3e38, 1e-45, -1e-45, 0.0]),
    "float64": torch.tensor([1.0, 1.0 + 1e-15, 1.0, -1e300, 1e300], dtype=torch.float64),
    "negative ties": torch.tensor([-2.0, -2.0, -1.0, -3.0, -3.0, -3.0]),
}


@pytest.mark.parametrize("values", VECTORS.values(), ids=VECTORS)
def test_average_ranks_match_scipy(values: Tensor) -> None:
    ranks = average_ranks(values)
    assert ranks.dtype == torch.float64
    assert ranks.tolist() == rankdata(values.double().numpy()).tolist()


@pytest.mark.parametrize("shape", [(4, 30), (2, 3, 30)], ids=str)
def test_leading_dimensions_are_independent(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randint(9, shape, generator=generator)
    y = torch.randn(shape, generator=generator)
    assert torch.equal(average_ranks(x), torch.tensor(rankdata(x.numpy(), axis=-1)))
    expected = [
        spearmanr(one, other).statistic
        for one, other in zip(x.reshape(-1, 30).numpy(), y.reshape(-1, 30).numpy(), strict=True)
    ]
    torch.testing.assert_close(
        spearman(x, y.double()).flatten(), torch.tensor(expected), rtol=0, atol=1e-14
    )


def test_the_worked_example() -> None:
    x = torch.tensor([1, 0, 4, 1, 0, 3, 0])
    y = torch.tensor([4, 0, 3, 3, 3, 1, 1])
    assert float(spearman(x, y)) == pytest.approx(0.352941, abs=5e-7)


@pytest.mark.parametrize("levels", [2, 5, 10_000], ids=lambda n: f"{n} levels")
def test_spearman_matches_scipy(levels: int, generator: torch.Generator) -> None:
    x = torch.randint(levels, (500,), generator=generator)
    y = x + torch.randint(levels, (500,), generator=generator)
    expected = spearmanr(x.numpy(), y.numpy()).statistic
    assert float(spearman(x, y)) == pytest.approx(expected, abs=1e-14)


def test_spearman_sees_order_only(generator: torch.Generator) -> None:
    x, y = torch.randn(2, 100, generator=generator)
    assert float(spearman(x, x.exp())) == 1
    assert float(spearman(x, -x)) == -1
    assert float(spearman(x, y)) == float(spearman(3 * x + 1, y**3))


def test_spearman_of_a_constant_is_nan() -> None:
    assert math.isnan(spearman(torch.arange(7), torch.full((7,), 0.1)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_ranks_its_own_values(dtype: torch.dtype) -> None:
    values = torch.randn(300, generator=torch.Generator().manual_seed(3)).to(dtype)
    assert average_ranks(values).tolist() == rankdata(values.double().numpy()).tolist()


def test_inputs_are_left_alone() -> None:
    x = torch.tensor([-0.0, -2.0, 1.0, 1.0])
    before = x.clone()
    average_ranks(x)
    spearman(x, x.flip(0))
    assert torch.equal(x.view(torch.int32), before.view(torch.int32))


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (np.arange(3), TypeError, "values"),
        (torch.empty(0), ValueError, "values: expected at least one value"),
        (torch.tensor([1.0, math.nan]), ValueError, "values: expected finite values, got 1 non-"),
        (torch.tensor(1.0), ValueError, "values: expected 1 or 2 or 3 dimensions"),
        (torch.tensor([True]), ValueError, "values: expected real numbers"),
    ],
    ids=["array", "empty", "nan", "scalar", "bool"],
)
def test_bad_values(values: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        average_ranks(values)


def test_bad_pairs() -> None:
    with pytest.raises(ValueError, match=r"y: expected the shape of x, \(3,\), got \(4,\)"):
        spearman(torch.arange(3), torch.arange(4))
    with pytest.raises(ValueError, match="x: expected finite values"):
        spearman(torch.tensor([math.inf, 1.0]), torch.arange(2))
    with pytest.raises(TypeError, match="y"):
        spearman(torch.arange(2), [1, 2])  # type: ignore[arg-type]
