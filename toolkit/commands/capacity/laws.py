"""Capacity laws with the range and the error of their fits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from toolkit.functional._checks import enough
from toolkit.functional.capacity import (
    PUBLISHED,
    Law,
    PackingLawResult,
    deviation_for,
    fit_packing_law,
    log10_capacity,
)
from toolkit.functional.law_uncertainty import (
    IntervalResult,
    bootstrap_packing_law,
    deviation_interval,
    log10_capacity_interval,
)
from toolkit.reference import PackingPoint, optimised_packing, random_packing

_PROVEN_JL = 8.0
# Fewer points do not determine the four constants of the full law.
_FEWEST_POINTS = {"full": 30, "ratio": 3, "jl": 3}


class Answer(NamedTuple):
    """The answer of a law.

    Attributes:
        value: Decimal logarithm of the capacity, or the deviation.
        interval: Its 95 % interval, None for constants without an interval.
        extrapolates: Whether k/d lies outside the points that the law was fitted to.
        beyond_law: Whether the deviation is 1 or more, which no cosine reaches.
    """

    value: float
    interval: IntervalResult | None
    extrapolates: bool
    beyond_law: bool = False


@dataclass(frozen=True)
class CapacityLaw:
    """A law, its constants and their uncertainty.

    Attributes:
        label: Name in tables and figures.
        law: Its form.
        constants: Its constants by name.
        resamples: Bootstrapped constants by name; empty without a bootstrap.
        ratios: Smallest and largest k/d of the fit; None for a proven law.
        fit: The fit; None for published constants.
    """

    label: str
    law: Law
    constants: dict[str, float]
    resamples: dict[str, Tensor]
    ratios: IntervalResult | None
    fit: PackingLawResult | None = None

    def log10_capacity(
        self, dim: int, epsilon: float, *, rounding: float = 0.0, stderr: float = 0.0
    ) -> Answer:
        """Return the capacity's decimal logarithm; see `toolkit.functional.log10_capacity`.

        Under every law epsilon = 0 means orthogonal vectors, as many as dimensions.
        """
        if epsilon == 0:
            return Answer(math.log10(dim), None, extrapolates=False)
        value = log10_capacity(dim, epsilon, law=self.law, **self.constants)
        interval = None
        if self.resamples:
            interval = log10_capacity_interval(
                dim, epsilon, self.resamples, law=self.law, rounding=rounding, stderr=stderr
            )
        return Answer(value, interval, self._extrapolates(value - math.log10(dim)))

    def deviation(self, dim: int, num_vectors: float) -> Answer:
        """Return the deviation; see `toolkit.functional.deviation_for`."""
        value = deviation_for(dim, num_vectors, law=self.law, **self.constants)
        interval = None
        if self.resamples:
            interval = deviation_interval(dim, num_vectors, self.resamples, law=self.law)
        extrapolates = self._extrapolates(math.log10(num_vectors / dim))
        return Answer(value, interval, extrapolates, beyond_law=value >= 1)

    def _extrapolates(self, log10_ratio: float) -> bool:
        if self.ratios is None:
            return False
        low, high = map(math.log10, self.ratios)
        return not low - 1e-9 <= log10_ratio <= high + 1e-9


def published_law(law: Law) -> CapacityLaw:
    """Return a published law, with the scatter of the published points."""
    points = random_packing() if law == "jl" else optimised_packing()
    fitted = fitted_law(points, law)
    return CapacityLaw(law, law, dict(PUBLISHED[law]), fitted.resamples, fitted.ratios)


def proven_law() -> CapacityLaw:
    """Return the Johnson-Lindenstrauss law with its proven constant."""
    return CapacityLaw("jl, proven", "jl", {"C": _PROVEN_JL}, {}, None)


def fitted_law(points: Sequence[PackingPoint], law: Law) -> CapacityLaw:
    """Fit a law to packings, with bootstrapped constants.

    Raises:
        ValueError: If the points are too few to determine the law's constants.
    """
    usable = [point for point in points if law == "jl" or point.num_vectors > point.dim]
    things = f"packings with k > d for law {law!r}"
    enough("fit", len(usable), _FEWEST_POINTS[law], things, advice="run more pairs")
    columns = [torch.tensor(column, dtype=torch.float64) for column in zip(*usable, strict=True)]
    fit = fit_packing_law(*columns, law=law)
    resamples = bootstrap_packing_law(*columns, law=law)
    ratios = (columns[0] / columns[1]).aminmax()
    interval = IntervalResult(float(ratios.min), float(ratios.max))
    return CapacityLaw(law, law, fit.constants, resamples, interval, fit)
