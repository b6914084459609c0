"""Spectral metrics, layer by layer."""

import math

import torch
from torch import Tensor

from toolkit.functional import covariance_eigenvalues, mean_cosine, rankme
from toolkit.functional._checks import instance
from toolkit.functional._eigenvalues import (
    alpha_from_eigenvalues,
    check_fit_range,
    condition_from_eigenvalues,
    participation_from_eigenvalues,
)
from toolkit.measures.subject import Subject
from toolkit.runs.points import Point, num_nonfinite

_QUANTITIES = (
    "rankme",
    "alpha_req",
    "alpha_req_r2",
    "mean_cosine",
    "condition_number",
    "participation_ratio",
    "num_distinct",
)


def spectrum_points(subject: Subject, *, fit_range: tuple[int, int] = (11, 100)) -> list[Point]:
    """Measure the spectrum of the test texts' states at each layer.

    Args:
        subject: Model and texts.
        fit_range: First and last eigenvalue of alpha-ReQ's fit, counted from 1.

    Returns:
        ``rankme`` (arXiv 2210.02885, uncentred), ``alpha_req`` (arXiv 2202.05808) with
        ``alpha_req_r2``, ``mean_cosine``, ``condition_number`` (infinite without full rank),
        ``participation_ratio``, ``num_distinct`` texts' vectors and ``num_nonfinite``.

    Raises:
        ValueError: If ``fit_range`` is no range of ranks or there are fewer than 3 texts.
    """
    instance("subject", subject, Subject)
    check_fit_range(fit_range)
    points = []
    for layer, hidden in subject.states("test").items():
        bad, num_texts = num_nonfinite(hidden), len(hidden)
        points.append(Point("num_nonfinite", layer, bad, num_texts))
        values = dict.fromkeys(_QUANTITIES, math.nan)
        reasons = dict.fromkeys(_QUANTITIES, f"{bad} values are not finite")
        if not bad:
            values, reasons = _values(hidden, fit_range)
        points += [
            Point(name, layer, value, num_texts, reason=reasons.get(name, ""))
            for name, value in values.items()
        ]
    return points


def _values(hidden: Tensor, fit_range: tuple[int, int]) -> tuple[dict[str, float], dict[str, str]]:
    """The quantities of one layer, and why some are NaN; one decomposition serves the centred."""
    num_texts, dim = hidden.shape
    eigenvalues = covariance_eigenvalues(hidden)
    alpha = alpha_from_eigenvalues(eigenvalues, fit_range)
    values = (
        float(rankme(hidden)),
        alpha.alpha,
        alpha.r2,
        float(mean_cosine(hidden).value),
        float(condition_from_eigenvalues(eigenvalues, min(num_texts - 1, dim))),
        float(participation_from_eigenvalues(eigenvalues)),
        len(torch.unique(hidden, dim=0)),
    )
    reasons = dict.fromkeys(("alpha_req", "alpha_req_r2"), alpha.reason)
    return dict(zip(_QUANTITIES, values, strict=True)), reasons
