"""Spectral metrics, layer by layer."""

from dataclasses import dataclass

import torch
from torch import Tensor

from toolkit.functional import covariance_eigenvalues, mean_cosine, rankme
from toolkit.functional._eigenvalues import (
    alpha_from_eigenvalues,
    check_fit_range,
    condition_from_eigenvalues,
    participation_from_eigenvalues,
)
from toolkit.measures.declaration import Measure, Quantity
from toolkit.measures.places import Value, Values, layer_points
from toolkit.measures.subject import Subject
from toolkit.runs.points import Point

_QUANTITIES = (
    Quantity(
        name="rankme",
        label="RankMe",
        meaning="effective rank of the states, uncentred (arXiv 2210.02885)",
        heat_map=True,
        headline=True,
    ),
    Quantity(
        name="alpha_req",
        label="alpha-ReQ",
        meaning="decay exponent of the covariance's eigenvalues (arXiv 2202.05808)",
    ),
    Quantity(
        name="alpha_req_r2",
        label="R^2 of alpha-ReQ",
        meaning="R^2 of the fit behind `alpha_req`",
    ),
    Quantity(
        name="mean_cosine",
        label="mean cosine",
        meaning="mean cosine similarity of the vectors of two texts",
    ),
    Quantity(
        name="condition_number",
        label="condition number",
        meaning="largest over smallest eigenvalue of the covariance, infinite without full rank",
    ),
    Quantity(
        name="participation_ratio",
        label="participation ratio",
        meaning="(sum of the covariance's eigenvalues)^2 / sum of their squares",
    ),
    Quantity(
        name="num_distinct", label="distinct texts", meaning="number of different vectors of texts"
    ),
)


@dataclass(frozen=True, kw_only=True)
class SpectrumOptions:
    """Options of the spectral metrics.

    Args:
        fit_range: First and last eigenvalue of alpha-ReQ's fit, counted from 1.

    Raises:
        ValueError: If it is no range of ranks.
    """

    fit_range: tuple[int, int] = (11, 100)

    def __post_init__(self) -> None:
        check_fit_range(self.fit_range)


def _spectrum_points(subject: Subject, options: SpectrumOptions) -> list[Point]:
    return layer_points(subject, _QUANTITIES, lambda _, hidden: _values(hidden, options.fit_range))


def _values(hidden: Tensor, fit_range: tuple[int, int]) -> Values:
    """Return the values of a layer; all centred quantities share one decomposition."""
    num_texts, dim = hidden.shape
    eigenvalues = covariance_eigenvalues(hidden)
    alpha = alpha_from_eigenvalues(eigenvalues, fit_range)
    return {
        "rankme": float(rankme(hidden)),
        "alpha_req": Value(alpha.alpha, reason=alpha.reason),
        "alpha_req_r2": Value(alpha.r2, reason=alpha.reason),
        "mean_cosine": float(mean_cosine(hidden).value),
        "condition_number": float(condition_from_eigenvalues(eigenvalues, min(num_texts - 1, dim))),
        "participation_ratio": float(participation_from_eigenvalues(eigenvalues)),
        "num_distinct": len(torch.unique(hidden, dim=0)),
    }


SPECTRUM = Measure(
    name="spectrum",
    summary="the spectrum of each layer's states of the test texts",
    needs=frozenset({"texts"}),
    options=SpectrumOptions,
    quantities=_QUANTITIES,
    points=_spectrum_points,
)
