"""Intrinsic dimension of a cloud of points, from the distances to their nearest neighbours."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from toolkit.functional._checks import finite_float, inner_share, integer_at_least
from toolkit.functional._scale import balanced, row_norms

# A block of distances from these points to all others exists at a time.
CHUNK_SIZE = 512
MIN_FIT_POINTS = 5
# Points whose distances are computed without cancellation; beyond the first two they let the
# choice be proved.
_NUM_CANDIDATES = 8
# Ratios closer to 1 than this are 1 in exact arithmetic.
_ROUNDING = 1e-12
_FLOAT64 = torch.finfo(torch.float64)


class TwoNNResult(NamedTuple):
    """Intrinsic dimension by TwoNN.

    Attributes:
        dimension: The dimension; NaN where it could not be fitted.
        num_distinct: Number of different points, those that have a ratio.
        num_fitted: Number of ratios in the fit.
        num_dropped: Number of points that equal an earlier one, left out.
        reason: Why the dimension is NaN, else empty.
    """

    dimension: float
    num_distinct: int
    num_fitted: int
    num_dropped: int
    reason: str


def two_nn(
    features: Tensor, *, discarded_share: float = 0.1, chunk_size: int = CHUNK_SIZE
) -> TwoNNResult:
    """TwoNN intrinsic dimension (arXiv 1803.06992).

    With mu = r2 / r1 the ratio of each point's distances to its second and first neighbour, and F
    the share of points whose ratio is at most mu, the dimension is the slope of the line through
    the origin of -log(1 - F) against log mu. About 1 / sqrt(N) of it is its standard error.

    Args:
        features: Real matrix of shape (N, d). Of equal rows one is kept; the others are counted.
        discarded_share: Share of the ratios that the fit leaves out, the largest; rounded up.
        chunk_size: Rows of the distance matrix that exist at a time. Memory is
            O((chunk_size + d) N).

    Returns:
        The dimension and its fit; NaN with the reason if fewer than 5 ratios are left or all of
        them are 1.

    Raises:
        TypeError: If ``features`` is no tensor.
        ValueError: If ``features`` is not a finite real matrix, ``discarded_share`` is not
            between 0 and 1, or ``chunk_size`` is below 1.

    Example:
        >>> square = torch.rand(2000, 2, generator=torch.Generator().manual_seed(0))
        >>> round(two_nn(square).dimension, 1)
        2.0
    """
    rows = finite_float("features", features)
    inner_share("discarded_share", discarded_share)
    integer_at_least("chunk_size", chunk_size, 1)
    points = torch.unique(balanced(rows).double(), dim=0)
    num = len(points)
    num_fitted = _num_fitted(num, discarded_share)
    dimension, reason = math.nan, ""
    if num_fitted < MIN_FIT_POINTS:
        reason = (
            f"{num_fitted} ratios of {num} distinct points in the fit, {MIN_FIT_POINTS} are needed"
        )
    else:
        dimension = _slope(_log_ratios(points, chunk_size), num_fitted)
        if math.isnan(dimension):
            reason = "the two nearest neighbours of each point are equally far"
    return TwoNNResult(dimension, num, num_fitted, len(rows) - num, reason)


def _num_fitted(num_points: int, discarded_share: float) -> int:
    """Return how many of the smallest ratios are fitted; at the largest one F is 1."""
    # 1 - 0.9 is less than 0.1.
    return min(math.floor(num_points * (1 - discarded_share) + 1e-9), num_points - 1)


def _slope(log_ratios: Float64[Tensor, " n"], num_fitted: int) -> float:
    """Slope of the line through the origin; NaN if the ratios are all 1."""
    ordered = log_ratios.sort().values[:num_fitted]
    if float(ordered[-1]) < _ROUNDING:
        return math.nan
    ranks = torch.arange(1, num_fitted + 1, dtype=torch.float64, device=ordered.device)
    heights = -torch.log1p(-ranks / len(log_ratios))
    return float(ordered @ heights / (ordered @ ordered))


def _log_ratios(points: Float64[Tensor, "n d"], chunk_size: int) -> Float64[Tensor, " n"]:
    """Logarithm of the ratio of each point's second and first distance, at least 0."""
    nearest = torch.cat(list(_nearest_two(points, chunk_size)))
    # A quotient could overflow.
    return nearest[:, 1].log() - nearest[:, 0].log()


def _nearest_two(points: Float64[Tensor, "n d"], chunk_size: int) -> Iterator[Tensor]:
    """Yield, block by block, the distances of distinct points to their two nearest neighbours.

    Products of the points bound the squared distances from below, at little cost; the distances of
    the points with the lowest bounds are computed from differences, which lose no digits. Where
    another point could still be nearer, those to all points are.
    """
    centered = points - points.mean(0)
    squares = centered.square().sum(1)
    # Rounding moves |x|^2 + |y|^2 - 2 xy by less than 1 - slack of |x|^2 + |y|^2.
    slack = 1 - 4 * (points.shape[1] + 8) * _FLOAT64.eps
    num = len(points)
    for start in range(0, num, chunk_size):
        block = centered[start : start + chunk_size]
        bounds = torch.addmm(slack * squares, block, centered.T, alpha=-2)
        bounds += slack * squares[start : start + chunk_size, None]
        bounds.diagonal(start).fill_(math.inf)
        lowest, index = bounds.topk(min(_NUM_CANDIDATES, num - 1), largest=False)
        nearest = _distances(points, start, index).sort().values[:, :2]
        if num - 1 > _NUM_CANDIDATES:
            # Products below the normal numbers have lost digits.
            limit = (lowest[:, -1] - _FLOAT64.tiny).clamp_min(0).sqrt()
            proved = nearest[:, 1] <= limit
            for place in (~proved).nonzero()[:, 0].tolist():
                nearest[place] = _nearest_of_all(points, start + place, chunk_size)
        yield nearest


def _distances(
    points: Float64[Tensor, "n d"], start: int, index: Int64[Tensor, "b k"]
) -> Float64[Tensor, "b k"]:
    """Distances of the points from ``start`` on to those of the index."""
    block = points[start : start + len(index)]
    return torch.stack([row_norms(block - points[column]) for column in index.T], 1)


def _nearest_of_all(
    points: Float64[Tensor, "n d"], place: int, chunk_size: int
) -> Float64[Tensor, " 2"]:
    """Distances of one point to its two nearest neighbours, all of them from differences."""
    chunks = torch.split(points, chunk_size)
    distances = torch.cat([row_norms(chunk - points[place]) for chunk in chunks])
    distances[place] = math.inf
    return distances.topk(2, largest=False).values.sort().values
