"""Power laws: exponents of loss against width."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64
from torch import Tensor

from toolkit.functional._checks import as_many, enough, real_tensor


class PowerLawResult(NamedTuple):
    """Fit of y = prefactor x^-exponent.

    Attributes:
        exponent: Minus the slope in log-log coordinates.
        stderr: Standard error of the exponent; NaN for two points.
        prefactor: Value at x = 1.
        r2: Share of the variance of log y explained; NaN for two points, through which a line
            always goes, and if all y are equal.
        num_used: Number of points used.
        num_dropped: Number of points left out because x or y was non-finite or not positive.
    """

    exponent: float
    stderr: float
    prefactor: float
    r2: float
    num_used: int
    num_dropped: int


def fit_power_law(x: Tensor, y: Tensor) -> PowerLawResult:
    """Fit y = prefactor x^-exponent by ordinary least squares in log-log coordinates.

    Args:
        x: Real vector of shape (n,), for example widths.
        y: Real vector of shape (n,), for example losses. Points where x or y is non-finite or
            not positive are left out and counted.

    Raises:
        TypeError: If ``x`` or ``y`` is no tensor.
        ValueError: If the shapes differ, fewer than two points are usable, or all usable x are
            equal.

    Example:
        >>> fit = fit_power_law(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([8.0, 4.0, 2.0]))
        >>> round(fit.exponent, 6), round(fit.prefactor, 6)
        (1.0, 8.0)
    """
    log_x, log_y, usable = _log_points(x, y)
    log_x, log_y = log_x[usable], log_y[usable]
    enough(
        "y",
        len(log_x),
        2,
        "points with positive finite x and y",
        given=f"{len(log_x)} of {len(usable)}",
        advice="fit more points",
    )
    if bool((log_x == log_x[0]).all()):
        raise ValueError(f"x: expected at least 2 different values, got only {float(x[usable][0])}")
    return _line(log_x, log_y, num_dropped=len(usable) - len(log_x))


def local_slopes(x: Tensor, y: Tensor) -> Tensor:
    """Local exponents -(change of log y) / (change of log x) between neighbouring points.

    A pure power law has equal exponents; a drift shows that the fitted exponent depends on the
    window of x.

    Args:
        x: Real vector of shape (n,), in the order in which points are neighbours.
        y: Real vector of shape (n,).

    Returns:
        The n - 1 slopes, float64; NaN where one of the two points is unusable (non-finite or
        not positive) or both have the same x.

    Raises:
        TypeError: If ``x`` or ``y`` is no tensor.
        ValueError: If the shapes differ.
    """
    log_x, log_y, usable = _log_points(x, y)
    steps = log_x.diff()
    valid = usable[1:] & usable[:-1] & (steps != 0)
    return torch.where(valid, -log_y.diff() / steps, math.nan)


def _line(
    log_x: Float64[Tensor, " n"], log_y: Float64[Tensor, " n"], num_dropped: int
) -> PowerLawResult:
    """Least squares line through at least two points with different x."""
    num = len(log_x)
    centered_x, centered_y = log_x - log_x.mean(), log_y - log_y.mean()
    spread = centered_x.square().sum()
    slope = (centered_x @ centered_y) / spread
    residual = (centered_y - slope * centered_x).square().sum()
    variance = centered_y.square().sum()
    is_flat = bool((log_y == log_y[0]).all())
    return PowerLawResult(
        exponent=float(-slope),
        stderr=float((residual / (num - 2) / spread).sqrt()) if num > 2 else math.nan,
        prefactor=float((log_y.mean() - slope * log_x.mean()).exp()),
        r2=float(1 - residual / variance) if num > 2 and not is_flat else math.nan,
        num_used=num,
        num_dropped=num_dropped,
    )


def _log_points(
    x: Tensor, y: Tensor
) -> tuple[Float64[Tensor, " n"], Float64[Tensor, " n"], Bool[Tensor, " n"]]:
    """Logarithms in float64, and where both are usable."""
    x = real_tensor("x", x, dims=(1,)).double()
    y = real_tensor("y", y, dims=(1,)).double()
    as_many("y", y, "x", x)
    usable = (x > 0) & (y > 0) & torch.isfinite(x) & torch.isfinite(y)
    return x.log(), y.log(), usable
