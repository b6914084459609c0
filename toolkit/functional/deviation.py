"""Embedding deviation: the distance of a matrix's rows from orthogonality."""

import math
from functools import reduce
from typing import Any, NamedTuple

import torch
from jaxtyping import Float64, Real
from torch import Tensor

from toolkit.functional._checks import finite_real, integer_at_least, number_at_least
from toolkit.functional.cosine import (
    CosineMomentsResult,
    PairSums,
    finite_moments,
    moments_from_sums,
    pair_sums,
    require_pairs,
    unit_sums,
)


class EmbeddingDeviationResult(NamedTuple):
    """Deviation epsilon = mean + num_sigma std of the cosine similarity between different rows.

    Attributes:
        epsilon: The deviation.
        mean: Mean over all pairs i < j.
        std: Standard deviation over these pairs (population).
        model_class: 1 above 0.2 (a capacity means nothing there), 2 below 0.1, None between.
        num_rows: Number of rows used.
        num_dropped: Number of zero rows, left out.
    """

    epsilon: float
    mean: float
    std: float
    model_class: int | None
    num_rows: int
    num_dropped: int


def embedding_deviation(embeddings: Tensor, *, num_sigma: float = 2.0) -> EmbeddingDeviationResult:
    """Embedding deviation epsilon = mu + 2 sigma of signed similarities (arXiv 2606.02765).

    Exact over all pairs in O(V d^2) time and O(d^2) memory, without a copy of the matrix.

    Args:
        embeddings: Real matrix of shape (V, d), one row per token.
        num_sigma: Standard deviations added to the mean.

    Raises:
        TypeError: If ``embeddings`` is no tensor.
        ValueError: If ``embeddings`` is not a finite real matrix with two non-zero rows, or
            ``num_sigma`` is negative or not finite.

    Example:
        >>> import torch
        >>> embedding_deviation(torch.eye(4)).model_class
        2
    """
    number_at_least("num_sigma", num_sigma, 0)
    moments = finite_moments("embeddings", embeddings)
    num_rows = len(embeddings) - moments.num_dropped
    return deviation_from_moments(moments, num_rows, num_sigma=num_sigma)


def deviation_from_moments(
    moments: CosineMomentsResult, num_rows: int, *, num_sigma: float
) -> EmbeddingDeviationResult:
    """Deviation and class from the pair moments."""
    epsilon = moments.mean + num_sigma * moments.std
    model_class = 1 if epsilon > 0.2 else 2 if epsilon < 0.1 else None
    return EmbeddingDeviationResult(
        epsilon, moments.mean, moments.std, model_class, num_rows, moments.num_dropped
    )


def deviation_stderr(embeddings: Tensor, *, num_sigma: float = 2.0, num_blocks: int = 20) -> float:
    """Standard error of epsilon for rows drawn from a larger population (block jackknife).

    With epsilon_b the deviation without block b of B, the squared error is (B - 1) / B times the
    sum of (epsilon_b - mean)^2. Blocks take every B-th row: neighbouring rows of a vocabulary
    resemble each other. Two passes over the matrix, O(V d^2) time and O(d^2) memory.

    Args:
        embeddings: Real matrix of shape (V, d), one row per token; zero rows are left out.
        num_sigma: Standard deviations in epsilon, see `embedding_deviation`.
        num_blocks: Number of blocks B.

    Raises:
        TypeError: If ``embeddings`` is no tensor.
        ValueError: If ``embeddings`` is not a finite real matrix, leaving out a block leaves
            fewer than two non-zero rows, ``num_sigma`` is negative or not finite, or
            ``num_blocks`` is below 2.
    """
    number_at_least("num_sigma", num_sigma, 0)
    integer_at_least("num_blocks", num_blocks, 2)
    rows = finite_real("embeddings", embeddings)
    blocks = [rows[start::num_blocks] for start in range(min(num_blocks, len(rows)))]
    deviations = _leave_one_out(rows, blocks, num_sigma)
    # Unlike a sum of squares, hypot overflows only where the result does.
    distance = math.hypot(*(deviations - deviations.mean()).tolist())
    return distance * math.sqrt((len(blocks) - 1) / len(blocks))


def _leave_one_out(
    rows: Real[Tensor, "v d"], blocks: list[Tensor], num_sigma: float
) -> Float64[Tensor, " b"]:
    """Epsilon without each of the blocks."""
    num_rows, total, _ = unit_sums(rows)
    # Around their mean, nearly parallel rows lose no digits.
    center = total / max(num_rows, 1)
    # As for the moments themselves: small matrices can afford double precision.
    dtype = torch.float64 if rows.shape[0] * rows.shape[1] ** 2 <= 2**32 else torch.float32
    whole = reduce(_added, (pair_sums(block, center, dtype=dtype) for block in blocks))
    deviations = []
    for block in blocks:
        rest = _added(whole, pair_sums(block, center, dtype=dtype), sign=-1)
        require_pairs("embeddings", rest.num_rows + rest.num_dropped, rest.num_dropped)
        moments = moments_from_sums(rest, center)
        deviation = deviation_from_moments(moments, rest.num_rows, num_sigma=num_sigma)
        deviations.append(deviation.epsilon)
    return torch.tensor(deviations, dtype=torch.float64)


def _added(first: tuple[Any, ...], second: tuple[Any, ...], sign: int = 1) -> PairSums:
    """Sums over two sets of rows, or over the first without the second."""
    return PairSums._make(a + sign * b for a, b in zip(first, second, strict=True))
