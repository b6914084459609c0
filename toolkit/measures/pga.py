"""Subspace PGA, layer by layer."""

import math
from collections.abc import Sequence

import torch

from toolkit.functional import subspace_pga
from toolkit.functional._checks import (
    different,
    flag,
    instance,
    integer_at_least,
    integers_at_least,
    number_of_draws,
    valid_seed,
)
from toolkit.functional.pga import SubspacePGAResult as Scores
from toolkit.measures.subject import Subject
from toolkit.runs.points import Point, num_nonfinite

# Scores that differ between numbers of removed components, and those that do not.
_SCORES = ("z", "rho", "null_mean", "null_std", "p_value", "variance_share")
_COMMON = ("pc1_alignment", "num_distinct")


def default_k(dim: int) -> int:
    """Return the readout subspace's dimension where none is given, min(100, d // 8)."""
    return max(1, min(100, dim // 8))


def used_k(subject: Subject, k: int | None) -> int:
    """Return ``k``, or the default for the width of the subject's unembedding."""
    return default_k(subject.matrices["output"].shape[1]) if k is None else k


def check_pga_options(
    k: int | None, num_null: int, remove: int | Sequence[int], seed: int
) -> list[int]:
    """Return the numbers of components to remove, or raise a ValueError for a wrong option."""
    if k is not None:
        integer_at_least("k", k, 1)
    number_of_draws("num_null", num_null, 2)
    valid_seed("seed", seed)
    several = [remove] if isinstance(remove, int) else remove
    return different("remove", integers_at_least("remove", several, 0))


def pga_points(
    subject: Subject,
    *,
    k: int | None = None,
    num_null: int = 100,
    remove: int | Sequence[int] = 1,
    seed: int = 0,
    center_unembedding: bool = False,
    fold_norm: bool = False,
) -> list[Point]:
    """Measure Subspace PGA of the test texts at each layer (arXiv 2605.17084).

    Args:
        subject: Model and texts.
        k: Dimension of the readout subspace, by default min(100, d // 8), d the width of the
            unembedding; the same at each layer.
        num_null: Number of random subspaces, 2 to 1,000,000.
        remove: Number of principal components to remove, or several; from the second on,
            quantities end in ``_ccr`` and the number.
        seed: Seed of the random subspaces.
        center_unembedding: Subtract the unembedding's mean row first.
        fold_norm: Multiply the unembedding by the final norm's gain.

    Returns:
        ``z``, ``rho``, ``null_mean``, ``null_std``, ``p_value``, ``variance_share``,
        ``pc1_alignment``, ``num_distinct`` and ``num_nonfinite`` (of the states and of the matrix
        that reads them out) of each layer. They are NaN with a reason where a number is not
        finite, the matrix that reads a layer out has a rank below ``k``, or z means nothing.

    Raises:
        ValueError: If ``k`` is above a layer's width, or an option is out of range.
    """
    instance("subject", subject, Subject)
    removals = check_pga_options(k, num_null, remove, seed)
    flag("center_unembedding", center_unembedding)
    flag("fold_norm", fold_norm)
    size = used_k(subject, k)
    points = []
    for layer, hidden in subject.states("test").items():
        num_texts = len(hidden)
        bad = num_nonfinite(hidden) + subject.num_nonfinite_readout(layer, fold_norm=fold_norm)
        points.append(Point("num_nonfinite", layer, bad, num_texts))
        if bad:
            points += _unknown(layer, removals, num_texts, f"{bad} values are not finite")
            continue
        basis, rank = subject.readout(layer, size, centered=center_unembedding, fold_norm=fold_norm)
        if rank < size:
            reason = f"the matrix that reads the layer out has rank {rank}, below k = {size}"
            points += _unknown(layer, removals, num_texts, reason)
            continue
        generator = torch.Generator().manual_seed(seed)
        scores = subspace_pga(
            hidden, basis.cpu(), num_null=num_null, remove=removals, generator=generator
        )
        points += _points(layer, removals, scores)
    return points


def _points(layer: str, removals: list[int], scores: Scores) -> list[Point]:
    """One layer's points; the scores have one entry for each removal."""
    numbers = scores.num_points.tolist()
    points = [Point(name, layer, float(getattr(scores, name)[0]), numbers[0]) for name in _COMMON]
    for index, (removal, number) in enumerate(zip(removals, numbers, strict=True)):
        for name in _SCORES:
            value = float(getattr(scores, name)[index])
            reason = scores.reason[index] if math.isnan(value) else ""
            quantity = _quantity(name, index, removal)
            points.append(Point(quantity, layer, value, number, reason=reason))
    return points


def _unknown(layer: str, removals: list[int], num_texts: int, reason: str) -> list[Point]:
    names = [_quantity(name, i, r) for i, r in enumerate(removals) for name in _SCORES]
    return [Point(name, layer, math.nan, num_texts, reason=reason) for name in (*_COMMON, *names)]


def _quantity(name: str, index: int, removal: int) -> str:
    return f"{name}_ccr{removal}" if index else name
