"""Points with pairs ranked once in full space, and fast rank correlations with these ranks."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor

from toolkit.functional._pairs import (
    ROUNDING,
    DistinctPoints,
    View,
    blurred,
    informative,
    pair_index,
    pair_ranks,
    scaled_cosines,
    similarity_keys,
    steps,
)
from toolkit.functional._triangles import lower_product
from toolkit.functional.correlation import tied_ranks, untied_ranks

# Their counts and sums fit into the second-level cache.
NUM_BUCKETS = 2**18
# Below this share of the variance, the projections are rounding.
MIN_VARIANCE_SHARE = 1e-10


class Buffers(NamedTuple):
    """Reused memory for ranking one subspace's pairs; fresh memory costs as much as the sort.

    Attributes:
        cosines: Similarities of all points, float32 of shape (n, n).
        values: Those of the pairs, float32.
        keys: The same as integers, int32.
        ordered: Sorted keys, int32.
        order: Where each sorted key came from, int64.
        partners: Full-space ranks in that order, float64.
    """

    cosines: Tensor
    values: Tensor
    keys: Tensor
    ordered: Tensor
    order: Tensor
    partners: Tensor


@dataclass(frozen=True, eq=False)
class Geometry:
    """Pairs of points, ranked by their similarity in full space.

    Attributes:
        coordinates: Unit rows of the distinct points in an orthonormal basis, float32 of shape
            (n, min(n, d)); lower triangular where n <= d.
        units: The unit rows themselves, float64 of shape (n, d).
        pairs: `pair_index` of the points, in ascending order of similarity.
        positions: Centred ranks of as many different values, in ascending order.
        ranks: Centred average ranks of ``pairs``; None where these are ``positions``.
        variance: Sum of their squares; 0 if all pairs are equally far apart or on one line.
        buffers: Scratch memory, overwritten by each `rank_correlation`.
    """

    coordinates: Tensor
    units: Tensor
    pairs: Tensor
    positions: Tensor
    ranks: Tensor | None
    variance: float
    buffers: Buffers

    @cached_property
    def fine_coordinates(self) -> Tensor:
        """``coordinates`` in float64, for similarities that float32 cannot distinguish."""
        if self.coordinates.shape[1] == self.units.shape[1]:
            return self.units
        triangle: Tensor = torch.linalg.qr(self.units.mT, mode="r").R.mT
        # The signs of the Cholesky factor, whose digits these are.
        return triangle * torch.where(triangle.diagonal() < 0, -1.0, 1.0)


class Readout(NamedTuple):
    """Comparison of full space with the readout subspace; ``reason`` explains an undefined rho."""

    rho: float
    variance_share: float
    num_points: int
    num_distinct: int
    reason: str


def ranked_geometry(points: DistinctPoints) -> Geometry | None:
    """Rank all pairs; None for fewer than three points, which have no two pairs."""
    if len(points.members) < 3:
        return None
    cosines = scaled_cosines(points.units)
    pairs = pair_index(points.members)
    keys = similarity_keys(cosines, pairs)
    ordered, order = torch.sort(keys)
    positions = untied_ranks(len(pairs), pairs.device)
    tied, shared = tied_ranks(ordered)
    ranks = positions.index_copy(0, tied, shared)
    variance = float(ranks.square().sum()) if informative(keys) else 0.0
    coordinates = _coordinates(points.units, cosines.div_(steps(cosines.dtype)))
    ties = ranks if len(tied) else None
    buffers = _buffers(len(points.units), len(pairs), pairs.device)
    return Geometry(coordinates, points.units, pairs[order], positions, ties, variance, buffers)


def _buffers(num_points: int, num_pairs: int, device: torch.device) -> Buffers:
    """Memory for one subspace at a time; none of it is used before it is written."""
    kinds = (torch.float32, torch.int32, torch.int32, torch.int64, torch.float64)
    cosines = torch.empty(num_points, num_points, dtype=torch.float32, device=device)
    vectors = [torch.empty(num_pairs, dtype=kind, device=device) for kind in kinds]
    return Buffers(cosines, *vectors)


def project(
    geometry: Geometry,
    gaussian: Float32[Tensor, "d k"],
    whitening: Float32[Tensor, "k k"],
    dtype: torch.dtype,
) -> Float[Tensor, "n k"]:
    """Coordinates of the points in a random subspace.

    Uniform subspaces look the same in every orthonormal basis, so that of ``coordinates`` may
    count as the first vectors of the basis in which the subspace was drawn.
    """
    num_points, width = geometry.coordinates.shape
    if dtype == torch.float64:
        return geometry.fine_coordinates @ gaussian[:width].double() @ whitening.double()
    if num_points > width:
        return geometry.coordinates @ gaussian @ whitening
    return lower_product(geometry.coordinates, gaussian[:width]) @ whitening


def rank_correlation(geometry: Geometry, view: View, *, exact: bool = True) -> float:
    """Spearman correlation of the pairs' similarities, full space against ``view``."""
    cosines = scaled_cosines(view(torch.float32), out=geometry.buffers.cosines)
    found = (_sorted if exact else _bucketed)(geometry, cosines)
    covariance, variance = _in_float64(geometry, view) if found is None else found
    if variance <= ROUNDING * len(geometry.pairs) ** 3 or not geometry.variance:
        return math.nan
    return covariance / math.sqrt(variance * geometry.variance)


