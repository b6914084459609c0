"""Represented features of a weight matrix: their share, norms and overlaps."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from toolkit.functional._checks import (
    finite_float,
    integer_at_least,
    integers_at_least,
    number_at_least,
)
from toolkit.functional._scale import row_norms
from toolkit.functional.cosine import pair_moments

MIN_NORM = 1e-6


class MeanSquaredOverlapResult(NamedTuple):
    """Mean squared cosine similarity between different features.

    Attributes:
        value: Mean of cos^2 over all pairs of different usable rows; NaN below two of them.
        num_rows: Number of usable rows.
        num_dropped: Number of rows of norm below 1e-6, left out.
    """

    value: float
    num_rows: int
    num_dropped: int


def feature_norms(weight: Tensor) -> Tensor:
    """Norm of each feature's representation (arXiv 2505.10465).

    Args:
        weight: Real matrix of shape (n, m), one row per feature.

    Returns:
        The n row norms, float64 for float64 or integer input, else float32.

    Raises:
        TypeError: If ``weight`` is no tensor.
        ValueError: If ``weight`` is not a finite real matrix, or a norm is beyond the dtype of
            the result.
    """
    rows = finite_float("weight", weight)
    norms = row_norms(rows).to(rows.dtype)
    if not torch.isfinite(norms).all():
        raise ValueError(
            f"weight: expected row norms within {norms.dtype}, got values up to "
            f"{float(rows.abs().max()):.1e}; divide them by a constant"
        )
    return norms


def norm_percentiles(weight: Tensor, percents: Sequence[int]) -> list[float]:
    """Percentiles of the row norms, interpolated linearly between neighbouring norms.

    The same definition as ``numpy.percentile`` and ``torch.quantile`` by default, for any number
    of rows; ``torch.quantile`` takes up to 16 million.

    Args:
        weight: Real matrix of shape (n, m), one row per feature.
        percents: Integers from 0 (the smallest norm) to 100 (the largest).

    Returns:
        One number for each percent, in their order, computed in float64.

    Raises:
        TypeError: If ``weight`` is no tensor.
        ValueError: As `feature_norms`, or if ``percents`` is not a list of integers from 0 to 100.

    Example:
        >>> norm_percentiles(torch.tensor([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0]]), [25, 50])
        [1.5, 2.0]
    """
    wanted = [
        integer_at_least("percents", percent, 0, most=100)
        for percent in integers_at_least("percents", percents, 0)
    ]
    ordered = feature_norms(weight).sort().values.cpu().double()
    ranks = torch.tensor(wanted, dtype=torch.float64) / 100 * (len(ordered) - 1)
    below = ranks.long()
    above = ranks.ceil().long()
    return torch.lerp(ordered[below], ordered[above], ranks - below).tolist()


def represented_fraction(weight: Tensor, threshold: float = 0.5) -> float:
    """Share of features whose row norm is above ``threshold`` (phi of arXiv 2505.10465).

    Trained norms are bimodal, near 0 and near 1, so the usual 1/2 separates them.

    Args:
        weight: Real matrix of shape (n, m), one row per feature.
        threshold: Norm above which a feature counts as represented.

    Raises:
        TypeError: If ``weight`` is no tensor.
        ValueError: If ``weight`` is not a finite real matrix or ``threshold`` is negative.
    """
    number_at_least("threshold", threshold, 0)
    norms = row_norms(finite_float("weight", weight))
    return float((norms > threshold).double().mean())


def mean_squared_overlap(weight: Tensor) -> MeanSquaredOverlapResult:
    """Mean squared overlap of the normalised rows over all pairs i != j (arXiv 2505.10465).

    Random isotropic rows give about 1/m, an equiangular tight frame (n - m) / (m (n - 1)).

    Args:
        weight: Real matrix of shape (n, m), one row per feature. Rows of norm below 1e-6 are
            left out and counted.

    Returns:
        The value and the row counts. A model may represent one feature only, so fewer than two
        usable rows give NaN instead of an error.

    Raises:
        TypeError: If ``weight`` is no tensor.
        ValueError: If ``weight`` is not a finite real matrix.

    Example:
        >>> mean_squared_overlap(torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
        MeanSquaredOverlapResult(value=0.0, num_rows=2, num_dropped=1)
    """
    rows = finite_float("weight", weight)
    moments = pair_moments(rows, min_norm=MIN_NORM)
    value = moments.mean**2 + moments.std**2 if moments.num_pairs else math.nan
    return MeanSquaredOverlapResult(value, len(rows) - moments.num_dropped, moments.num_dropped)
