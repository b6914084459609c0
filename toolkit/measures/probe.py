"""Linear-probe accuracy, layer by layer."""

import math
from collections.abc import Sequence

from toolkit.functional import fit_linear_probe, probe_accuracy
from toolkit.functional._checks import instance, integer_at_least, positives
from toolkit.measures.subject import Subject
from toolkit.runs.points import Point, num_nonfinite

_QUANTITIES = ("accuracy", "stderr", "train_accuracy", "converged", "num_iter", "l2")


def probe_points(
    subject: Subject, *, l2: float | Sequence[float] = 0.1, max_iter: int = 500
) -> list[Point]:
    """Fit a linear probe on the train texts of each layer and test it on the test texts.

    Args:
        subject: Model and labelled texts.
        l2: Penalty, or several to choose from on a held-out part of the train texts.
        max_iter: Limit on the iterations of a fit.

    Returns:
        ``accuracy`` with its binomial ``stderr``, ``train_accuracy``, ``converged``,
        ``num_iter``, ``l2`` and ``num_nonfinite`` of each layer, and ``chance``, the share of the
        most frequent class among the test texts.

    Raises:
        ValueError: If the texts have no labels or an option is out of range.
    """
    instance("subject", subject, Subject)
    positives("l2", l2)
    integer_at_least("max_iter", max_iter, 1)
    texts = subject.labelled
    train, test = subject.states("train"), subject.states("test")
    num_test = len(texts.test_labels)
    chance = float(texts.test_labels.bincount().max()) / num_test
    points = [Point("chance", "", chance, num_test)]
    for layer in subject.layers:
        bad = num_nonfinite(train[layer], test[layer])
        points.append(Point("num_nonfinite", layer, bad, num_test))
        if bad:
            points += [Point(name, layer, math.nan, num_test) for name in _QUANTITIES]
            continue
        probe = fit_linear_probe(train[layer], texts.train_labels, l2=l2, max_iter=max_iter)
        accuracy = float(probe_accuracy(probe, test[layer], texts.test_labels))
        values = (
            accuracy,
            math.sqrt(accuracy * (1 - accuracy) / num_test),
            float(probe_accuracy(probe, train[layer], texts.train_labels)),
            float(probe.converged),
            float(probe.num_iter),
            float(probe.l2),
        )
        points += [
            Point(name, layer, value, num_test)
            for name, value in zip(_QUANTITIES, values, strict=True)
        ]
    return points
