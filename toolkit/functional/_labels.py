"""Class labels: their checks, and a held-out part with the same share of each class."""

from typing import NamedTuple

import torch
from jaxtyping import Int64
from torch import Tensor

from toolkit.functional._checks import enough, integer_tensor, of_shape


class Split(NamedTuple):
    """Row indices of the two parts."""

    train: Int64[Tensor, " t"]
    held_out: Int64[Tensor, " v"]


def integer_labels(labels: Tensor, rows: Tensor) -> Int64[Tensor, " n"]:
    """Return ``labels`` as int64 where ``rows`` of shape (..., N, d) are.

    Raises:
        TypeError: If ``labels`` is no tensor.
        ValueError: If ``labels`` holds no integers or is not of shape (N,).
    """
    labels = integer_tensor("labels", labels)
    of_shape("labels", labels, rows.shape[-2:-1], reason=", one per row of features")
    return labels.to(rows.device, torch.int64)


def train_classes(labels: Tensor, rows: Tensor) -> Int64[Tensor, " n"]:
    """Check like `integer_labels`, and that 0..C-1 all occur.

    Raises:
        TypeError: If ``labels`` is no tensor.
        ValueError: As in `integer_labels`, or if there is a single class or a gap.
    """
    classes = integer_labels(labels, rows)
    found = sorted(set(classes.tolist()))
    enough("labels", len(found), 2, "classes", given=f"only class {found[0]}")
    if found != list(range(len(found))):
        raise ValueError(
            f"labels: expected 0..{len(found) - 1} for {len(found)} classes, "
            f"got {found[0]}..{found[-1]}; number the classes from 0 without gaps"
        )
    return classes


def stratified_split(
    classes: Int64[Tensor, " n"], share: float, generator: torch.Generator
) -> Split:
    """Hold out ``share`` of each class, rounded: at least one row, but never all rows.

    Raises:
        ValueError: If every class has a single row.
    """
    train, held_out = [], []
    for label in range(int(classes.max()) + 1):
        members = (classes == label).nonzero()[:, 0]
        order = torch.randperm(len(members), generator=generator, device=generator.device)
        members = members[order.to(members.device)]
        num_held_out = min(max(round(share * len(members)), 1), len(members) - 1)
        held_out.append(members[:num_held_out])
        train.append(members[num_held_out:])
    split = Split(torch.cat(train), torch.cat(held_out))
    if len(split.held_out) == 0:
        raise ValueError("labels: expected a class of 2 rows to hold one out; give a single l2")
    return split
