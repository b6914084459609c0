"""Cosine similarities of pairs, in blocks, for results that need every single pair."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, Real
from torch import Tensor

from toolkit.functional._checks import (
    at_most,
    finite_real,
    integer_at_least,
    require_memory,
    source_of_draws,
)
from toolkit.functional._precision import full_precision
from toolkit.functional._scale import row_norms
from toolkit.functional.cosine import pair_moments, require_pairs, unit_chunks

# A block of similarities that stays in the cache.
CHUNK_SIZE = 512
# Below this, a regression on two statistics has no residual to take an error from.
MIN_SAMPLED = 8


class CosineHistogramResult(NamedTuple):
    """Counts of the cosine similarity over all pairs of different usable rows.

    Attributes:
        counts: Pairs per bin, int64, shape (num_bins,). Bins hold their left edge, the last one
            also its right edge.
        edges: Equally spaced from -1 to 1, float64, shape (num_bins + 1,).
        num_pairs: Number of pairs, the sum of the counts.
        num_dropped: Number of zero rows, left out.
    """

    counts: Tensor
    edges: Tensor
    num_pairs: int
    num_dropped: int


class MeanAbsCosineResult(NamedTuple):
    """Mean absolute cosine similarity over pairs of different usable rows.

    Attributes:
        value: The mean, exact or estimated.
        stderr: Standard error of the estimate; 0 for the exact mean.
        num_pairs: Number of pairs visited.
        num_dropped: Number of zero rows, left out.
    """

    value: float
    stderr: float
    num_pairs: int
    num_dropped: int


def cosine_histogram(
    vectors: Tensor, *, num_bins: int = 300, chunk_size: int = CHUNK_SIZE
) -> CosineHistogramResult:
    """Histogram of the cosine similarity over all pairs i < j.

    Every pair is counted once; similarities are float32 products of unit rows, so those within
    1e-6 of an edge may land on its other side.

    Args:
        vectors: Real matrix of shape (V, d). Rows of norm 0 are left out and counted.
        num_bins: Number of equal bins from -1 to 1.
        chunk_size: Rows on each side of a block. Memory is O(chunk_size (chunk_size + d)).

    Raises:
        TypeError: If ``vectors`` is no tensor.
        ValueError: If ``vectors`` is not a finite real matrix with two non-zero rows, or
            ``num_bins`` or ``chunk_size`` is below 1.

    Example:
        >>> cosine_histogram(torch.eye(3), num_bins=4).counts
        tensor([0, 0, 3, 0])
    """
    rows, usable = _rows_with_pairs(vectors)
    num_bins = integer_at_least("num_bins", num_bins, 1)
    require_memory("num_bins", num_bins, itemsize=8)
    counts = _histogram_counts(rows, num_bins, integer_at_least("chunk_size", chunk_size, 1))
    edges = torch.linspace(-1, 1, num_bins + 1, dtype=torch.float64, device=counts.device)
    return CosineHistogramResult(counts, edges, int(counts.sum()), int((~usable).sum()))


def mean_abs_cosine(
    vectors: Tensor,
    *,
    num_sampled: int | None = None,
    generator: torch.Generator | None = None,
    chunk_size: int = CHUNK_SIZE,
) -> MeanAbsCosineResult:
    """Mean |cosine similarity| over all pairs of different rows, exact or from sampled rows.

    The estimate takes each sampled row's mean |cos| to all other rows and regresses it on the
    row's mean cos and mean cos^2, whose averages over all rows are known exactly. That removes
    most of the difference between a sample and the whole.

    Args:
        vectors: Real matrix of shape (V, d). Rows of norm 0 are left out and counted.
        num_sampled: Rows to draw without replacement; None visits all pairs, O(V^2 d).
        generator: Source of the draw, on the CPU. None: a new generator with seed 0.
        chunk_size: Rows on each side of a block.

    Raises:
        TypeError: If ``vectors`` is no tensor.
        ValueError: If ``vectors`` is not a finite real matrix with two non-zero rows,
            ``chunk_size`` is below 1, or ``num_sampled`` is below 8 or above the usable rows.

    Example:
        >>> mean_abs_cosine(torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0]])).value
        0.3333333333333333
    """
    rows, usable = _rows_with_pairs(vectors)
    chunk_size = integer_at_least("chunk_size", chunk_size, 1)
    draws = source_of_draws(generator)
    num_usable = int(usable.sum())
    num_dropped = len(rows) - num_usable
    if num_sampled is None:
        num_pairs = num_usable * (num_usable - 1) // 2
        total = _absolute_sum(rows, chunk_size)
        return MeanAbsCosineResult(total / num_pairs, 0.0, num_pairs, num_dropped)
    integer_at_least("num_sampled", num_sampled, MIN_SAMPLED)
    limit, advice = f"the {num_usable} non-zero rows", "pass None to visit them all"
    at_most("num_sampled", num_sampled, num_usable, limit=limit, advice=advice)
    drawn = torch.randperm(num_usable, generator=draws)[:num_sampled]
    sample = rows[usable.nonzero()[drawn.to(rows.device), 0]]
    value, stderr = _regression_estimate(rows, sample, chunk_size)
    return MeanAbsCosineResult(value, stderr, num_sampled * (num_usable - 1), num_dropped)


def cosine_distances(vectors: Tensor, *, chunk_size: int = CHUNK_SIZE) -> Tensor:
    """Cosine distances 1 - cos of all pairs i < j, ordered as in scipy's ``pdist``.

    Args:
        vectors: Real matrix of shape (N, d).
        chunk_size: Rows of the distance matrix that exist at a time.

    Returns:
        The N (N - 1) / 2 distances in float64.

    Raises:
        TypeError: If ``vectors`` is no tensor.
        ValueError: If ``vectors`` is not a finite real matrix with two rows, a row has norm 0
            (dropping it would shift all pairs after it), or ``chunk_size`` is below 1.

    Example:
        >>> cosine_distances(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]]))
        tensor([1., 2., 1.], dtype=torch.float64)
    """
    rows, usable = _rows_with_pairs(vectors)
    num_zero = int((~usable).sum())
    if num_zero:
        raise ValueError(
            f"vectors: expected non-zero rows, got {num_zero} zero rows of {len(rows)}; "
            "drop them first"
        )
    return _condensed_distances(rows, integer_at_least("chunk_size", chunk_size, 1))


def _rows_with_pairs(vectors: Tensor) -> tuple[Tensor, Bool[Tensor, " v"]]:
    """Check that ``vectors`` has two non-zero rows; return it and the mask of these rows."""
    rows = finite_real("vectors", vectors)
    usable = row_norms(rows) > 0
    require_pairs("vectors", len(rows), int((~usable).sum()))
    return rows, usable


def _upper_blocks(vectors: Real[Tensor, "v d"], chunk_size: int) -> Iterator[Tensor]:
    """Yield the similarities of all pairs i < j, each once, as fresh flat float32 tensors."""
    first_row = 0
    for rows in unit_chunks(vectors, dtype=torch.float32, chunk_size=chunk_size):
        inner = rows @ rows.T
        yield inner[torch.ones_like(inner, dtype=torch.bool).triu(1)]
        first_row += chunk_size
        rest = vectors[first_row:]
        for columns in unit_chunks(rest, dtype=torch.float32, chunk_size=chunk_size):
            yield (rows @ columns.T).view(-1)


@full_precision
def _histogram_counts(
    vectors: Real[Tensor, "v d"], num_bins: int, chunk_size: int
) -> Int64[Tensor, " bins"]:
    counts = torch.zeros(num_bins + 1, dtype=torch.int64, device=vectors.device)
    half = num_bins / 2
    for block in _upper_blocks(vectors, chunk_size):
        # Rounding may leave [-1, 1]: truncation brings -1 back, the spare bin holds 1.
        bins = block.mul_(half).add_(half).to(torch.int32)
        counts += torch.bincount(bins, minlength=num_bins + 1)
    counts[-2] += counts[-1]
    return counts[:-1]


@full_precision
def _absolute_sum(vectors: Real[Tensor, "v d"], chunk_size: int) -> float:
    blocks = _upper_blocks(vectors, chunk_size)
    return sum(float(block.abs_().sum(dtype=torch.float64)) for block in blocks)


@full_precision
def _regression_estimate(
    vectors: Real[Tensor, "v d"], sample: Real[Tensor, "m d"], chunk_size: int
) -> tuple[float, float]:
    """Regression estimate of the mean |cos| and its standard error."""
    moments = pair_moments(vectors)
    num_rows, num_sampled = len(vectors) - moments.num_dropped, len(sample)
    sums = torch.cat(
        [
            _row_sums(units, vectors, chunk_size)
            for units in unit_chunks(sample, dtype=torch.float32, chunk_size=chunk_size)
        ]
    )
    # Each row's sum includes its similarity 1 to itself.
    means = ((sums - 1) / (num_rows - 1)).cpu().numpy()
    known = np.array([moments.mean, moments.mean**2 + moments.std**2])
    design = np.column_stack([np.ones(num_sampled), means[:, 1:] - known])
    coefficients, *_ = np.linalg.lstsq(design, means[:, 0], rcond=None)
    residual = means[:, 0] - design @ coefficients
    variance = residual @ residual / (num_sampled - design.shape[1])
    unseen = 1 - num_sampled / num_rows
    return float(coefficients[0]), math.sqrt(variance / num_sampled * unseen)


def _row_sums(
    units: Float[Tensor, "m d"], vectors: Real[Tensor, "v d"], chunk_size: int
) -> Float64[Tensor, "m 3"]:
    """Sums over all usable rows of |cos|, cos and cos^2 to each unit row."""
    sums = torch.zeros(len(units), 3, dtype=torch.float64, device=units.device)
    for columns in unit_chunks(vectors, dtype=torch.float32, chunk_size=chunk_size):
        block = units @ columns.T
        parts = (block.abs().sum(1), block.sum(1), block.square().sum(1))
        sums += torch.stack(parts, 1)
    return sums


def _condensed_distances(
    vectors: Real[Tensor, "n d"], chunk_size: int
) -> Float64[Tensor, " pairs"]:
    num = len(vectors)
    (units,) = unit_chunks(vectors, dtype=torch.float64, chunk_size=num)
    distances = units.new_empty(num * (num - 1) // 2)
    filled = 0
    for start in range(0, num, chunk_size):
        # The part right of the diagonal, which pdist lists row by row.
        similarity = units[start : start + chunk_size] @ units[start:].T
        upper = similarity[torch.ones_like(similarity, dtype=torch.bool).triu(1)]
        distances[filled : filled + len(upper)] = 1 - upper
        filled += len(upper)
    return distances
