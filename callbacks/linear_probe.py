"""How much of the texts' labels each layer gives away to a linear classifier."""

from collections.abc import Mapping
from math import hypot, isfinite
from typing import Any, ClassVar, Literal

from callbacks.language_model import TextCallback
from callbacks.moment import Moment
from toolkit.functional._checks import integer_at_least, positives
from toolkit.measures.text_set import TextSet
from toolkit.runs.points import Point, values_by_layer

# What a gain must exceed to be called one.
_NUM_ERRORS = 2


class LinearProbe(TextCallback):
    """Measures the accuracy of a linear probe on each layer, trained anew at each step.

    Tags are ``probe/<quantity>/<layer>``: ``accuracy`` on the test texts with its binomial
    ``stderr``, ``train_accuracy``, ``converged``, ``num_iter``, ``l2``; and ``probe/chance``, the
    share of the most frequent class. They are NaN where ``num_nonfinite`` counts values that are
    not finite. The figure is a heat map of the accuracy, layer by step.

    Args:
        l2: Penalty of the probe, or several to choose from on a held-out part of the train texts.
        max_iter: Limit on the iterations of a fit.
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

    metric: ClassVar[str] = "probe"
    headline_columns: ClassVar[Mapping[str, str]] = {"accuracy": "probe accuracy"}
    heat_maps: ClassVar[Mapping[str, str]] = {"accuracy": "probe accuracy"}

    def __init__(
        self,
        *,
        l2: float | list[float] = 0.1,
        max_iter: int = 500,
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
        positives("l2", l2)
        self.l2 = l2
        self.max_iter = integer_at_least("max_iter", max_iter, 1)

    def arguments(self) -> dict[str, Any]:
        """Return the probe's options beside the texts."""
        return {**super().arguments(), "l2": self.l2, "max_iter": self.max_iter}

    def measure(self, moment: Moment) -> list[Point]:
        """Return the quantities of each layer."""
        from toolkit.measures import probe_points  # noqa: PLC0415

        return probe_points(self.subject(moment), l2=self.l2, max_iter=self.max_iter)

    def headline_lines(self) -> list[str]:
        """Return what guessing would reach, and how much the training has added at most."""
        chance = self.latest.get(self.tag("chance"))
        lines = [] if chance is None else [f"probe: chance is {chance:.4g}"]
        best = self._largest_gain()
        return lines if best is None else [*lines, best]

    def _largest_gain(self) -> str | None:
        """Compare the first and the last step where the accuracy has risen most."""
        first, last = min(self.history, default=0), max(self.history, default=0)
        before = values_by_layer(self.history.get(first, {}), self.tag("accuracy"))
        after = values_by_layer(self.latest, self.tag("accuracy"))
        gains = {
            layer: after[layer] - before[layer]
            for layer in before.keys() & after.keys()
            if isfinite(after[layer]) and isfinite(before[layer])
        }
        if first == last or not gains:
            return None
        layer = max(sorted(gains), key=lambda name: gains[name])
        errors = [self.history[step][self.tag("stderr", layer)] for step in (first, last)]
        error = hypot(*errors)
        # The largest of several gains is above zero by chance alone.
        verdict = "more" if gains[layer] > _NUM_ERRORS * error else "no more"
        return (
            f"probe: largest gain at {layer}, {after[layer]:.4g} ± {errors[1]:.2g} after step "
            f"{last:,} against {before[layer]:.4g} ± {errors[0]:.2g} after step {first:,}: "
            f"{gains[layer]:.2g} ± {error:.2g}, {verdict} than {_NUM_ERRORS} standard errors"
        )
