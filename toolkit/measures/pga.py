"""Subspace PGA, layer by layer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from toolkit.functional import subspace_pga
from toolkit.functional._checks import (
    at_most,
    different,
    fewer_than,
    flag,
    integer_at_least,
    integers_at_least,
    number_of_draws,
    valid_seed,
)
from toolkit.functional.pga import SubspacePGAResult
from toolkit.lm.architecture.parts import final_gain
from toolkit.measures.declaration import Measure, Quantity
from toolkit.measures.places import Undefined, Value, Values, layer_points
from toolkit.measures.subject import Subject
from toolkit.runs.points import Point

# Quantities of each number of removed components, and quantities that do not depend on it.
_SCORES = (
    Quantity(
        name="z",
        label="PGA z",
        meaning="standard deviations by which rho lies above that of random subspaces; it grows "
        "also with anisotropy that states and readout share: read it beside `variance_share`",
        heat_map=True,
        headline=True,
        against_depth=True,
    ),
    Quantity(
        name="rho",
        label="rho",
        meaning="Spearman correlation of the texts' distances in full and in readout space",
        headline=True,
    ),
    Quantity(
        name="null_mean",
        label="mean of the null",
        meaning="mean rho of random subspaces of the same dimension",
    ),
    Quantity(
        name="null_std",
        label="std of the null",
        meaning="sample standard deviation of rho of random subspaces",
    ),
    Quantity(
        name="p_value",
        label="p value",
        meaning="(1 + number of random subspaces whose rho reaches that of the readout) / "
        "(1 + number of random subspaces)",
    ),
    Quantity(
        name="variance_share",
        label="variance share",
        meaning="share of the variance inside the readout subspace",
    ),
)
_COMMON = (
    Quantity(
        name="pc1_alignment",
        label="PC1 alignment",
        meaning="share of the first principal direction inside the readout subspace",
    ),
    Quantity(
        name="num_distinct", label="distinct texts", meaning="number of different vectors of texts"
    ),
)


@dataclass(frozen=True, kw_only=True)
class PgaOptions:
    """Options of Subspace PGA.

    Args:
        k: Dimension of the readout subspace, by default min(100, d // 8), d the width of the
            unembedding; the same at each layer.
        num_null: Number of random subspaces, 2 to 1,000,000.
        remove: Number of principal components to remove (the r of CCR-r), or several; from the
            second on, quantities end in ``_ccr`` and the number.
        seed: Seed of the random subspaces, the same at every step.
        center_unembedding: Subtract the unembedding's mean row first.
        fold_norm: Multiply the unembedding by the final norm's gain, measured by running the norm.

    Raises:
        ValueError: If an option is out of range.
    """

    k: int | None = None
    num_null: int = 100
    remove: int | list[int] = 1
    seed: int = 0
    center_unembedding: bool = False
    fold_norm: bool = False

    def __post_init__(self) -> None:
        if self.k is not None:
            integer_at_least("k", self.k, 1)
        number_of_draws("num_null", self.num_null, 2)
        valid_seed("seed", self.seed)
        several = [self.remove] if isinstance(self.remove, int) else self.remove
        different("remove", integers_at_least("remove", several, 0))
        flag("center_unembedding", self.center_unembedding)
        flag("fold_norm", self.fold_norm)

    @property
    def removals(self) -> list[int]:
        """The numbers of components to remove."""
        return [self.remove] if isinstance(self.remove, int) else list(self.remove)


def default_k(dim: int) -> int:
    """Return the readout subspace's dimension where none is given, min(100, d // 8)."""
    return max(1, min(100, dim // 8))


def _used_k(subject: Subject, options: PgaOptions) -> int:
    return default_k(_width(subject)) if options.k is None else options.k


def _width(subject: Subject) -> int:
    return subject.matrices["output"].shape[1]


def _used_options(subject: Subject, options: PgaOptions) -> Mapping[str, Any]:
    return {"k": _used_k(subject, options)}


def _check_subject(subject: Subject, options: PgaOptions) -> None:
    """Refuse a subspace that does not fit, no gain to fold, a removal that leaves nothing."""
    if options.fold_norm:
        final_gain(subject.parts)
    dim = _width(subject)
    if options.k is not None:
        at_most("k", options.k, dim, limit=f"d = {dim}, the model's width")
    least = min(len(subject.test_texts), dim)
    limit = f"{least}, the smaller of the model's width and the number of test texts"
    fewer_than("remove", max(options.removals), least, limit=limit, advice="remove fewer")


def _pga_points(subject: Subject, options: PgaOptions) -> list[Point]:
    """Compare the test texts' states with the readout subspace at each layer."""
    size, fold_norm = _used_k(subject, options), options.fold_norm

    def values(layer: str, hidden: Tensor) -> Values:
        basis, rank = subject.readout(
            layer, size, centered=options.center_unembedding, fold_norm=fold_norm
        )
        if rank < size:
            return Undefined(
                f"the matrix that reads the layer out has rank {rank}, below k = {size}"
            )
        scores = subspace_pga(
            hidden,
            basis.cpu(),
            num_null=options.num_null,
            remove=options.removals,
            generator=torch.Generator().manual_seed(options.seed),
        )
        return _values(scores, options.removals)

    return layer_points(
        subject,
        [*_COMMON, *(each for scores in _scores(options.removals) for each in scores)],
        values,
        num_nonfinite_beside=lambda layer: subject.num_nonfinite_readout(
            layer, fold_norm=fold_norm
        ),
    )


def _scores(removals: list[int]) -> list[list[Quantity]]:
    """Return the scores of each number of removed components, by their names in tags."""
    suffixes = [f"_ccr{removal}" if index else "" for index, removal in enumerate(removals)]
    return [[replace(each, name=f"{each.name}{s}") for each in _SCORES] for s in suffixes]


def _values(scores: SubspacePGAResult, removals: list[int]) -> Values:
    """Return one layer's values; the scores have one entry for each removal."""
    numbers = scores.num_points.tolist()
    values: dict[str, float | Value] = {
        each.name: Value(float(getattr(scores, each.name)[0]), numbers[0]) for each in _COMMON
    }
    for index, renamed in enumerate(_scores(removals)):
        for quantity, each in zip(_SCORES, renamed, strict=True):
            value = float(getattr(scores, quantity.name)[index])
            reason = scores.reason[index] if math.isnan(value) else ""
            values[each.name] = Value(value, numbers[index], reason)
    return values


PGA = Measure(
    name="pga",
    summary="Subspace PGA of each layer on the test texts",
    source="arXiv 2605.17084",
    needs=frozenset({"matrices", "texts"}),
    options=PgaOptions,
    quantities=(*_SCORES, *_COMMON),
    points=_pga_points,
    used_options=_used_options,
    check_subject=_check_subject,
)
