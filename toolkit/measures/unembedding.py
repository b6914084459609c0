"""Row norms and overlap of the unembedding: is its superposition strong?"""

import math

from torch import Tensor

from toolkit.functional import feature_norms, mean_squared_overlap, norm_percentiles
from toolkit.measures.declaration import History, Measure, NoOptions, Quantity, Tagger
from toolkit.measures.places import Values, matrix_points
from toolkit.measures.subject import Subject
from toolkit.runs.points import Point

_PERCENTS = (5, 50, 95)
_QUANTITIES = (
    Quantity(name="norm_mean", label="mean norm", meaning="mean norm of the rows", place="matrix"),
    Quantity(
        name="norm_min", label="smallest norm", meaning="smallest norm of a row", place="matrix"
    ),
    *(
        Quantity(
            name=f"norm_p{percent:02d}",
            label=f"{percent} % norm",
            meaning=f"{percent} % of the rows have a smaller norm",
            place="matrix",
        )
        for percent in _PERCENTS
    ),
    Quantity(
        name="overlap_times_m",
        label="overlap x m",
        meaning="mean squared cosine of different rows, times the width m; 1 for random rows",
        place="matrix",
    ),
    Quantity(
        name="num_dropped",
        label="short rows",
        meaning="rows of norm below 1e-6, which the overlap leaves out",
        place="matrix",
    ),
)


def _unembedding_points(subject: Subject, options: NoOptions) -> list[Point]:  # noqa: ARG001
    """Measure the unembedding's rows, one per token.

    Under strong superposition every row has a norm far from 0, and their mean squared overlap is
    about 1/m for width m.
    """
    return matrix_points("output", subject.matrices["output"], _QUANTITIES, _values)


def _values(matrix: Tensor) -> Values:
    norms = feature_norms(matrix).double()
    overlap = mean_squared_overlap(matrix)
    percentiles = norm_percentiles(matrix, _PERCENTS)
    return {
        "norm_mean": float(norms.mean()),
        "norm_min": float(norms.min()),
        **{f"norm_p{p:02d}": float(norm) for p, norm in zip(_PERCENTS, percentiles, strict=True)},
        "overlap_times_m": matrix.shape[1] * overlap.value,
        "num_dropped": overlap.num_dropped,
    }


def _headlines(history: History, tag: Tagger) -> list[str]:
    """Return the overlap beside that of random rows."""
    latest = history[max(history)] if history else {}
    overlap = latest.get(tag("overlap_times_m", "output"), math.nan)
    if math.isnan(overlap):
        return []
    smallest = latest[tag("norm_min", "output")]
    return [
        f"unembedding: overlap x m = {overlap:.3f} (random 1), smallest row norm {smallest:.3g}"
    ]


UNEMBEDDING = Measure(
    name="unembedding",
    summary="norms and overlaps of the unembedding's rows, one per token",
    source="arXiv 2505.10465",
    needs=frozenset({"matrices"}),
    options=NoOptions,
    quantities=_QUANTITIES,
    points=_unembedding_points,
    headlines=_headlines,
)
