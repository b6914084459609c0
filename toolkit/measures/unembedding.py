"""Row norms and overlap of the unembedding: is its superposition strong?"""

import math

from torch import Tensor

from toolkit.functional import feature_norms, mean_squared_overlap, norm_percentiles
from toolkit.functional._checks import instance
from toolkit.measures.subject import Subject
from toolkit.runs.points import Point, num_nonfinite

_PERCENTS = (5, 50, 95)
_QUANTITIES = (
    "norm_mean",
    "norm_min",
    *(f"norm_p{percent:02d}" for percent in _PERCENTS),
    "overlap_times_m",
    "num_dropped",
)


def unembedding_points(subject: Subject) -> list[Point]:
    """Measure the unembedding's rows, one per token (arXiv 2505.10465).

    Under strong superposition every row has a norm far from 0, and their mean squared overlap is
    about 1/m for width m.

    Args:
        subject: The model.

    Returns:
        ``norm_mean``, ``norm_min``, ``norm_p05``, ``norm_p50``, ``norm_p95``,
        ``overlap_times_m`` (1 for random isotropic rows), ``num_dropped`` rows of norm below 1e-6
        and ``num_nonfinite`` of ``output``.
    """
    instance("subject", subject, Subject)
    matrix = subject.matrices["output"]
    bad, num_rows = num_nonfinite(matrix), len(matrix)
    values = dict.fromkeys(_QUANTITIES, math.nan)
    if not bad:
        values = _values(matrix)
    points = [Point("num_nonfinite", "output", bad, num_rows)]
    return points + [Point(name, "output", value, num_rows) for name, value in values.items()]


def _values(matrix: Tensor) -> dict[str, float]:
    norms = feature_norms(matrix).double()
    overlap = mean_squared_overlap(matrix)
    values = (
        float(norms.mean()),
        float(norms.min()),
        *norm_percentiles(matrix, _PERCENTS),
        matrix.shape[1] * overlap.value,
        overlap.num_dropped,
    )
    return dict(zip(_QUANTITIES, values, strict=True))
