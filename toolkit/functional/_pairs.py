"""Cosine similarities of all pairs of points and their ranks, for PGA and agreement."""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from toolkit.functional._checks import enough
from toolkit.functional._triangles import lower_gram
from toolkit.functional.correlation import centered_ranks

# A row that keeps less than this share of its length, or than a few roundings of its entries, has
# no direction left.
MIN_SHARE = 1e-10
# Float64 similarities closer than this are equal in exact arithmetic.
ROUNDING = 1e-12
# Steps by which a float32 similarity near 1 may be off.
FLOAT32_STEPS = 64.0
# Share of all ranks, squared, by which float32 may shift similarities.
MAX_BLUR = 1e-10
NUM_SAMPLED, NUM_QUANTILES = 4096, 256


# Makes the points inside a subspace in the given dtype.
View: TypeAlias = Callable[[torch.dtype], Tensor]


class DistinctPoints(NamedTuple):
    """Directions of the distinct points among some rows.

    Attributes:
        units: Unit rows, one for each distinct point, float64 of shape (n, d).
        weights: Squared length of each, times the number of rows that share it, shape (n,).
        members: For each row its point, shape (num_rows,).
    """

    units: Tensor
    weights: Tensor
    members: Tensor


def require_points(name: str, hidden: Float[Tensor, "*layers n d"]) -> None:
    """Raise a ValueError for fewer than three points, which have no two pairs to rank apart."""
    given = f"shape {tuple(hidden.shape)}"
    enough(name, hidden.shape[-2], 3, "points", given=given, advice="pass more texts")


def first_twins(hidden: Float[Tensor, "n d"]) -> Int64[Tensor, " n"]:
    """For each row the first row that equals it."""
    _, group = torch.unique(hidden, dim=0, return_inverse=True)
    rows = torch.arange(len(hidden), device=hidden.device)
    first = torch.full_like(rows, len(hidden)).scatter_reduce(0, group, rows, "amin")
    return first[group]


def has_direction(
    residual: Float64[Tensor, "n d"], hidden: Float[Tensor, "n d"]
) -> Bool[Tensor, " n"]:
    """Mask of the rows of ``residual`` that are longer than the subtraction's rounding error."""
    lengths = torch.linalg.vector_norm(hidden, dim=1, dtype=torch.float64)
    share = max(MIN_SHARE, 4 * torch.finfo(hidden.dtype).eps)
    keep: Tensor = torch.linalg.vector_norm(residual, dim=1) > (lengths + lengths.mean()) * share
    return keep


def distinct_points(
    residual: Float64[Tensor, "n d"], keep: Bool[Tensor, " n"], twins: Int64[Tensor, " n"]
) -> DistinctPoints:
    """The distinct points among the kept rows; equal rows share one, so that they tie exactly."""
    rows, members, counts = torch.unique(twins[keep], return_inverse=True, return_counts=True)
    units = residual[rows]
    lengths = torch.linalg.vector_norm(units, dim=1)
    return DistinctPoints(units.div_(lengths[:, None]), lengths.square() * counts, members)


def pair_index(members: Int64[Tensor, " n"]) -> Int64[Tensor, " pairs"]:
    """Where in the flat similarity matrix of the points each pair of rows i < j is found."""
    size = len(members)
    first, second = members[torch.triu_indices(size, size, 1, device=members.device)]
    num_points = int(members.max()) + 1
    return torch.maximum(first, second).mul_(num_points).add_(torch.minimum(first, second))


def scaled_cosines(
    rows: Float[Tensor, "n k"], *, out: Float[Tensor, "n n"] | None = None
) -> Float[Tensor, "n n"]:
    """Cosine similarities below the diagonal, 1 on it, times `steps`; the rest is undefined.

    They are written to ``out`` where it is given. A zero row is orthogonal to every other.
    """
    scale = steps(rows.dtype)
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    # Dividing first keeps the similarities of points on a line exactly 1 and -1.
    units = rows / lengths.div_(math.sqrt(scale)).clamp_min_(torch.finfo(rows.dtype).tiny)
    cosines = lower_gram(units, out=out)
    cosines.diagonal().fill_(scale)
    return cosines


def similarity_keys(
    cosines: Float[Tensor, "n n"],
    pairs: Int64[Tensor, " pairs"],
    *,
    out: tuple[Float[Tensor, " pairs"], Int[Tensor, " pairs"]] | None = None,
) -> Int[Tensor, " pairs"]:
    """Scaled similarities of the indexed pairs as integers, which sort far faster than floats.

    The similarities and the integers are written to ``out`` where it is given.
    """
    integer = torch.int32 if cosines.dtype == torch.float32 else torch.int64
    values, keys = out or (None, pairs.new_empty(len(pairs), dtype=integer))
    values = torch.index_select(cosines.view(-1), 0, pairs, out=values)
    # By rounding, cosines of parallel rows can exceed the 1 of equal rows.
    return keys.copy_(values.clamp_(max=steps(cosines.dtype)))


def steps(dtype: torch.dtype) -> float:
    """Resolution of the similarities, an even power of 2: closer ones are ties.

    Well below the rounding of a float32 product; for float64 about that rounding.
    """
    return 2.0**30 if dtype == torch.float32 else 2.0**50


def informative(keys: Int64[Tensor, " pairs"]) -> bool:
    """Whether float64 similarities differ beyond rounding, other than as 1 and -1 on a line."""
    one = steps(torch.float64)
    low, high = torch.aminmax(keys)
    return min(int(high - low), one - int(keys.abs().min())) > ROUNDING * one


def blurred(keys: Int[Tensor, " pairs"]) -> bool:
    """Whether float32 similarities lie so close that their rounding decides about their ranks.

    Between two quantiles a value is moved past as many others as its error has room for.
    """
    sample = torch.unique(keys[:: max(len(keys) // NUM_SAMPLED, 1)])
    last = len(sample) - 1
    num_gaps = min(NUM_QUANTILES, last)
    if num_gaps < 1:
        return False
    index = torch.arange(num_gaps + 1, device=keys.device) * last // num_gaps
    shifts = FLOAT32_STEPS / (num_gaps * sample[index].diff().double())
    return float(shifts.square().mean()) > MAX_BLUR


def subspace_ranks(project: View, pairs: Int64[Tensor, " pairs"]) -> Float64[Tensor, " pairs"]:
    """`pair_ranks` from float32 products, or float64 products where float32 is too coarse."""
    keys = similarity_keys(scaled_cosines(project(torch.float32)), pairs)
    return pair_ranks(project(torch.float64), pairs) if blurred(keys) else centered_ranks(keys)


def pair_ranks(
    rows: Float64[Tensor, "n k"], pairs: Int64[Tensor, " pairs"]
) -> Float64[Tensor, " pairs"]:
    """Centred average ranks of the pairs' similarities; 0 where these say nothing."""
    keys = similarity_keys(scaled_cosines(rows), pairs)
    ranks = centered_ranks(keys)
    return ranks if informative(keys) else torch.zeros_like(ranks)
