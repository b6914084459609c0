"""How many directions each layer's states use, and how evenly."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from callbacks.language_model import TextCallback
from callbacks.moment import Moment
from toolkit.functional._eigenvalues import check_fit_range
from toolkit.measures.text_set import TextSet
from toolkit.runs.points import Point


class Spectrum(TextCallback):
    """Measures the spectrum of each layer's states of the test texts.

    Tags are ``spectrum/<quantity>/<layer>``: ``rankme`` (arXiv 2210.02885), ``alpha_req`` with
    ``alpha_req_r2`` (arXiv 2202.05808), ``mean_cosine``, ``condition_number`` (infinite without
    full rank), ``participation_ratio``, ``num_distinct`` points. They are NaN where
    ``num_nonfinite`` counts values that are not finite, alpha_req also where too few eigenvalues
    are left for a fit. The figure is a heat map of RankMe, layer by step.

    Args:
        fit_range: First and last eigenvalue of alpha-ReQ's fit, counted from 1.
        texts: The texts and how each becomes one vector, by default AG News.
        layers: Names of the layers, all by default, see `TextCallback`.
        rows: See `LanguageModelCallback`.
        tokenizer: See `LanguageModelCallback`.
        attribute: See `LanguageModelCallback`.
        paths: See `LanguageModelCallback`.
        schedule: When to measure, see `MeasurementCallback`.
        on_error: What a failed measurement costs, see `MeasurementCallback`.

    Raises:
        ValueError: If an argument is out of range or, in ``setup``, the model cannot be measured.
    """

    metric: ClassVar[str] = "spectrum"
    headline_columns: ClassVar[Mapping[str, str]] = {"rankme": "RankMe"}
    heat_maps: ClassVar[Mapping[str, str]] = {"rankme": "RankMe"}

    def __init__(
        self,
        *,
        fit_range: tuple[int, int] = (11, 100),
        texts: TextSet | None = None,
        layers: list[str] | None = None,
        rows: Literal["tokenizer", "all"] = "tokenizer",
        tokenizer: str | None = None,
        attribute: str | None = None,
        paths: dict[str, str] | None = None,
        schedule: int | list[int] | Literal["log"] = "log",
        on_error: Literal["raise", "warn"] | None = None,
    ) -> None:
        super().__init__(
            texts=texts,
            layers=layers,
            rows=rows,
            tokenizer=tokenizer,
            attribute=attribute,
            paths=paths,
            schedule=schedule,
            on_error=on_error,
        )
        self.fit_range = check_fit_range(fit_range)

    def arguments(self) -> dict[str, Any]:
        """Return the fit range beside the texts."""
        return {**super().arguments(), "fit_range": list(self.fit_range)}

    def measure(self, moment: Moment) -> list[Point]:
        """Return the quantities of each layer."""
        from toolkit.measures import spectrum_points  # noqa: PLC0415

        return spectrum_points(self.subject(moment), fit_range=self.fit_range)
