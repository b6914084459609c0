"""Subspace PGA: rank correlation of a layer's geometry with its readout subspace."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from toolkit.functional._checks import (
    finite_float,
    flag,
    integers_at_least,
    number_of_draws,
    source_of_draws,
)
from toolkit.functional._geometry import (
    Readout,
    compare_readout,
    project,
    rank_correlation,
    ranked_geometry,
)
from toolkit.functional._pairs import (
    distinct_points,
    first_twins,
    has_direction,
    require_points,
)
from toolkit.functional._precision import full_precision
from toolkit.functional._principal import center, principal_axes, project_out, share_inside
from toolkit.functional._scale import balanced
from toolkit.functional.subspace import gaussian_frame, orthonormal_basis, require_components

MIN_NULL_STD = 1e-6


class SubspacePGAResult(NamedTuple):
    """Subspace PGA, with the numbers that its reading needs.

    Tensors on the CPU of shape (*layers, *removals): () for one layer and an integer ``remove``,
    (R,) for R removals, (L,) for L layers, (L, R) for both. ``reason`` is nested in the same way.

    Attributes:
        z: (rho - null_mean) / null_std; NaN where ``reason`` is not empty.
        rho: Spearman correlation of the pairwise cosine distances, full space against subspace.
        null_mean: Mean of the null sample.
        null_std: Its sample standard deviation (n - 1).
        p_value: (1 + number of null values >= rho) / (1 + num_null).
        num_points: Number of points compared.
        num_dropped: Number of points of which the removal leaves nothing.
        null: The null sample, shape (*layers, *removals, num_null).
        num_distinct: Number of distinct points; z means little where they are few.
        variance_share: Share, inside the subspace, of the variance that the removal leaves.
        pc1_alignment: Share, inside the subspace, of the first principal direction of the
            mean-centred points, which the first removal takes away.
        reason: Why z is NaN; empty where it is a number.
    """

    z: Tensor
    rho: Tensor
    null_mean: Tensor
    null_std: Tensor
    p_value: Tensor
    num_points: Tensor
    num_dropped: Tensor
    null: Tensor
    num_distinct: Tensor
    variance_share: Tensor
    pc1_alignment: Tensor
    reason: str | tuple[Any, ...]


def subspace_pga(
    hidden: Tensor,
    basis: Tensor,
    *,
    num_null: int = 100,
    remove: int | Sequence[int] = 1,
    generator: torch.Generator | None = None,
    exact: bool = True,
) -> SubspacePGAResult:
    """Subspace PGA of a layer (arXiv 2605.17084): readout subspace against random subspaces.

    rho is the Spearman correlation, ties at their average rank, between the cosine distances of
    all pairs of points in full space and in the subspace, after the mean and the first ``remove``
    principal components are taken out. z puts it on the scale of ``num_null`` uniformly
    distributed subspaces of the same dimension. z also grows with anisotropy that hidden states
    and readout share: read it beside ``variance_share``.

    Similarities are float64 in full space and float32 in the subspaces, which moves rho by about
    1e-7. Where one direction left in makes nearly all of them 1 or -1, so that float32 could not
    tell them apart, they are float64 there, too. A point without any part in a subspace has
    similarity 0 there. Time grows as num_null (N min(N, d) k + N^2 k + N^2 log N), memory as
    N^2 + N d for any ``num_null``.

    Args:
        hidden: Hidden states of shape (N, d), or (L, N, d) for L layers; N >= 3.
        basis: Orthonormal readout basis of shape (d, k), as from `readout_basis`.
        num_null: Number of random subspaces, 2 to 1,000,000.
        remove: Number of principal components to remove (the r of CCR-r), or several of them,
            each below min(N, d).
        generator: Source of the random subspaces; None: a new generator with seed 0. All layers and
            removals meet the same subspaces, and get what they would get alone.
        exact: False takes similarities for tied that agree to 2^-18 of their range. Faster the
            more points there are; moves rho by about 1e-8, up to 1e-5 below a hundred points.

    Raises:
        TypeError: If ``hidden`` or ``basis`` is no tensor.
        ValueError: If a tensor is not finite and real, shapes do not fit (N < 3, k > d, another
            width), ``basis`` is not orthonormal, or a number is out of range.
    """
    states = finite_float("hidden", hidden, dims=(2, 3))
    require_points("hidden", states)
    columns = orthonormal_basis("basis", basis, states.shape[-1])
    number_of_draws("num_null", num_null, 2)
    flag("exact", exact)
    removals = integers_at_least("remove", [remove] if isinstance(remove, int) else remove, 0)
    require_components("remove", max(removals), states)
    draws = source_of_draws(generator, device=states.device, anywhere=True)
    start = draws.get_state()
    dim, k = columns.shape
    layers = []
    num_rows = min(states.shape[-2:])
    for layer in states if states.ndim == 3 else [states]:
        draws.set_state(start)
        frames = (gaussian_frame(dim, k, draws, rows=num_rows) for _ in range(num_null))
        scores = _layer_scores(layer, columns, removals, frames, exact=exact)
        layers.append(scores[0] if isinstance(remove, int) else _stacked(scores))
    return _stacked(layers) if states.ndim == 3 else layers[0]


@full_precision
def _layer_scores(
    hidden: Float[Tensor, "n d"],
    basis: Float[Tensor, "d k"],
    removals: list[int],
    frames: Iterable[tuple[Tensor, Tensor]],
    *,
    exact: bool,
) -> list[SubspacePGAResult]:
    """Scores of one layer, one for each removal."""
    hidden = balanced(hidden)
    centered = center(hidden)
    axes = principal_axes(centered, max(1, *removals))
    alignment = float(share_inside(axes[:, :1], basis.double()))
    twins = first_twins(hidden)
    clouds = []
    for removal in removals:
        residual = project_out(centered, axes[:, :removal])
        clouds.append(distinct_points(residual, has_direction(residual, hidden), twins))
    geometries = [ranked_geometry(points) for points in clouds]
    nulls: list[list[float]] = [[] for _ in removals]
    for gaussian, whitening in frames:
        frame = gaussian.to(hidden.device), whitening.to(hidden.device)
        for geometry, null in zip(geometries, nulls, strict=True):
            if geometry is None:
                null.append(math.nan)
            else:
                view = partial(project, geometry, *frame)
                null.append(rank_correlation(geometry, view, exact=exact))
    readouts = [
        compare_readout(points, geometry, basis, exact=exact)
        for points, geometry in zip(clouds, geometries, strict=True)
    ]
    return [
        _score(readout, null, len(hidden), alignment)
        for readout, null in zip(readouts, nulls, strict=True)
    ]


def _score(
    readout: Readout, null: list[float], num_rows: int, alignment: float
) -> SubspacePGAResult:
    """Set the readout subspace against the null sample."""
    rho, share, num_points, num_distinct, reason = readout
    sample = torch.tensor(null, dtype=torch.float64)
    mean, std = float(sample.mean()), float(sample.std())
    if not reason and not std >= MIN_NULL_STD:
        reason = f"the null has no spread (std {std:.1e})"
    above = int((sample >= rho).sum())
    return SubspacePGAResult(
        z=_number(math.nan if reason else (rho - mean) / std),
        rho=_number(rho),
        null_mean=_number(mean),
        null_std=_number(std),
        p_value=_number(math.nan if math.isnan(rho) else (1 + above) / (1 + len(null))),
        num_points=torch.tensor(num_points),
        num_dropped=torch.tensor(num_rows - num_points),
        null=sample,
        num_distinct=torch.tensor(num_distinct),
        variance_share=_number(share),
        pc1_alignment=_number(alignment),
        reason=reason,
    )


def _number(value: float) -> Float64[Tensor, ""]:
    return torch.tensor(value, dtype=torch.float64)


def _stacked(scores: Sequence[SubspacePGAResult]) -> SubspacePGAResult:
    """Join scores along a new first dimension."""
    names = [name for name in SubspacePGAResult._fields if name != "reason"]
    tensors = {name: torch.stack([getattr(score, name) for score in scores]) for name in names}
    return SubspacePGAResult(**tensors, reason=tuple(score.reason for score in scores))
