"""Linear probes: accuracy of a linear classifier of labels on a layer's features."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from toolkit.functional._checks import (
    finite_real,
    inner_share,
    instance,
    integer_at_least,
    lift,
    of_shape,
    positive,
    positives,
    source_of_draws,
)
from toolkit.functional._labels import Split, integer_labels, stratified_split, train_classes
from toolkit.functional._precision import full_precision
from toolkit.functional._softmax_regression import Design, minimise
from toolkit.functional._standardise import standardise

# Accuracies on the held-out part do not move below this excess of the loss.
SELECTION_TOL = 1e-4


class LinearProbeResult(NamedTuple):
    """Softmax regression on standardised features; the leading L is there for a batch of layers.

    Attributes:
        weight: Weight on the standardised features, shape ([L,] C, d); 0 for constant features.
        bias: Bias, shape ([L,] C).
        mean: Mean of each train feature, shape ([L,] d).
        scale: Standard deviation of each train feature (population), shape ([L,] d); 1 for
            constant features, whose spread is below the rounding of their mean.
        converged: Whether ``gap`` reached the tolerance, bool, shape () or (L,).
        num_iter: Iterations of the final fit, int64, shape () or (L,).
        gap: Bound on how far the train objective is above its minimum, shape () or (L,); the
            gain left in the bias is added to second order.
        l2: Penalty used, float64, shape () or (L,).
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    scale: Tensor
    converged: Tensor
    num_iter: Tensor
    gap: Tensor
    l2: Tensor


def fit_linear_probe(
    features: Tensor,
    labels: Tensor,
    *,
    l2: float | Sequence[float] = 0.1,
    max_iter: int = 500,
    tol: float = 1e-6,
    validation_share: float = 0.2,
    generator: torch.Generator | None = None,
) -> LinearProbeResult:
    """Fit multinomial logistic regression on standardised features, each layer on its own.

    Minimises mean cross-entropy + l2/2 ||W||^2 with a free bias, as scikit-learn does after a
    StandardScaler with C = 1 / (N l2) (two classes: C = 2 / (N l2), as it fits one vector there).
    Works in the features' precision, one layer at a time: memory is that of one more layer.

    Args:
        features: Real tensor of shape (N, d), or (L, N, d) for L layers of the same rows.
        labels: Integers 0..C-1 of shape (N,), each class at least once.
        l2: Penalty, or several to choose from: each layer takes the penalty with the highest
            accuracy on a held-out part of the rows, the strongest of equals, and is then fitted on
            all.
        max_iter: Limit on the iterations of a fit; each costs two products with the features.
        tol: Allowed excess of the objective over its minimum, in nats.
        validation_share: Share of each class that is held out to choose ``l2``.
        generator: Draws the held-out rows; None is the same draw on every call.

    Raises:
        TypeError: If ``features`` or ``labels`` is no tensor.
        ValueError: If ``features`` is not finite and real, ``labels`` does not fit the above, there
            is only one class, no class has a second row to hold out, or an option is out of range.

    Example:
        >>> features = torch.tensor([[-2.0, 5.0], [-1.0, 5.0], [1.0, 5.0], [3.0, 5.0]])
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> probe = fit_linear_probe(features, labels)
        >>> float(probe_accuracy(probe, features, labels)), bool(probe.converged)
        (1.0, True)
    """
    rows = finite_real("features", features, dims=(2, 3))
    classes = train_classes(labels, rows)
    # The strongest first.
    penalties = sorted(positives("l2", l2), reverse=True)
    positive("tol", tol)
    integer_at_least("max_iter", max_iter, 1)
    inner_share("validation_share", validation_share)
    draws = source_of_draws(generator, anywhere=True)
    split = stratified_split(classes, validation_share, draws) if len(penalties) > 1 else None
    task = _Task(F.one_hot(classes).T.contiguous(), penalties, split, tol, max_iter)
    layers = rows.reshape(-1, *rows.shape[-2:])
    stacked = zip(*(_fit_layer(lift(layer), task) for layer in layers), strict=True)
    fields = (torch.stack(values) for values in stacked)
    return LinearProbeResult(*(field if rows.ndim == 3 else field[0] for field in fields))


