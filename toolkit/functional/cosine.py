"""Cosine similarities between all pairs of rows, streamed so that no V x V matrix exists."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float64, Real
from torch import Tensor

from toolkit.functional._checks import enough, finite_real, integer_at_least, real_tensor
from toolkit.functional._precision import full_precision
from toolkit.functional._scale import row_norms, unit_rows
from toolkit.functional._triangles import add_lower, lower_gram, mirror_lower

# Longer float32 sums lose digits.
CHUNK_SIZE = 2048


class CosineMomentsResult(NamedTuple):
    """Moments of the cosine similarity over all pairs of different usable rows.

    Attributes:
        mean: Mean over all pairs i < j.
        std: Standard deviation over all these pairs (population, not sample).
        num_pairs: Number of pairs.
        num_dropped: Number of rows without a direction, left out.
    """

    mean: float
    std: float
    num_pairs: int
    num_dropped: int


class PairSums(NamedTuple):
    """Sums over rows v = u - anchor, u the unit rows, from which the pair moments follow.

    Attributes:
        num_rows: Number of usable rows.
        num_dropped: Number of rows left out.
        total: Sum of v, shape (d,).
        gram: Sum of v v^T, shape (d, d).
        square: Sum of |v|^2.
        fourth: Sum of |v|^4.
        cubic: Sum of |v|^2 v, shape (d,).
    """

    num_rows: int
    num_dropped: int
    total: Tensor
    gram: Tensor
    square: Tensor
    fourth: Tensor
    cubic: Tensor


def cosine_moments(vectors: Tensor, *, chunk_size: int = CHUNK_SIZE) -> CosineMomentsResult:
    """Mean and standard deviation of the cosine similarity over all pairs of different rows.

    Exact over all pairs at a cost of O(V d^2): with unit rows U, the similarities sum to
    |sum of rows|^2 and their squares to ||U^T U||_F^2, both including the pairs i = i.

    Args:
        vectors: Real matrix of shape (V, d). Rows of norm 0 are left out and counted.
        chunk_size: Most rows lifted at a time. Memory is O(chunk_size d + d^2).

    Raises:
        TypeError: If ``vectors`` is no tensor.
        ValueError: If ``vectors`` is not a finite real matrix with two non-zero rows, or
            ``chunk_size`` is below 1.

    Example:
        >>> cosine_moments(torch.eye(3))
        CosineMomentsResult(mean=0.0, std=0.0, num_pairs=3, num_dropped=0)
    """
    integer_at_least("chunk_size", chunk_size, 1)
    return finite_moments("vectors", vectors, chunk_size=chunk_size)


def finite_moments(
    name: str, vectors: Tensor, *, chunk_size: int = CHUNK_SIZE
) -> CosineMomentsResult:
    """Pair moments of a matrix that is checked on the way, which saves reading it once more."""
    rows = real_tensor(name, vectors)
    moments = pair_moments(rows, chunk_size=chunk_size)
    # A value that is not finite spoils the moments, or costs its row.
    if moments.num_dropped or math.isnan(moments.mean):
        finite_real(name, rows)
    require_pairs(name, len(rows), moments.num_dropped)
    return moments


def require_pairs(name: str, num_rows: int, num_dropped: int) -> None:
    """Raise a ValueError unless two rows are left."""
    left = num_rows - num_dropped
    given = f"{left} of {num_rows}"
    enough(name, left, 2, "non-zero rows", given=given, advice="pass more rows")


def pair_moments(
    vectors: Real[Tensor, "v d"], *, chunk_size: int = CHUNK_SIZE, min_norm: float = 0.0
) -> CosineMomentsResult:
    """Pair moments of checked ``vectors``; NaN where fewer than two rows are usable."""
    num_rows, dim = vectors.shape
    # Up to here float64 products take a fraction of a second.
    small = num_rows * dim * dim <= 2**32
    dtype = torch.float64 if small or vectors.dtype == torch.float64 else torch.float32
    origin = torch.zeros(dim, dtype=torch.float64, device=vectors.device)
    sums = pair_sums(vectors, origin, dtype=dtype, chunk_size=chunk_size, min_norm=min_norm)
    moments = moments_from_sums(sums, origin)
    variance = moments.std**2
    if variance < 1e-2 * (variance + moments.mean**2):
        # Nearly parallel rows: the variance is a difference of almost equal numbers, unless
        # the common direction is taken out of the rows first.
        center = sums.total / sums.num_rows
        sums = pair_sums(
            vectors, center, dtype=torch.float64, chunk_size=chunk_size, min_norm=min_norm
        )
        moments = moments_from_sums(sums, center)
    return moments


@full_precision
def pair_sums(
    vectors: Real[Tensor, "v d"],
    anchor: Float64[Tensor, " d"],
    *,
    dtype: torch.dtype,
    chunk_size: int = CHUNK_SIZE,
    min_norm: float = 0.0,
) -> PairSums:
    """Stream the rows once; products in ``dtype``, sums over chunks in float64."""
    dim = vectors.shape[1]
    gram = anchor.new_zeros(dim, dim)
    product = torch.empty_like(gram, dtype=dtype)
    total, cubic = anchor.new_zeros(2, dim)
    square, fourth = anchor.new_zeros(2)
    num_rows = 0
    shift = anchor.to(dtype) if anchor.any() else None
    chunk_size = min(chunk_size, CHUNK_SIZE)
    for rows in unit_chunks(vectors, dtype=dtype, chunk_size=chunk_size, min_norm=min_norm):
        if shift is not None:
            rows.sub_(shift)
        num_rows += len(rows)
        squares = torch.linalg.vector_norm(rows, dim=1).double().square()
        total += rows.sum(0)
        cubic += squares.to(dtype) @ rows
        square += squares.sum()
        fourth += squares.square().sum()
        add_lower(gram, lower_gram(rows.mT, out=product))
    mirror_lower(gram)
    return PairSums(num_rows, len(vectors) - num_rows, total, gram, square, fourth, cubic)


def moments_from_sums(sums: PairSums, anchor: Float64[Tensor, " d"]) -> CosineMomentsResult:
    """Moments of cos = |a|^2 + a.v_i + a.v_j + v_i.v_j over i != j, a being the anchor."""
    rows = sums.num_rows
    if rows < 2:
        return CosineMomentsResult(math.nan, math.nan, 0, sums.num_dropped)
    along = anchor @ sums.total
    image = sums.gram @ anchor
    # Means over i != j of cos - |a|^2 and of its square.
    shift = 2 * along / rows + mean_from_sums(sums.total, sums.square, rows)
    second = 2 * (rows - 2) * (anchor @ image) + 2 * along.square()
    second += 4 * (image @ sums.total - anchor @ sums.cubic)
    second += sums.gram.square().sum() - sums.fourth
    ordered_pairs = rows * (rows - 1)
    variance = (second / ordered_pairs - shift.square()).clamp_min(0)
    mean = anchor @ anchor + shift
    return CosineMomentsResult(
        float(mean), float(variance.sqrt()), ordered_pairs // 2, sums.num_dropped
    )


def mean_from_sums(
    total: Float64[Tensor, " d"], square: Float64[Tensor, ""], num_rows: int
) -> Float64[Tensor, ""]:
    """Mean of v_i.v_j over i != j from the sums of v and |v|^2; NaN below two rows."""
    inner = total @ total - square
    return inner / (num_rows * (num_rows - 1)) if num_rows > 1 else inner * math.nan


def unit_sums(
    rows: Real[Tensor, "n d"],
) -> tuple[int, Float64[Tensor, " d"], Float64[Tensor, ""]]:
    """Number of usable rows, the sum of the unit rows and of their squared norms."""
    total = rows.new_zeros(rows.shape[1], dtype=torch.float64)
    square = total.new_zeros(())
    num = 0
    for units in unit_chunks(rows, dtype=torch.float64):
        num += len(units)
        total += units.sum(0)
        square += units.square().sum()
    return num, total, square


def unit_chunks(
    vectors: Real[Tensor, "v d"],
    *,
    dtype: torch.dtype,
    chunk_size: int = CHUNK_SIZE,
    min_norm: float = 0.0,
) -> Iterator[Tensor]:
    """Yield the unit rows without those of norm 0 or below ``min_norm``.

    All chunks share one buffer, which the caller may change: a new buffer each time would cost as
    much as filling it.
    """
    buffer = vectors.new_empty(min(chunk_size, len(vectors)), vectors.shape[1], dtype=dtype)
    for chunk in torch.split(vectors, chunk_size):
        norms = row_norms(chunk)
        rows = chunk.to(torch.promote_types(chunk.dtype, dtype))
        keep = (norms > 0) & (norms >= min_norm)
        if not keep.all():
            rows, norms = rows[keep], norms[keep]
        yield unit_rows(rows, norms, out=buffer[: len(rows)])
