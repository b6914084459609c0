"""Spectral measures of features: effective rank, participation ratio and decay exponent."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from toolkit.functional._checks import at_most, enough, finite_float, flag, integer_at_least
from toolkit.functional._eigenvalues import (
    AlphaReQResult,
    Eigenvalues,
    alpha_from_eigenvalues,
    check_fit_range,
    condition_from_eigenvalues,
    layer_spectrum,
    participation_from_eigenvalues,
    rankme_from_eigenvalues,
)
from toolkit.functional._principal import center, principal_axes, share_inside
from toolkit.functional._scale import balanced, times_power
from toolkit.functional.cosine import mean_from_sums, unit_sums
from toolkit.functional.subspace import orthonormal_basis

MIN_ROWS = 3
_TINY = torch.finfo(torch.float64).tiny


class MeanCosineResult(NamedTuple):
    """Mean cosine similarity between different rows.

    Attributes:
        value: The mean, float64, one per layer; NaN below two usable rows.
        num_dropped: Zero rows left out, int64, one per layer.
    """

    value: Tensor
    num_dropped: Tensor


def covariance_eigenvalues(features: Tensor, *, centered: bool = True) -> Tensor:
    """Eigenvalues of the features' covariance, largest first.

    Args:
        features: Real tensor of shape (N, d), or (L, N, d) for L layers.
        centered: Subtract the mean row first; otherwise these are squared singular values / N.

    Returns:
        The min(N, d) eigenvalues in float64, shape (min(N, d),) or (L, min(N, d)). Values below
        the rounding error (about 1e-13 of the largest) are exactly 0.

    Raises:
        TypeError: If ``features`` is no tensor.
        ValueError: If ``features`` is not finite, real and of this shape with N >= 3, or its
            largest eigenvalue is beyond float64.
    """
    spectra = _spectra(features, centered=centered)
    values = torch.stack([times_power(times_power(v, e), e) for v, e in spectra])
    # Below the normal numbers an eigenvalue has lost digits, or is 0 where it should not be.
    for spectrum, largest in zip(spectra, values[:, 0].tolist(), strict=True):
        if float(spectrum.values[0]) and not _TINY <= largest < math.inf:
            raise ValueError(
                "features: expected a covariance within float64, got values up to "
                f"{float(features.double().abs().max()):.1e}; multiply them by a constant"
            )
    return values.reshape(*features.shape[:-2], -1)


def rankme(features: Tensor, *, centered: bool = False, eigenvalues: bool = False) -> Tensor:
    """RankMe, the exponential of the entropy of the normalised spectrum (arXiv 2210.02885, eq. 1).

    Args:
        features: Real tensor of shape (N, d), or (L, N, d) for L layers.
        centered: Subtract the mean row first (not in the paper).
        eigenvalues: Take the covariance's eigenvalues instead of singular values (not in the
            paper; comes close to the effective rank of the variance).

    Returns:
        Between 1 and min(N, d), float64, shape () or (L,); NaN if all values are 0.

    Raises:
        TypeError: If ``features`` is no tensor.
        ValueError: If ``features`` is not finite, real and of this shape with N >= 3.

    Example:
        >>> round(float(rankme(torch.diag(1 / torch.arange(1, 65)))), 2)
        29.12
    """
    flag("eigenvalues", eigenvalues)
    return rankme_from_eigenvalues(_per_layer(features, centered=centered), eigenvalues=eigenvalues)


def participation_ratio(features: Tensor, *, centered: bool = True) -> Tensor:
    """Participation ratio (sum of lambda)^2 / (sum of lambda^2) of the covariance's eigenvalues.

    Args:
        features: Real tensor of shape (N, d), or (L, N, d) for L layers.
        centered: Subtract the mean row first.

    Returns:
        Between 1 and min(N, d), float64, shape () or (L,); NaN if all values are 0.

    Raises:
        TypeError: If ``features`` is no tensor.
        ValueError: If ``features`` is not finite, real and of this shape with N >= 3.
    """
    return participation_from_eigenvalues(_per_layer(features, centered=centered))


def condition_number(features: Tensor, *, centered: bool = True) -> Tensor:
    """Largest over smallest singular value of the features.

    Args:
        features: Real tensor of shape (N, d), or (L, N, d) for L layers.
        centered: Subtract the mean row first; one singular value less then counts if N <= d.

    Returns:
        At least 1, float64, shape () or (L,); infinite for features without full rank, which
        includes ratios above about 1e6; NaN if all values are 0.

    Raises:
        TypeError: If ``features`` is no tensor.
        ValueError: If ``features`` is not finite, real and of this shape with N >= 3.
    """
    values = _per_layer(features, centered=centered)
    num_rows, dim = features.shape[-2:]
    return condition_from_eigenvalues(values, min(num_rows - centered, dim))


def alpha_req(features: Tensor, *, fit_range: tuple[int, int] = (11, 100)) -> AlphaReQResult:
    """Decay exponent of the eigenvalues of the centred covariance (alpha-ReQ, arXiv 2202.05808).

    Args:
        features: Real matrix of shape (N, d).
        fit_range: First and last eigenvalue of the fit, counted from 1 and both included.
            Eigenvalues beyond the rank are left out.

    Returns:
        The exponent and its fit; NaN with the reason if fewer than 5 eigenvalues are left.

    Raises:
        TypeError: If ``features`` is no tensor.
        ValueError: If ``features`` is not a finite real matrix of at least 3 rows or
            ``fit_range`` is no range of ranks.
    """
    ranks = check_fit_range(fit_range)
    rows = finite_float("features", features)
    return alpha_from_eigenvalues(_per_layer(rows, centered=True), ranks)


def mean_cosine(features: Tensor) -> MeanCosineResult:
    """Mean cosine similarity over all pairs of different rows; 0 for an isotropic cloud.

    The mean alone costs O(N d); `cosine_moments` gives the standard deviation as well.

    Args:
        features: Real tensor of shape (N, d), or (L, N, d) for L layers. Rows of norm 0 are
            left out and counted.

    Raises:
        TypeError: If ``features`` is no tensor.
        ValueError: If ``features`` is not finite, real and of this shape with N >= 3.
    """
    layers = _checked(features)
    sums = [unit_sums(rows) for rows in layers]
    shape = features.shape[:-2]
    values = torch.stack([mean_from_sums(total, square, num) for num, total, square in sums])
    dropped = torch.tensor([layers.shape[1] - num for num, *_ in sums], device=values.device)
    return MeanCosineResult(values.reshape(shape), dropped.reshape(shape))


def component_alignment(features: Tensor, basis: Tensor, *, num_components: int = 1) -> Tensor:
    """Share of each leading principal component's squared norm that lies inside span(basis).

    Args:
        features: Real matrix of shape (N, d).
        basis: Real matrix of shape (d, k) with orthonormal columns.
        num_components: Number of leading components.

    Returns:
        Values between 0 and 1, float64, shape (num_components,); NaN beyond the rank.

    Raises:
        TypeError: If an argument is no tensor.
        ValueError: If the arguments are not finite real matrices of matching d, ``features``
            has fewer than 3 rows, the columns of ``basis`` are not orthonormal, or
            ``num_components`` is not between 1 and min(N, d).
    """
    rows = _checked(features, dims=(2,))[0]
    columns = orthonormal_basis("basis", basis, rows.shape[1]).double()
    integer_at_least("num_components", num_components, 1)
    at_most("num_components", num_components, min(rows.shape))
    axes = principal_axes(center(balanced(rows)), num_components)
    exists = layer_spectrum(rows, centered=True).values[:num_components] > 0
    return torch.where(exists, share_inside(axes, columns), math.nan)


def require_rows(num_rows: int) -> int:
    """Return the number of rows, or raise a ValueError if it is below 3."""
    return enough("features", num_rows, MIN_ROWS, "rows", advice="pass more points")


def _checked(features: Tensor, dims: tuple[int, ...] = (2, 3)) -> Float[Tensor, "l n d"]:
    """Check the features and give them a leading dimension."""
    layers = finite_float("features", features, dims=dims)
    layers = layers[None] if layers.ndim == 2 else layers
    require_rows(layers.shape[1])
    return layers


def _spectra(features: Tensor, *, centered: bool) -> list[Eigenvalues]:
    """Covariance eigenvalues layer by layer: one float64 copy of a layer exists at a time."""
    flag("centered", centered)
    return [layer_spectrum(rows, centered=centered) for rows in _checked(features)]


def _per_layer(features: Tensor, *, centered: bool) -> Tensor:
    """Covariance eigenvalues of each layer, up to a factor."""
    values = torch.stack([spectrum.values for spectrum in _spectra(features, centered=centered)])
    return values.reshape(*features.shape[:-2], -1)
