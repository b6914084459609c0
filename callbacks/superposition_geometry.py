"""How the toy model stores its features: how many, how long, how much they overlap."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import lightning as L
from torch import Tensor

from callbacks._toy import toy_model, width_name
from callbacks.base import MeasurementCallback
from callbacks.measurement import Moment, Point, num_nonfinite
from toolkit import figures
from toolkit.functional import (
    feature_norms,
    mean_squared_overlap,
    represented_fraction,
    welch_bound,
)

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
    represented rows, ``welch_times_m`` of the tightest possible n rows; ``mean_bias``. The figures
    are a histogram of the row norms and the overlap against m.

    Args:
        represented_threshold: Row norm above which a feature counts as represented.
        schedule: When to measure, see `MeasurementCallback`.
        on_error: What a failed measurement costs, see `MeasurementCallback`.

    Raises:
        ValueError: If an argument is out of range or, in ``setup``, the model is another.
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
        if not represented_threshold >= 0:
            raise ValueError(
                f"represented_threshold: expected a norm of at least 0, got {represented_threshold}"
            )
        self.represented_threshold = represented_threshold

    def arguments(self) -> dict[str, Any]:
        """Return the threshold."""
        return {"represented_threshold": self.represented_threshold}

    def check(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Ask for the toy model."""
        toy_model(pl_module, wanted_by=self)

    def measure(self, moment: Moment) -> list[Point]:
        """Return the quantities of each width."""
        model = toy_model(moment.pl_module, wanted_by=self)
        points = []
        for m, weight, bias in zip(model.widths, model.weights, model.biases, strict=True):
            bad = num_nonfinite(weight, bias)
            values = [math.nan] * len(_QUANTITIES) if bad else self._values(weight, bias)
            named = zip(("num_nonfinite", *_QUANTITIES), (bad, *values), strict=True)
            points += [Point(name, width_name(m), value, len(weight)) for name, value in named]
        return points

    def figures(self, moment: Moment, values: Mapping[str, float]) -> Mapping[str, "Figure"]:
        """Return the histogram of row norms and the overlap against m."""
        model = toy_model(moment.pl_module, wanted_by=self)
        norms = {
            m: feature_norms(weight).cpu()
            for m, weight in zip(model.widths, model.weights, strict=True)
            if not num_nonfinite(weight)
        }
        overlap, represented, welch = (
            {m: values[f"superposition/{name}/{width_name(m)}"] / m for m in model.widths}
            for name in ("overlap_times_m", "overlap_represented_times_m", "welch_times_m")
        )
        return {
            "norm_histogram": figures.norm_histogram(
                norms, step=moment.step, threshold=self.represented_threshold
            ),
            "overlap_against_width": figures.overlap_against_width(
                overlap, step=moment.step, represented=represented, welch=welch
            ),
        }

    def _values(self, weight: Tensor, bias: Tensor) -> list[float]:
        num_features, m = weight.shape
        norms = feature_norms(weight)
        represented = weight[norms > self.represented_threshold]
        # A model may represent nothing at all.
        overlap = mean_squared_overlap(represented).value if len(represented) else math.nan
        return [
            represented_fraction(weight, self.represented_threshold),
            *(norms.quantile(percent / 100).item() for percent in _PERCENTS),
            m * mean_squared_overlap(weight).value,
            m * overlap,
            m * welch_bound(num_features, m) ** 2,
            bias.mean().item(),
        ]