def compare_readout(
    points: DistinctPoints, geometry: Geometry | None, basis: Float[Tensor, "d k"], *, exact: bool
) -> Readout:
    """Compare full space with the readout subspace."""
    num_points, num_distinct = len(points.members), len(points.units)
    if geometry is None:
        reason = f"{num_points} points have a direction left, 3 are needed"
        return Readout(math.nan, math.nan, num_points, num_distinct, reason)

    def project_on_basis(dtype: torch.dtype) -> Tensor:
        return points.units.to(dtype) @ basis.to(dtype)

    projected = project_on_basis(torch.float32)
    share = float(projected.double().square().sum(1) @ points.weights / points.weights.sum())
    rho, reason = math.nan, ""
    if share < MIN_VARIANCE_SHARE:
        reason = "no variance inside the subspace"
    else:
        rho = rank_correlation(geometry, project_on_basis, exact=exact)
        if math.isnan(rho):
            reason = "all pairs are equally far apart, or on one line"
    if basis.shape[0] == basis.shape[1]:
        reason = "the subspace is the whole space (k = d)"
    return Readout(rho, share, num_points, num_distinct, reason)


def _in_float64(geometry: Geometry, view: View) -> tuple[float, float]:
    """Products of the centred ranks with the full-space ranks, and with themselves."""
    partners = geometry.positions if geometry.ranks is None else geometry.ranks
    ranks = pair_ranks(view(torch.float64), geometry.pairs)
    return float(torch.dot(ranks, partners)), float(torch.dot(ranks, ranks))


def _sorted(geometry: Geometry, cosines: Float32[Tensor, "n n"]) -> tuple[float, float] | None:
    """The same from float32 similarities; None where these are too coarse."""
    positions, buffers = geometry.positions, geometry.buffers
    keys = similarity_keys(cosines, geometry.pairs, out=(buffers.values, buffers.keys))
    if blurred(keys):
        return None
    ordered, order = torch.sort(keys, out=(buffers.ordered, buffers.order))
    # Pairs are numbered in full-space order: without ties the number is the rank there.
    if geometry.ranks is None:
        partners = buffers.partners.copy_(order)
    else:
        partners = torch.index_select(geometry.ranks, 0, order, out=buffers.partners)
    tied, shared = tied_ranks(ordered)
    shift = shared - positions[tied]
    covariance = torch.dot(positions, partners) + torch.dot(shift, partners[tied])
    untied = len(order) * (len(order) ** 2 - 1) / 12
    return float(covariance), untied + float(torch.dot(shift, shared + positions[tied]))


def _bucketed(geometry: Geometry, cosines: Float32[Tensor, "n n"]) -> tuple[float, float] | None:
    """The same; similarities that fall into one bucket count as tied."""
    partners = geometry.positions if geometry.ranks is None else geometry.ranks
    values = cosines.view(-1).index_select(0, geometry.pairs)
    if blurred(values.to(torch.int32)):
        return None
    low, high = torch.aminmax(values)
    buckets_per_step = (NUM_BUCKETS - 1) / (high - low).clamp_min(1)
    bucket = values.sub_(low).mul_(buckets_per_step).long()
    counts = torch.bincount(bucket, minlength=NUM_BUCKETS).double()
    sums = torch.bincount(bucket, weights=partners, minlength=NUM_BUCKETS)
    ranks = counts.cumsum(0) - (counts + len(values)) / 2
    return float(torch.dot(ranks, sums)), float(torch.dot(ranks.square(), counts))


def _coordinates(
    units: Float64[Tensor, "n d"], cosines: Float64[Tensor, "n n"]
) -> Float32[Tensor, "n r"]:
    """Rows with the same inner products as ``units``, in as few columns as the smaller side.

    Overwrites ``cosines``.
    """
    num_points, dim = units.shape
    if num_points > dim:
        return units.float()
    # The similarities of centred points are singular; adding this makes a factor exist. Columns
    # of points that depend on those before them hold nothing else.
    ridge = num_points**2 * torch.finfo(torch.float64).eps
    cosines.diagonal().add_(ridge)
    factor = torch.linalg.cholesky(cosines)
    coordinates: Tensor = factor.to(torch.float32, memory_format=torch.contiguous_format)
    return coordinates.mul_(factor.diagonal() > 2 * math.sqrt(ridge))
