"""Power-law fits against scipy and closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from toolkit.functional import fit_power_law, local_slopes

WIDTHS = torch.tensor([10.0, 15.0, 25.0, 39.0, 63.0, 100.0])
# Losses of a reference run with flat frequencies.
LOSSES = torch.tensor([1.177, 0.988, 0.733, 0.519, 0.313, 0.137])


def test_exact_power_law_is_found() -> None:
    fit = fit_power_law(WIDTHS.double(), 3 * WIDTHS.double() ** -1.7)
    assert fit == pytest.approx((1.7, 0, 3, 1, 6, 0), abs=1e-7)


def test_fit_matches_scipy() -> None:
    line = stats.linregress(np.log(WIDTHS.double().numpy()), np.log(LOSSES.double().numpy()))
    fit = fit_power_law(WIDTHS, LOSSES)
    assert fit.exponent == pytest.approx(-line.slope, rel=1e-12)
    assert fit.stderr == pytest.approx(line.stderr, rel=1e-10)
    assert fit.prefactor == pytest.approx(math.exp(line.intercept), rel=1e-12)
    assert fit.r2 == pytest.approx(line.rvalue**2, rel=1e-12)


def test_reference_run_gives_its_exponent_and_slopes() -> None:
    fit = fit_power_law(WIDTHS, LOSSES)
    assert (round(fit.exponent, 2), round(fit.stderr, 2)) == (0.90, 0.12)
    slopes = local_slopes(WIDTHS, LOSSES)
    assert [round(s, 2) for s in slopes.tolist()] == [0.43, 0.58, 0.78, 1.05, 1.79]


def test_two_points_have_an_exponent_without_error() -> None:
    fit = fit_power_law(torch.tensor([1.0, 10.0]), torch.tensor([1.0, 0.01]))
    assert fit.exponent == pytest.approx(2)
    assert math.isnan(fit.stderr)
    assert math.isnan(fit.r2)


def test_flat_values_have_no_r2() -> None:
    fit = fit_power_law(WIDTHS, torch.full((6,), 0.3))
    assert fit.exponent == pytest.approx(0, abs=1e-12)
    assert math.isnan(fit.r2)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("which", ["x", "y"])
def test_unusable_points_are_dropped_and_counted(bad: float, which: str) -> None:
    x, y = WIDTHS.clone(), LOSSES.clone()
    (x if which == "x" else y)[2] = bad
    keep = torch.arange(6) != 2
    fit = fit_power_law(x, y)
    assert fit[:4] == fit_power_law(WIDTHS[keep], LOSSES[keep])[:4]
    assert (fit.num_used, fit.num_dropped) == (5, 1)
    assert torch.isnan(local_slopes(x, y)).tolist() == [False, True, True, False, False]


def test_slopes_between_equal_widths_are_nan() -> None:
    slopes = local_slopes(torch.tensor([2.0, 2.0, 4.0]), torch.tensor([4.0, 3.0, 1.5]))
    assert torch.isnan(slopes).tolist() == [True, False]
    assert slopes[1].item() == pytest.approx(1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64], ids=str)
def test_other_dtypes_are_lifted_and_left_alone(dtype: torch.dtype) -> None:
    x, y = WIDTHS.to(dtype), (100 * LOSSES).to(dtype)
    before = x.clone(), y.clone()
    assert fit_power_law(x, y) == fit_power_law(x.double(), y.double())
    assert torch.equal(local_slopes(x, y), local_slopes(x.double(), y.double()))
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        pytest.param(WIDTHS, LOSSES[:3], "y: expected as many values as x", id="lengths"),
        pytest.param(WIDTHS[:, None], LOSSES, "x: expected 1 dimensions", id="matrix"),
        pytest.param(WIDTHS[:0], LOSSES[:0], "x: expected at least one value", id="empty"),
        pytest.param(WIDTHS, -LOSSES, "y: expected at least 2 points .* got 0 of 6", id="negative"),
        pytest.param(WIDTHS[:1], LOSSES[:1], "y: expected at least 2 points", id="one_point"),
        pytest.param(
            torch.full((3,), 8.0), LOSSES[:3], "x: expected at least 2 different values", id="same"
        ),
    ],
)
def test_bad_points_are_refused(x: Tensor, y: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_power_law(x, y)


def test_slopes_refuse_different_lengths() -> None:
    with pytest.raises(ValueError, match="y: expected as many values as x"):
        local_slopes(WIDTHS, LOSSES[:3])
