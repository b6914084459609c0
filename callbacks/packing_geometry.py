"""Geometry of a vector packing: cosines, and the gap to the Welch bound."""

import math
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import lightning as L
from typing_extensions import override

from callbacks.base import MeasurementCallback
from callbacks.moment import Moment
from toolkit.figures.packing import abs_cosine_histogram
from toolkit.functional import (
    cosine_histogram,
    max_abs_cosine,
    mean_squared_overlap,
    welch_bound,
)
from toolkit.models import VectorPacking
from toolkit.reference import optimised_packing
from toolkit.runs.points import Point, num_nonfinite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# From -1 to 1; fine enough for the range [0, 0.2] of large packings.
_NUM_BINS = 2000


class PackingGeometry(MeasurementCallback):
    """Measures the vectors of a `VectorPacking` (arXiv 2606.02765).

    Tags are ``packing/<quantity>``: ``max_abs_cosine`` and ``mean_squared_cosine`` of the vectors
    being trained (1/d for random ones); ``best_max_abs_cosine`` of the best ones so far;
    ``welch_gap``, how far that is above the Welch bound; ``exponent`` of the last step;
    ``restarts``, how often the run went back to the best vectors. The first two are NaN where
    ``num_nonfinite`` counts values that are not finite. The figure is a histogram of |cos|.

    Args:
        schedule: When to measure, see `MeasurementCallback`.
        on_error: What a failed measurement costs, see `MeasurementCallback`.

    Raises:
        ValueError: If an argument is out of range or, in ``setup``, the model is no packing.
    """

    metric: ClassVar[str] = "packing"

    def __init__(
        self,
        *,
        schedule: int | list[int] | Literal["log"] = "log",
        on_error: Literal["raise", "warn"] | None = None,
    ) -> None:
        super().__init__(schedule=schedule, on_error=on_error)
        self._size = (0, 0)

    @override
    def check(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        model = _packing(pl_module)
        self._size = (model.num_vectors, model.dim)

    @override
    def conditions(self, moment: Moment) -> dict[str, Any]:
        num_vectors, dim = self._size
        return {"num_vectors": num_vectors, "dim": dim}

    @override
    def measure(self, moment: Moment) -> list[Point]:
        model = _packing(moment.pl_module)
        bad = num_nonfinite(model.vectors)
        largest, mean_square = math.nan, math.nan
        if not bad:
            largest = max_abs_cosine(model.vectors)
            mean_square = mean_squared_overlap(model.vectors).value
        # The model itself checks the vectors of this step when the next step begins.
        best = min(float(model.best_max_abs_cosine), math.inf if bad else largest)
        numbers = {
            "num_nonfinite": bad,
            "max_abs_cosine": largest,
            "mean_squared_cosine": mean_square,
            "best_max_abs_cosine": best,
            "welch_gap": best - welch_bound(*self._size),
            "exponent": float(model.last_exponent),
            "restarts": int(model.restarts),
        }
        return [Point(name, "", value, model.num_vectors) for name, value in numbers.items()]

    @override
    def figures(self, moment: Moment, values: Mapping[str, float]) -> Mapping[str, "Figure"]:
        vectors = _packing(moment.pl_module).vectors
        if num_nonfinite(vectors):
            return {}
        histogram = cosine_histogram(vectors, num_bins=_NUM_BINS)
        figure = abs_cosine_histogram(
            histogram.counts.cpu(),
            step=moment.step,
            largest=values[self.tag("max_abs_cosine")],
            welch=welch_bound(*self._size),
            published=_published().get(self._size),
        )
        return {"abs_cosine_histogram": figure}

    @override
    def headline_lines(self) -> list[str]:
        last = self.latest
        if self.tag("best_max_abs_cosine") not in last:
            return []
        best, restarts = (last[self.tag(name)] for name in ("best_max_abs_cosine", "restarts"))
        known = f"Welch {welch_bound(*self._size):.4f}"
        if self._size in _published():
            known += f", published {_published()[self._size]:.4f}"
        num_vectors, dim = self._size
        size = f"{num_vectors:,} vectors in {dim:,} dimensions"
        return [f"max |cos| = {best:.4f} for {size} ({known}), {restarts:.0f} restarts"]


def _packing(pl_module: L.LightningModule) -> VectorPacking:
    """Return the module as a packing; another module raises a ValueError."""
    if not isinstance(pl_module, VectorPacking):
        raise ValueError(  # noqa: TRY004 - the run is wrong, not a call
            "model: expected a VectorPacking for PackingGeometry, got "
            f"{type(pl_module).__name__}; remove the callback"
        )
    return pl_module


@cache
def _published() -> dict[tuple[int, int], float]:
    """Published largest |cosine| by numbers of vectors and dimensions."""
    points = optimised_packing()
    return {(point.num_vectors, point.dim): point.max_abs_cosine for point in points}
