"""Intervals of a capacity, from the errors of the law's constants and of epsilon."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from toolkit.functional._checks import (
    finite,
    finite_real,
    inner_share,
    integer_at_least,
    number_at_least,
    number_of_draws,
    one_length,
    one_of,
    require_memory,
    shown,
    source_of_draws,
)
from toolkit.functional.capacity import (
    PUBLISHED,
    Array,
    Law,
    check_epsilon,
    deviation_for,
    deviations,
    fit_packing_law,
    log10_capacity,
    usable_points,
)

# Steps of the refits, their tolerance and the shift of differences, in the constants' logarithms.
_GAUSS_NEWTON_STEPS, _CONVERGED, _SHIFT = 12, 1e-7, 1e-5
# Below it, the points do not determine a combination of the constants.
_SMALLEST_EIGENVALUE = 1e-9
# A drawn epsilon may be below 0 or above 1, where the laws are not defined.
_SMALLEST_EPSILON = 1e-12


class IntervalResult(NamedTuple):
    """Percentile interval.

    Attributes:
        low: Lower end.
        high: Upper end.
    """

    low: float
    high: float


def bootstrap_packing_law(
    num_vectors: Tensor,
    dims: Tensor,
    epsilons: Tensor,
    *,
    law: Law,
    num_resamples: int = 400,
    generator: torch.Generator | None = None,
) -> dict[str, Tensor]:
    """Constants of a law fitted to points drawn with replacement (Efron's pairs bootstrap).

    Points count as independent: a misfit that many of them share is not in the spread.

    Args:
        num_vectors: Numbers of directions k, shape (n,).
        dims: Dimensions d, shape (n,).
        epsilons: Deviations (largest absolute cosines), shape (n,).
        law: ``full``, ``ratio`` or ``jl``.
        num_resamples: Number of fits, 2 to 1,000,000.
        generator: Source of the draws, on the CPU. None: a new generator with seed 0.

    Returns:
        For each constant its values, float64, shape (num_resamples,).

    Raises:
        TypeError: If a column is no tensor.
        ValueError: If the points cannot be fitted, see `fit_packing_law`, or only few of their
            resamples can, or ``num_resamples`` is out of range.
    """
    number_of_draws("num_resamples", num_resamples, 2)
    draws = source_of_draws(generator)
    constants = fit_packing_law(num_vectors, dims, epsilons, law=law).constants
    if min(constants.values()) <= 0:
        raise ValueError(
            f"epsilons: expected points near law {law!r}, got the constants {constants}; "
            "fit other points"
        )
    log_vectors, log_dims, observed = usable_points(num_vectors, dims, epsilons, law=law)
    require_memory("num_resamples", 2 * num_resamples, len(observed), itemsize=8)
    # Skip draws that do not determine the law, such as draws of a single dimension.
    size = (2 * num_resamples, len(observed))
    drawn = torch.randint(len(observed), size, generator=draws)
    weights = torch.zeros(size, dtype=torch.float64).scatter_add_(
        1, drawn, torch.ones(size, dtype=torch.float64)
    )

    def predict(parameters: Array) -> Array:
        columns = dict(zip(constants, np.exp(parameters.T)[:, :, None], strict=True))
        return deviations(log_vectors, log_dims, law, columns)

    start = np.log(list(constants.values()))
    fits = _weighted_fits(predict, observed, weights.numpy(), start)[:num_resamples]
    if len(fits) < num_resamples:
        raise ValueError(
            f"epsilons: expected points that fix law {law!r}, but only {len(fits)} of "
            f"{2 * num_resamples} resamples could be fitted; fit more points"
        )
    return dict(zip(constants, torch.from_numpy(np.exp(fits)).unbind(1), strict=True))


def percentile_interval(values: Iterable[int | float], *, level: float = 0.95) -> IntervalResult:
    """Interval that leaves out the same share of ``values`` on both sides.

    Args:
        values: At least one number.
        level: Share inside, between 0 and 1.

    Raises:
        ValueError: If there are no values or ``level`` is not between 0 and 1.

    Example:
        >>> percentile_interval(range(101), level=0.5)
        IntervalResult(low=25.0, high=75.0)
    """
    inner_share("level", level)
    column = _numbers("values", values)
    low, high = np.quantile(column, [(1 - level) / 2, (1 + level) / 2])
    return IntervalResult(float(low), float(high))


def log10_capacity_interval(
    dim: int,
    epsilon: float,
    constants: Mapping[str, Tensor],
    *,
    law: Law,
    rounding: float = 0.0,
    stderr: float = 0.0,
    level: float = 0.95,
    generator: torch.Generator | None = None,
) -> IntervalResult:
    """Interval of the capacity's decimal logarithm, see `log10_capacity`.

    Each resample of the constants meets its own draw of epsilon.

    Args:
        dim: Dimension d.
        epsilon: Deviation, above 0 and below 1.
        constants: Resampled constants, from `bootstrap_packing_law`.
        law: ``full``, ``ratio`` or ``jl``.
        rounding: Epsilon may be off by up to this much, all values equally likely.
        stderr: Standard error of a measured epsilon, taken as normal.
        level: Share of the resamples inside.
        generator: Source of the draws, on the CPU. None: a new generator with seed 0.

    Raises:
        ValueError: As `log10_capacity` and `percentile_interval`, or if ``rounding`` or
            ``stderr`` is negative.
    """
    integer_at_least("dim", dim, 1, most=math.inf)
    number_at_least("rounding", rounding, 0)
    number_at_least("stderr", stderr, 0)
    check_epsilon(epsilon)
    inner_share("level", level)
    draws = source_of_draws(generator)
    resamples = _resamples(constants, law)
    uniform = torch.rand(len(resamples), generator=draws, dtype=torch.float64) * 2 - 1
    normal = torch.randn(len(resamples), generator=draws, dtype=torch.float64)
    drawn_epsilons = epsilon + rounding * uniform + stderr * normal
    epsilons = drawn_epsilons.clamp(_SMALLEST_EPSILON, 1 - _SMALLEST_EPSILON)
    capacities = (
        log10_capacity(dim, drawn, law=law, **values)
        for drawn, values in zip(epsilons.tolist(), resamples, strict=True)
    )
    return percentile_interval(capacities, level=level)


def deviation_interval(
    dim: int,
    num_vectors: int | float,
    constants: Mapping[str, Tensor],
    *,
    law: Law,
    level: float = 0.95,
) -> IntervalResult:
    """Interval of the deviation at which ``num_vectors`` directions fit, see `deviation_for`.

    Args:
        dim: Dimension d.
        num_vectors: Number of directions k, at least 1.
        constants: Resampled constants, from `bootstrap_packing_law`.
        law: ``full``, ``ratio`` or ``jl``.
        level: Share of the resamples inside.

    Raises:
        ValueError: As `deviation_for` and `percentile_interval`.
    """
    inner_share("level", level)
    resamples = _resamples(constants, law)
    values = (deviation_for(dim, num_vectors, law=law, **drawn) for drawn in resamples)
    return percentile_interval(values, level=level)


def _weighted_fits(
    predict: Callable[[Array], Array], observed: Array, weights: Array, start: Array
) -> Array:
    """Least squares for each row of ``weights``, all at once.

    Gauss and Newton's steps from ``start``, the solution for equal weights, which is near. Rows
    without a converged fit are left out.
    """
    parameters = np.repeat(start[None], len(weights), 0)
    usable = np.ones(len(weights), dtype=bool)
    with np.errstate(all="ignore"):
        for _ in range(_GAUSS_NEWTON_STEPS):
            residual = predict(parameters) - observed
            slopes = [
                (predict(parameters + shift) - predict(parameters - shift)) / (2 * _SHIFT)
                for shift in _SHIFT * np.eye(len(start))
            ]
            slope = np.stack(slopes, -1)
            weighted = slope * weights[:, :, None]
            normal = weighted.swapaxes(1, 2) @ slope
            scale = np.sqrt(np.einsum("bpp->bp", normal))
            scaled = np.nan_to_num(normal / (scale[:, :, None] * scale[:, None]))
            usable &= np.linalg.eigvalsh(scaled)[:, 0] > _SMALLEST_EIGENVALUE
            scaled[~usable] = np.eye(len(start))
            gradient = np.einsum("bnp,bn->bp", weighted, residual) / scale
            step = np.linalg.solve(scaled, gradient[:, :, None])[:, :, 0] / scale
            parameters = parameters - step
    usable &= (np.abs(step) < _CONVERGED).all(1)
    return parameters[usable]


def _numbers(name: str, values: Iterable[int | float]) -> Array:
    """The values as an array of at least one finite number."""
    # Tensors and arrays without a dimension have `__iter__`, which fails.
    has_items = isinstance(values, Iterable) and getattr(values, "ndim", 1) > 0
    is_column = has_items and not isinstance(values, str | bytes)
    numbers = [finite(name, value) for value in values] if is_column else []
    if not numbers:
        raise ValueError(f"{name}: expected at least one number, got {shown(values)}")
    return np.array(numbers, dtype=np.float64)


def _resamples(constants: Mapping[str, Tensor], law: Law) -> list[dict[str, float]]:
    """One dict of constants for each resample."""
    wanted = PUBLISHED[one_of("law", law, *get_args(Law))]
    if not isinstance(constants, Mapping) or set(constants) != set(wanted):
        raise ValueError(
            f"constants: expected {', '.join(wanted)} of law {law!r}, got {shown(constants)}; "
            "take them from bootstrap_packing_law"
        )
    checked = [finite_real("constants", values, dims=(1,)) for values in constants.values()]
    one_length("constants", checked)
    columns = [values.tolist() for values in checked]
    return [dict(zip(constants, row, strict=True)) for row in zip(*columns, strict=True)]