def probe_accuracy(probe: LinearProbeResult, features: Tensor, labels: Tensor) -> Tensor:
    """Share of rows whose largest score is that of their label.

    Args:
        probe: From `fit_linear_probe`.
        features: Real tensor of shape (N, d) or (L, N, d), as the probe was fitted on.
        labels: Integers of shape (N,), classes of the probe.

    Returns:
        Accuracy, float64, shape () or (L,).

    Raises:
        TypeError: If ``features`` or ``labels`` is no tensor.
        ValueError: If ``features`` is not finite and real or has other layers or features than the
            probe, or ``labels`` does not fit the above.
    """
    instance("probe", probe, LinearProbeResult)
    rows = finite_real("features", features, dims=(probe.mean.ndim + 1,))
    expected = (*probe.mean.shape[:-1], rows.shape[-2], probe.mean.shape[-1])
    of_shape(
        "features",
        rows,
        expected,
        reason=" as in the probe",
        advice="take the layers that the probe was fitted on",
    )
    classes = integer_labels(labels, rows)
    num_classes = probe.bias.shape[-1]
    if not 0 <= int(classes.min()) <= int(classes.max()) < num_classes:
        raise ValueError(
            f"labels: expected classes 0..{num_classes - 1} of the probe, got {int(classes.min())}"
            f"..{int(classes.max())}; drop the rows of unknown classes"
        )
    weight = torch.cat([probe.weight, probe.bias[..., None]], -1)
    shares = [
        (_scores(lift(layer), *parts)[0].argmax(0) == classes).double().mean()
        for layer, *parts in zip(
            rows.reshape(-1, *rows.shape[-2:]),
            probe.mean.reshape(-1, rows.shape[-1]),
            probe.scale.reshape(-1, rows.shape[-1]),
            weight.reshape(-1, 1, *weight.shape[-2:]),
            strict=True,
        )
    ]
    return torch.stack(shares).reshape(rows.shape[:-2])


class _Task(NamedTuple):
    """Labels and options, common to all layers; the penalties are sorted, strongest first."""

    one_hot: Int64[Tensor, "c n"]
    penalties: list[float]
    split: Split | None
    tol: float
    max_iter: int


@full_precision
def _fit_layer(features: Float[Tensor, "n d"], task: _Task) -> LinearProbeResult:
    """One layer's probe, its penalty chosen first where there are several."""
    penalty = task.penalties[0]
    # A bias of log class shares is the optimum without features.
    start = features.new_zeros(1, len(task.one_hot), features.shape[1] + 1)
    start[..., -1] = task.one_hot.to(features).mean(1).log()
    if task.split is not None:
        penalty, start = _chosen(features, start, task, task.split)
    train = standardise(features)
    design = Design(train.design, task.one_hot.to(features))
    minimum = minimise(design, features.new_tensor([penalty]), start, task.tol, task.max_iter)
    weight = minimum.weight[0]
    return LinearProbeResult(
        weight=weight[:, :-1].masked_fill(train.constant, 0),
        bias=weight[:, -1],
        mean=train.mean,
        scale=train.scale,
        converged=minimum.gap[0] <= task.tol,
        num_iter=minimum.num_iter[0],
        gap=minimum.gap[0],
        l2=torch.tensor(penalty, dtype=torch.float64, device=features.device),
    )


def _chosen(
    features: Float[Tensor, "n d"], start: Float[Tensor, "1 c e"], task: _Task, split: Split
) -> tuple[float, Float[Tensor, "1 c e"]]:
    """The penalty with the highest held-out accuracy, and its weight to go on from."""
    train = standardise(features[split.train])
    minimum = minimise(
        Design(train.design, task.one_hot[:, split.train].to(features)),
        features.new_tensor(task.penalties),
        start.repeat(len(task.penalties), 1, 1),
        max(task.tol, SELECTION_TOL),
        task.max_iter,
    )
    scores = _scores(features[split.held_out], train.mean, train.scale, minimum.weight)
    hits = scores.argmax(1) == task.one_hot[:, split.held_out].argmax(0)
    num_hits = hits.sum(1).tolist()
    # The first of equals has the strongest penalty.
    best = num_hits.index(max(num_hits))
    return task.penalties[best], minimum.weight[best : best + 1]


@full_precision
def _scores(
    features: Float[Tensor, "n d"],
    mean: Float[Tensor, " d"],
    scale: Float[Tensor, " d"],
    weight: Float[Tensor, "k c e"],
) -> Float[Tensor, "k c n"]:
    """Class scores of each row; the weight's last column is the bias."""
    columns = (features.to(mean.dtype) - mean) / scale
    return weight[..., :-1] @ columns.T + weight[..., -1:]
