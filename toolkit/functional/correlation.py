"""Spearman's rank correlation, with exact average ranks for ties."""

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64, Shaped
from torch import Tensor

from toolkit.functional._checks import finite_float


def average_ranks(values: Tensor) -> Tensor:
    """Ranks along the last dimension, 1 for the smallest; equal values share their mean rank.

    -0.0 and 0.0 are equal.

    Args:
        values: Finite real tensor of shape (..., n), up to three dimensions.

    Returns:
        Float64 tensor of the same shape.

    Raises:
        TypeError: If ``values`` is no tensor.
        ValueError: If it is empty, not real or not finite.

    Example:
        >>> average_ranks(torch.tensor([30.0, 10.0, 10.0, 20.0]))
        tensor([4.0000, 1.5000, 1.5000, 3.0000], dtype=torch.float64)
    """
    checked = finite_float("values", values, dims=(1, 2, 3))
    return _ranks_along_last(checked) + (checked.shape[-1] + 1) / 2


def spearman(x: Tensor, y: Tensor) -> Tensor:
    """Spearman's rank correlation along the last dimension: Pearson's of the average ranks.

    Args:
        x: Finite real tensor of shape (..., n), up to three dimensions.
        y: Finite real tensor of the same shape.

    Returns:
        Float64 tensor of shape (...); NaN where ``x`` or ``y`` is constant.

    Raises:
        TypeError: If an argument is no tensor.
        ValueError: If an argument is empty, not real or not finite, or the shapes differ.

    Example:
        >>> spearman(torch.tensor([1, 0, 4, 1, 0, 3, 0]), torch.tensor([4, 0, 3, 3, 3, 1, 1]))
        tensor(0.3529, dtype=torch.float64)
    """
    first = finite_float("x", x, dims=(1, 2, 3))
    second = finite_float("y", y, dims=(1, 2, 3))
    if first.shape != second.shape:
        raise ValueError(
            f"y: expected the shape of x, {tuple(first.shape)}, got {tuple(second.shape)}; "
            "pass paired values"
        )
    return pearson(_ranks_along_last(first), _ranks_along_last(second))


def pearson(
    x: Float64[Tensor, "*batch n"], y: Float64[Tensor, "*batch n"]
) -> Float64[Tensor, "*batch"]:
    """Pearson correlation of values whose mean is 0."""
    scale = (x.square().sum(-1) * y.square().sum(-1)).sqrt()
    return (x * y).sum(-1) / scale


def centered_ranks(values: Shaped[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """Average ranks of a vector, minus their mean (n + 1) / 2."""
    ordered, index = torch.sort(values)
    ranks = untied_ranks(len(values), values.device)
    tied, shared = tied_ranks(ordered)
    ranks[tied] = shared
    return torch.empty_like(ranks).scatter_(0, index, ranks)


def tied_ranks(
    ordered: Shaped[Tensor, " n"],
) -> tuple[Int64[Tensor, " ties"], Float64[Tensor, " ties"]]:
    """Positions with ties in ascending values, and the centred average ranks they share.

    Everywhere else the centred rank is the position minus (n - 1) / 2.
    """
    tied = _equal_to_next(ordered)
    opens = torch.ones_like(tied, dtype=torch.bool)
    opens[1:] = tied[1:] != tied[:-1] + 1
    group = torch.cumsum(opens, 0) - 1
    first = tied[opens]
    last = first + torch.bincount(group)
    shared = (first + last).double() / 2 - (len(ordered) - 1) / 2
    return torch.cat([tied, last]), torch.cat([shared[group], shared])


def untied_ranks(num: int, device: torch.device) -> Float64[Tensor, " num"]:
    """Centred ranks of ``num`` different values in ascending order."""
    middle = (num - 1) / 2
    return torch.arange(-middle, middle + 0.5, dtype=torch.float64, device=device)


def _ranks_along_last(values: Float[Tensor, "*batch n"]) -> Float64[Tensor, "*batch n"]:
    """Centred average ranks along the last dimension."""
    # One vector at a time: torch's radix sort on the CPU takes vectors only.
    rows = [centered_ranks(_sortable(row)) for row in values.reshape(-1, values.shape[-1])]
    return torch.stack(rows).reshape(values.shape)


def _sortable(values: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Integers in the order of ``values``, equal where these are: they sort far faster."""
    # Adding 0.0 turns -0.0 into 0.0. Below zero, IEEE bits run backwards.
    integer = torch.int32 if values.dtype == torch.float32 else torch.int64
    bits = (values + 0.0).view(integer)
    return torch.where(bits < 0, bits ^ torch.iinfo(integer).max, bits)


def _equal_to_next(ordered: Shaped[Tensor, " n"]) -> Int64[Tensor, " ties"]:
    """Positions whose value equals the next one."""
    if ordered.device.type == "cpu":
        # numpy searches several times as fast as torch here, for every subspace once.
        array = ordered.numpy()
        return torch.from_numpy(np.flatnonzero(array[1:] == array[:-1]))
    return torch.nonzero(ordered[1:] == ordered[:-1]).squeeze(1)
