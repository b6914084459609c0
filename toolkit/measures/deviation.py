"""Embedding deviation and capacity of a model's embedding matrices."""

import math
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from toolkit.functional import embedding_deviation, log10_model_capacity
from toolkit.functional._checks import number_at_least
from toolkit.measures.declaration import History, Measure, Quantity, Tagger
from toolkit.measures.places import Value, Values, matrix_points
from toolkit.measures.subject import Subject
from toolkit.runs.points import Point

_TIED = Quantity(
    name="tied",
    label="tied",
    meaning="1 if both matrices are the same, and `input` alone is measured",
    place="",
)
_QUANTITIES = (
    Quantity(
        name="value",
        label="epsilon",
        meaning="embedding deviation of the `input` and the `output` matrix",
        place="matrix",
    ),
    Quantity(
        name="mean",
        label="mean cosine",
        meaning="mean cosine similarity of two rows",
        place="matrix",
    ),
    Quantity(
        name="std",
        label="std of the cosine",
        meaning="standard deviation of the cosine similarity of two rows",
        place="matrix",
    ),
    Quantity(
        name="class",
        label="class",
        meaning="1 above 0.2, 2 below 0.1, NaN between",
        place="matrix",
    ),
    Quantity(
        name="num_dropped",
        label="zero rows",
        meaning="rows that are zero and left out",
        place="matrix",
    ),
    Quantity(
        name="log10",
        label="capacity",
        meaning="capacity under the full law, NaN for class 1",
        unit="log10 of the number of directions",
        place="matrix",
        metric="capacity",
    ),
)


@dataclass(frozen=True, kw_only=True)
class DeviationOptions:
    """Options of the embedding deviation.

    Args:
        num_sigma: Standard deviations added to the mean.

    Raises:
        ValueError: If it is no finite number of at least 0.
    """

    num_sigma: float = 2.0

    def __post_init__(self) -> None:
        number_at_least("num_sigma", self.num_sigma, 0)


def _deviation_points(subject: Subject, options: DeviationOptions) -> list[Point]:
    """Measure both embedding matrices, or the input matrix alone where they are tied."""
    values = partial(_values, num_sigma=options.num_sigma)
    points = [Point(_TIED.name, "", float(subject.tied))]
    for name, matrix in subject.matrices.items():
        if name == "input" or not subject.tied:
            points += matrix_points(name, matrix, _QUANTITIES, values)
    return points


def _values(matrix: Tensor, *, num_sigma: float) -> Values:
    found = embedding_deviation(matrix, num_sigma=num_sigma)
    values = {
        "value": found.epsilon,
        "mean": found.mean,
        "std": found.std,
        "class": math.nan if found.model_class is None else found.model_class,
        "num_dropped": found.num_dropped,
        "log10": log10_model_capacity(found, matrix.shape[1]),
    }
    return {name: Value(value, found.num_rows) for name, value in values.items()}


def _headlines(history: History, tag: Tagger) -> list[str]:
    """Return epsilon, class and capacity of each matrix."""
    latest = history[max(history)] if history else {}
    lines = []
    for name in ("input", "output"):
        epsilon = latest.get(tag("value", name), math.nan)
        if not math.isnan(epsilon):
            number = latest[tag("class", name)]
            capacity = latest[tag("log10", name, metric="capacity")]
            kind = "between the classes" if math.isnan(number) else f"class {number:.0f}"
            size = "indeterminate" if math.isnan(capacity) else f"10^{capacity:.2f}"
            first = _first_value(history, tag("value", name))
            lines.append(f"epsilon = {epsilon:.4f} ({name}, {kind}), capacity {size}{first}")
    return lines


def _first_value(history: History, tag: str) -> str:
    """Return the value of the first measured step in words, unless it is the last one."""
    first, last = min(history), max(history)
    value = history[first].get(tag, math.nan)
    return "" if first == last or math.isnan(value) else f"; {value:.4f} after step {first:,}"


DEVIATION = Measure(
    name="epsilon",
    summary="epsilon and capacity of both embedding matrices",
    source="arXiv 2606.02765",
    needs=frozenset({"matrices"}),
    options=DeviationOptions,
    quantities=(*_QUANTITIES, _TIED),
    points=_deviation_points,
    headlines=_headlines,
)
