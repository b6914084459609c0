"""Linear-probe accuracy, layer by layer."""

import math
from dataclasses import dataclass

from torch import Tensor

from toolkit.functional import fit_linear_probe, probe_accuracy
from toolkit.functional._checks import integer_at_least, positives
from toolkit.measures.declaration import History, Measure, Quantity, Tagger
from toolkit.measures.places import Values, layer_points
from toolkit.measures.subject import Subject
from toolkit.runs.layer_order import in_layer_order
from toolkit.runs.points import Point, num_nonfinite, values_by_layer

_CHANCE = Quantity(
    name="chance",
    label="chance",
    meaning="share of the most frequent class among the test texts",
    place="",
)
_QUANTITIES = (
    Quantity(
        name="accuracy",
        label="probe accuracy",
        meaning="test accuracy of a linear probe; at step 0 it is above chance, too",
        heat_map=True,
        headline=True,
        against="pga/z",
    ),
    Quantity(
        name="stderr", label="standard error", meaning="binomial standard error of the accuracy"
    ),
    Quantity(
        name="train_accuracy",
        label="train accuracy",
        meaning="accuracy on the texts that the probe is trained on",
    ),
    Quantity(name="converged", label="converged", meaning="1 if the fit has converged, else 0"),
    Quantity(name="num_iter", label="iterations", meaning="iterations of the fit"),
    Quantity(name="l2", label="penalty", meaning="penalty of the fit, the best one of several"),
)
# Standard errors above which a gain counts as more than chance.
_NUM_ERRORS = 2


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """Options of the linear probe.

    Args:
        l2: Penalty of the probe, or several to choose from on a held-out part of the train texts.
        max_iter: Limit on the iterations of a fit.

    Raises:
        ValueError: If an option is out of range.
    """

    l2: float | list[float] = 0.1
    max_iter: int = 500

    def __post_init__(self) -> None:
        positives("l2", self.l2)
        integer_at_least("max_iter", self.max_iter, 1)


def _probe_points(subject: Subject, options: ProbeOptions) -> list[Point]:
    """Fit a linear probe on the train texts of each layer and test it on the test texts."""
    texts = subject.labelled
    train = subject.states("train")
    num_test = len(texts.test_labels)

    def values(layer: str, test: Tensor) -> Values:
        probe = fit_linear_probe(
            train[layer], texts.train_labels, l2=options.l2, max_iter=options.max_iter
        )
        accuracy = float(probe_accuracy(probe, test, texts.test_labels))
        return {
            "accuracy": accuracy,
            "stderr": math.sqrt(accuracy * (1 - accuracy) / num_test),
            "train_accuracy": float(probe_accuracy(probe, train[layer], texts.train_labels)),
            "converged": float(probe.converged),
            "num_iter": float(probe.num_iter),
            "l2": float(probe.l2),
        }

    chance = float(texts.test_labels.bincount().max()) / num_test
    layers = layer_points(
        subject,
        _QUANTITIES,
        values,
        num_nonfinite_beside=lambda layer: num_nonfinite(train[layer]),
    )
    return [Point(_CHANCE.name, "", chance, num_test), *layers]


def _headlines(history: History, tag: Tagger) -> list[str]:
    """Return the accuracy of guessing, and the largest gain of the training."""
    latest = history[max(history)] if history else {}
    chance = latest.get(tag("chance"))
    lines = [] if chance is None else [f"probe: chance is {chance:.4g}"]
    best = _largest_gain(history, tag)
    return lines if best is None else [*lines, best]


def _largest_gain(history: History, tag: Tagger) -> str | None:
    """Compare the first and the last step where the accuracy has risen most."""
    first, last = min(history, default=0), max(history, default=0)
    before = values_by_layer(history.get(first, {}), tag("accuracy"))
    after = values_by_layer(history.get(last, {}), tag("accuracy"))
    gains = {
        layer: after[layer] - before[layer]
        for layer in before.keys() & after.keys()
        if math.isfinite(after[layer]) and math.isfinite(before[layer])
    }
    if first == last or not gains:
        return None
    layer = max(in_layer_order(gains), key=lambda name: gains[name])
    errors = [history[step][tag("stderr", layer)] for step in (first, last)]
    error = math.hypot(*errors)
    # The largest of several gains is above zero by chance alone.
    verdict = "more" if gains[layer] > _NUM_ERRORS * error else "no more"
    return (
        f"probe: largest gain at {layer}, {after[layer]:.4g} ± {errors[1]:.2g} after step "
        f"{last:,} against {before[layer]:.4g} ± {errors[0]:.2g} after step {first:,}: "
        f"{gains[layer]:.2g} ± {error:.2g}, {verdict} than {_NUM_ERRORS} standard errors"
    )


PROBE = Measure(
    name="probe",
    summary="the accuracy of a linear probe on each layer, trained anew at each step",
    needs=frozenset({"texts", "labels"}),
    options=ProbeOptions,
    quantities=(*_QUANTITIES, _CHANCE),
    points=_probe_points,
    headlines=_headlines,
)
