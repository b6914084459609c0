"""Standard error of the embedding deviation, by leaving out blocks of rows."""

import math
from functools import reduce
from typing import Any

import torch
from jaxtyping import Float64, Real
from torch import Tensor

from toolkit.functional._checks import finite_real, integer_at_least, number_at_least
from toolkit.functional.cosine import (
    PairSums,
    moments_from_sums,
    pair_sums,
    require_pairs,
    unit_sums,
)
from toolkit.functional.deviation import deviation_from_moments


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
