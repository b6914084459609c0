"""Embedding deviation and capacity of a model's embedding matrices."""

import math

from toolkit.functional import EmbeddingDeviationResult, embedding_deviation, log10_model_capacity
from toolkit.functional._checks import instance, number_at_least
from toolkit.measures.subject import Subject
from toolkit.runs.points import Point, num_nonfinite


def deviation_points(subject: Subject, *, num_sigma: float = 2.0) -> list[Point]:
    """Measure both embedding matrices, one of them where they are tied (arXiv 2606.02765).

    Args:
        subject: The model.
        num_sigma: Standard deviations added to the mean.

    Returns:
        ``value``, ``mean``, ``std``, ``class`` (NaN between 0.1 and 0.2), ``num_dropped``,
        ``num_nonfinite`` of ``input`` and ``output``, ``tied``, and ``capacity/log10`` under the
        full law, NaN where it means nothing.

    Raises:
        ValueError: If ``num_sigma`` is out of range or a matrix has fewer than two non-zero rows.
    """
    instance("subject", subject, Subject)
    number_at_least("num_sigma", num_sigma, 0)
    points = [Point("tied", "", float(subject.tied))]
    for name, matrix in subject.matrices.items():
        if name == "output" and subject.tied:
            continue
        num_rows, dim = matrix.shape
        bad = num_nonfinite(matrix)
        points.append(Point("num_nonfinite", name, bad, num_rows))
        found = embedding_deviation(matrix, num_sigma=num_sigma) if not bad else _UNKNOWN
        numbers = {
            "value": found.epsilon,
            "mean": found.mean,
            "std": found.std,
            "class": math.nan if found.model_class is None else found.model_class,
            "num_dropped": found.num_dropped,
        }
        used = found.num_rows if not bad else num_rows
        points += [Point(quantity, name, value, used) for quantity, value in numbers.items()]
        points.append(Point("log10", name, log10_model_capacity(found, dim), used, "capacity"))
    return points


_UNKNOWN = EmbeddingDeviationResult(math.nan, math.nan, math.nan, None, 0, 0)
