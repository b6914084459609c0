"""How far the rows of the embedding matrices are from orthogonal."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from callbacks.language_model import LanguageModelCallback
from callbacks.moment import Moment
from toolkit.functional import cosine_histogram
from toolkit.functional._checks import number_at_least
from toolkit.runs.points import Point, num_nonfinite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A histogram over all pairs of a large vocabulary would cost more than all measurements.
_MAX_ROWS = 4096


class EmbeddingDeviation(LanguageModelCallback):
    """Measures epsilon and capacity of both embedding matrices (arXiv 2606.02765).

    Tags are ``epsilon/<quantity>/input`` and ``.../output``: ``value``, ``mean`` and ``std`` of
    the cosine similarity, ``class`` (1 above 0.2, 2 below 0.1, NaN between), ``num_dropped`` zero
    rows; ``epsilon/tied``, and then ``input`` alone; ``capacity/log10/<matrix>`` under the full
    law, NaN for class 1. They are NaN where ``num_nonfinite`` counts values that are not finite.
    The figure is a histogram of the cosine similarity, of a large vocabulary that of evenly spaced
    rows.

    Args:
        num_sigma: Standard deviations added to the mean.
        rows: See `LanguageModelCallback`.
        tokenizer: See `LanguageModelCallback`.
        attribute: See `LanguageModelCallback`.
        paths: See `LanguageModelCallback`.
        schedule: When to measure, see `MeasurementCallback`.
        on_error: What a failed measurement costs, see `MeasurementCallback`.

    Raises:
        ValueError: If an argument is out of range or, in ``setup``, the model cannot be measured.
    """

    metric: ClassVar[str] = "epsilon"

    def __init__(
        self,
        *,
        num_sigma: float = 2.0,
        rows: Literal["tokenizer", "all"] = "tokenizer",
        tokenizer: str | None = None,
        attribute: str | None = None,
        paths: dict[str, str] | None = None,
        schedule: int | list[int] | Literal["log"] = "log",
        on_error: Literal["raise", "warn"] | None = None,
    ) -> None:
        super().__init__(
            rows=rows,
            tokenizer=tokenizer,
            attribute=attribute,
            paths=paths,
            schedule=schedule,
            on_error=on_error,
        )
        self.num_sigma = number_at_least("num_sigma", num_sigma, 0)

    def arguments(self) -> dict[str, Any]:
        """Return the number of standard deviations beside the rows."""
        return {**super().arguments(), "num_sigma": self.num_sigma}

    def measure(self, moment: Moment) -> list[Point]:
        """Return the quantities of each matrix."""
        from toolkit.measures import deviation_points  # noqa: PLC0415

        return deviation_points(self.subject(moment), num_sigma=self.num_sigma)

    def figures(self, moment: Moment, values: Mapping[str, float]) -> Mapping[str, "Figure"]:
        """Return the histogram of the cosine similarity of each matrix."""
        from toolkit.figures.deviation import cosine_histograms  # noqa: PLC0415

        measured = {
            name: matrix
            for name, matrix in self.subject(moment).matrices.items()
            if self.tag("value", name) in values and not num_nonfinite(matrix)
        }
        if not measured:
            return {}
        counts = {name: cosine_histogram(_drawn(m)).counts.cpu() for name, m in measured.items()}
        epsilons = {name: values[self.tag("value", name)] for name in measured}
        drawn = _MAX_ROWS if any(len(m) > _MAX_ROWS for m in measured.values()) else None
        figure = cosine_histograms(counts, step=moment.step, epsilons=epsilons, num_drawn=drawn)
        return {"cosine_histogram": figure}

    def headline_lines(self) -> list[str]:
        """Return epsilon, class and capacity of each matrix."""
        lines = []
        for name in ("input", "output"):
            epsilon = self.latest.get(self.tag("value", name), math.nan)
            if not math.isnan(epsilon):
                number = self.latest[self.tag("class", name)]
                capacity = self.latest[self.tag("log10", name, metric="capacity")]
                kind = "between the classes" if math.isnan(number) else f"class {number:.0f}"
                size = "indeterminate" if math.isnan(capacity) else f"10^{capacity:.2f}"
                first = self._first_value(name)
                lines.append(f"epsilon = {epsilon:.4f} ({name}, {kind}), capacity {size}{first}")
        return lines

    def _first_value(self, name: str) -> str:
        """Say what the first measured step gave, unless it is the last one."""
        first, last = min(self.history), max(self.history)
        value = self.history[first].get(self.tag("value", name), math.nan)
        return "" if first == last or math.isnan(value) else f"; {value:.4f} after step {first:,}"


def _drawn(matrix: Tensor) -> Tensor:
    """Return the matrix, or evenly spaced rows of a large one."""
    if len(matrix) <= _MAX_ROWS:
        return matrix
    return matrix[torch.linspace(0, len(matrix) - 1, _MAX_ROWS, device=matrix.device).long()]
