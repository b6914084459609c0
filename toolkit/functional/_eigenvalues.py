"""Covariance eigenvalues, and the spectral measures computed from them."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from toolkit.functional._checks import is_integer, shown
from toolkit.functional._scale import excess_exponent, times_power
from toolkit.functional._triangles import lower_gram
from toolkit.functional.scaling import fit_power_law

# Added to every probability by RankMe.
RANKME_SHIFT = 1e-7
MIN_FIT_POINTS = 5
EPS = torch.finfo(torch.float64).eps


class AlphaReQResult(NamedTuple):
    """Power law lambda_i ~ i^-alpha of a covariance spectrum.

    Attributes:
        alpha: Decay exponent; NaN where it could not be fitted.
        r2: Share of the variance of log lambda explained; NaN if not fitted.
        num_points: Number of eigenvalues inside the fit range and the rank.
        reason: The reason for a NaN alpha; empty for a number.
    """

    alpha: float
    r2: float
    num_points: int
    reason: str


class Eigenvalues(NamedTuple):
    """Covariance eigenvalues of one layer, largest first, over 4^exponent."""

    values: Tensor
    exponent: int


def layer_spectrum(rows: Float[Tensor, "n d"], *, centered: bool) -> Eigenvalues:
    """Eigenvalues of one layer's covariance; 0 where they are below the rounding error."""
    points = rows.double()
    exponent = excess_exponent(points, torch.float64)
    points = times_power(points, -exponent)
    size = max(points.shape)
    # Subtracting the mean row leaves this much of it in every coordinate's square.
    noise = points.square().sum() / len(points) * (size * EPS) ** 2
    if centered:
        points = points - points.mean(0)
    # Both products have the same non-zero eigenvalues.
    gram = lower_gram(points if points.shape[0] < points.shape[1] else points.T)
    values = torch.linalg.eigvalsh(gram / len(points)).flip(0)
    return Eigenvalues(clean_eigenvalues(values, size, noise), exponent)


def eigenvalues_from_sums(
    num_rows: int, total: Float64[Tensor, " d"], gram: Float64[Tensor, "d d"], *, centered: bool
) -> Float64[Tensor, " r"]:
    """The same from sums over rows x of x and x x^T, where a large mean costs digits."""
    covariance = gram / num_rows
    size = max(num_rows, len(total))
    noise = covariance.trace() * size * EPS if centered else covariance.new_zeros(())
    if centered:
        mean = total / num_rows
        covariance = covariance - torch.outer(mean, mean)
    values = torch.linalg.eigvalsh(covariance).flip(0)
    return clean_eigenvalues(values[:num_rows], size, noise)


def clean_eigenvalues(
    values: Float64[Tensor, " r"], size: int, noise: Float64[Tensor, ""]
) -> Float64[Tensor, " r"]:
    """Set eigenvalues to 0 that are below ``noise`` or the rounding of a product.

    Args:
        values: Largest first.
        size: Larger side of the features.
        noise: Variance that rounding has left elsewhere.
    """
    floor = torch.maximum(values[0] * size * EPS, noise)
    return torch.where(values > floor, values, 0)


def rankme_from_eigenvalues(
    values: Float64[Tensor, "*l r"], *, eigenvalues: bool = False
) -> Float64[Tensor, "*l"]:
    """RankMe of a covariance spectrum."""
    spectrum = values if eigenvalues else values.sqrt()
    shares = spectrum / spectrum.sum(-1, keepdim=True) + RANKME_SHIFT
    return (-(shares * shares.log()).sum(-1)).exp()


def participation_from_eigenvalues(values: Float64[Tensor, "*l r"]) -> Float64[Tensor, "*l"]:
    """Participation ratio of a covariance spectrum."""
    return 1 / (values / values.sum(-1, keepdim=True)).square().sum(-1)


def condition_from_eigenvalues(
    values: Float64[Tensor, "*l r"], full_rank: int
) -> Float64[Tensor, "*l"]:
    """Condition number from a covariance spectrum, of which ``full_rank`` values count."""
    return (values[..., 0] / values[..., full_rank - 1]).sqrt()


def alpha_from_eigenvalues(
    values: Float64[Tensor, " r"], fit_range: tuple[int, int]
) -> AlphaReQResult:
    """Power law of a covariance spectrum inside the fit range and the rank."""
    rank = int((values > 0).sum())
    first, last = fit_range[0], min(fit_range[1], rank)
    num_points = max(last - first + 1, 0)
    if num_points < MIN_FIT_POINTS:
        reason = (
            f"{num_points} eigenvalues in the fit range {fit_range} of rank {rank}, "
            f"{MIN_FIT_POINTS} are needed"
        )
        return AlphaReQResult(math.nan, math.nan, num_points, reason)
    ranks = torch.arange(first, last + 1, device=values.device)
    fit = fit_power_law(ranks, values[first - 1 : last])
    return AlphaReQResult(fit.exponent, fit.r2, num_points, "")


def check_fit_range(fit_range: object) -> tuple[int, int]:
    """Return the two integers 1 <= first < last, or raise a ValueError."""
    ranks = list(fit_range) if isinstance(fit_range, tuple | list) else []
    if len(ranks) != 2 or not all(map(is_integer, ranks)) or not 1 <= ranks[0] < ranks[1]:
        raise ValueError(
            f"fit_range: expected two integers, 1 <= first < last, got {shown(fit_range)}"
        )
    return ranks[0], ranks[1]
