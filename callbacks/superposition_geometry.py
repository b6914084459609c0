"""Geometry of the toy model: represented features, row norms and overlaps."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import lightning as L
from torch import Tensor
from typing_extensions import override

from callbacks._held import toy_model
from callbacks.base import MeasurementCallback
from callbacks.moment import Moment
from toolkit.figures.toy import norm_histogram, overlap_against_width
from toolkit.functional import (
    feature_norms,
    mean_squared_overlap,
    norm_percentiles,
    represented_fraction,
    welch_bound,
)
from toolkit.functional._checks import number_at_least
from toolkit.models.superposition_autoencoder import width_name
from toolkit.runs.points import Point, num_nonfinite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PERCENTS = (5, 25, 50, 75, 95)
_QUANTITIES = (
    "represented_fraction",
    *(f"norm_p{percent:02d}" for percent in _PERCENTS),
    "overlap_times_m",
    "overlap_represented_times_m",
    "welch_times_m",
    "mean_bias",
)


class SuperpositionGeometry(MeasurementCallback):
    """Measures the rows of each W of the toy model, one row per feature (arXiv 2505.10465).

    Tags are ``superposition/<quantity>/m_<width>``: ``represented_fraction``; ``norm_p05`` to
    ``norm_p95``, percentiles of the row norms; ``overlap_times_m``, m times the mean squared
    overlap of all rows (1 for random isotropic ones), ``overlap_represented_times_m`` of the
    represented rows, ``welch_times_m`` of the tightest possible n rows; ``mean_bias``. They are
    NaN where ``num_nonfinite`` counts weights that are not finite. The figures are a histogram of
    the row norms and the overlap against m.

    Args:
        represented_threshold: Row norm above which a feature counts as represented.
        schedule: When to measure, see `MeasurementCallback`.
        on_error: What a failed measurement costs, see `MeasurementCallback`.

    Raises:
        ValueError: If an argument is out of range or, in ``setup``, it is not the toy model.
    """

    metric: ClassVar[str] = "superposition"
    headline_columns: ClassVar[Mapping[str, str]] = {
        "represented_fraction": "represented",
        "overlap_times_m": "overlap x m",
    }

    def __init__(
        self,
        *,
        represented_threshold: float = 0.5,
        schedule: int | list[int] | Literal["log"] = "log",
        on_error: Literal["raise", "warn"] | None = None,
    ) -> None:
        super().__init__(schedule=schedule, on_error=on_error)
        self.represented_threshold = number_at_least(
            "represented_threshold", represented_threshold, 0
        )

    @override
    def arguments(self) -> dict[str, Any]:
        return {"represented_threshold": self.represented_threshold}

    @override
    def check(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        toy_model(pl_module, wanted_by=self)

    @override
    def measure(self, moment: Moment) -> list[Point]:
        model = toy_model(moment.pl_module, wanted_by=self)
        points = []
        for m, weight, bias in zip(model.widths, model.weights, model.biases, strict=True):
            bad, num_rows = num_nonfinite(weight, bias), len(weight)
            numbers = dict.fromkeys(_QUANTITIES, (math.nan, num_rows))
            if not bad:
                numbers = self._numbers(weight, bias)
            points.append(Point("num_nonfinite", width_name(m), bad, num_rows))
            points += [Point(name, width_name(m), *number) for name, number in numbers.items()]
        return points

    @override
    def figures(self, moment: Moment, values: Mapping[str, float]) -> Mapping[str, "Figure"]:
        model = toy_model(moment.pl_module, wanted_by=self)
        norms = {
            m: feature_norms(weight).cpu()
            for m, weight in zip(model.widths, model.weights, strict=True)
            if not num_nonfinite(weight)
        }
        overlap, represented, welch = (
            {m: values[self.tag(name, width_name(m))] / m for m in model.widths}
            for name in ("overlap_times_m", "overlap_represented_times_m", "welch_times_m")
        )
        return {
            "norm_histogram": norm_histogram(
                norms, step=moment.step, threshold=self.represented_threshold
            ),
            "overlap_against_width": overlap_against_width(
                overlap, step=moment.step, represented=represented, welch=welch
            ),
        }

    def _numbers(self, weight: Tensor, bias: Tensor) -> dict[str, tuple[float, int]]:
        """Return each quantity with its number of rows."""
        num_rows, m = weight.shape
        norms = feature_norms(weight)
        overlap = mean_squared_overlap(weight)
        represented = weight[norms > self.represented_threshold]
        # A model may represent no feature.
        tight = mean_squared_overlap(represented).value if len(represented) else math.nan
        values = (
            (represented_fraction(weight, self.represented_threshold), num_rows),
            *((percentile, num_rows) for percentile in norm_percentiles(weight, _PERCENTS)),
            (m * overlap.value, overlap.num_rows),
            (m * tight, len(represented)),
            (m * welch_bound(num_rows, m) ** 2, num_rows),
            (bias.mean().item(), num_rows),
        )
        return dict(zip(_QUANTITIES, values, strict=True))
