"""Softmax regression with an L2 penalty: several penalties at once, certified convergence.

L-BFGS on closed-form gradients. The cost is two products with the design per iteration, for
any step length: logits are linear in the weight, so a line search only adds known logits.
Classes come first in every array, because (c, d) @ (d, n) and (c, n) @ (n, d) are the fast
orientations of these thin products.

A special solver, because general solvers take longer. With 4000 rows like hidden states, 4 classes,
l2 from 1/4000 to 0.1, one thread and the same excess of the objective (1e-6), `torch.optim.LBFGS`
takes 3.2 to 3.8 times as long at d = 256, 3.1 to 3.8 at 1024 and 3.8 to 4.5 at 2048; scikit-learn's
LogisticRegression 2.8 to 4.3, 4.5 to 5.6 and 5.3 to 10 times (`benchmarks/probe.py`). The
preconditioner, a sketch of the features' covariance, leaves a quarter to a third of the iterations.
"""

from collections import deque
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

# Measured: more pairs, a larger sketch, more of its rows or other weights of the complement cost
# at least as much time as they save.
NUM_PAIRS, SKETCH_RANK, SKETCH_ROWS, COMPLEMENT_WEIGHT = 6, 64, 1000, 3.0
SLOPE_RATIO, MAX_TRIALS = 0.3, 20
# Keeps divisions finite where every row is certain.
MIN_CURVATURE = 1e-6


class Design(NamedTuple):
    """Data of the regressions, common to all penalties.

    Attributes:
        features: Rows of the regression, one more column of ones for the bias.
        one_hot: 1 where the row has the class.
    """

    features: Float[Tensor, "n d"]
    one_hot: Float[Tensor, "c n"]


class Minimum(NamedTuple):
    """Result of each regression.

    Attributes:
        weight: Weight of each class, the last column is the bias.
        gap: Bound on the objective's excess over its minimum.
        num_iter: Iterations used.
    """

    weight: Float[Tensor, "k c d"]
    gap: Float[Tensor, " k"]
    num_iter: Int64[Tensor, " k"]


class _State(NamedTuple):
    """One regression per leading index; the penalty of the bias is 0."""

    penalty: Float[Tensor, "k 1 d"]
    weight: Float[Tensor, "k c d"]
    logits: Float[Tensor, "k c n"]
    probabilities: Float[Tensor, "k c n"]
    gradient: Float[Tensor, "k c d"]


class _Pair(NamedTuple):
    """A step, the change of the gradient along it, and 1 / (step . change), or 0 to ignore it."""

    step: Float[Tensor, "k c d"]
    change: Float[Tensor, "k c d"]
    inverse: Float[Tensor, "k 1 1"]


class _Curvature(NamedTuple):
    """Eigenpairs of the loss's mean Hessian in the class scores."""

    axes: Float[Tensor, "k c c"]
    scales: Float[Tensor, "k c 1"]


class _Sketch(NamedTuple):
    """Leading eigenvectors and eigenvalues of the features' covariance; one value for the rest."""

    basis: Float[Tensor, "d r"]
    variances: Float[Tensor, " r"]
    complement: Float[Tensor, " d"]


def minimise(
    design: Design,
    l2: Float[Tensor, " k"],
    start: Float[Tensor, "k c d"],
    tol: float,
    max_iter: int,
) -> Minimum:
    """Minimise mean cross-entropy + l2/2 ||W||^2 for each ``l2``, the bias being free.

    A regression stops when its gap is at most ``tol``. With the bias at its optimum the objective
    is l2-strongly convex in W, hence a gap of ||gradient||^2 / (2 l2). The gain that is left in
    the bias is added to second order.
    """
    sketch = _covariance_sketch(design.features)
    state = _first_state(design, l2, start)
    minimum = Minimum(start.clone(), torch.full_like(l2, torch.inf), torch.zeros_like(l2).long())
    running = torch.arange(len(l2), device=l2.device)
    pairs: deque[_Pair] = deque(maxlen=NUM_PAIRS)
    for num_iter in range(max_iter + 1):
        curvature = _class_curvature(state.probabilities)
        gap = _gap(state, curvature)
        # Below the rounding of the gradient, a later iterate may be worse.
        better = gap < minimum.gap[running]
        minimum.weight[running[better]] = state.weight[better]
        minimum.gap[running[better]] = gap[better]
        minimum.num_iter[running] = num_iter
        unfinished = gap > tol
        if num_iter == max_iter or not unfinished.any():
            break
        if not unfinished.all():
            running = running[unfinished]
            curvature = _Curvature(*(value[unfinished] for value in curvature))
            state = _State(*(value[unfinished] for value in state))
            pairs = deque((_Pair(*(v[unfinished] for v in p)) for p in pairs), NUM_PAIRS)
        direction = _quasi_newton_direction(state, pairs, sketch, curvature)
        state, pair = _advance(design, state, direction)
        pairs.append(pair)
    return minimum


def _first_state(design: Design, l2: Float[Tensor, " k"], start: Float[Tensor, "k c d"]) -> _State:
    """The state at the weight ``start``."""
    penalty = l2[:, None, None].repeat(1, 1, start.shape[-1])
    penalty[..., -1] = 0
    logits = _logits(design, start)
    probabilities = logits.softmax(1)
    gradient = _gradient(design, probabilities, penalty * start)
    return _State(penalty, start, logits, probabilities, gradient)


def _logits(design: Design, weight: Float[Tensor, "k c d"]) -> Float[Tensor, "k c n"]:
    """Class scores of every row."""
    return (weight.flatten(0, 1) @ design.features.T).view(*weight.shape[:2], -1)


def _gradient(
    design: Design, probabilities: Float[Tensor, "k c n"], penalised: Float[Tensor, "k c d"]
) -> Float[Tensor, "k c d"]:
    """Gradient of the objective; ``penalised`` is penalty times weight."""
    residual = (probabilities - design.one_hot).flatten(0, 1)
    fit = (residual @ design.features).div_(len(design.features))
    return fit.view_as(penalised).add_(penalised)


def _class_curvature(probabilities: Float[Tensor, "k c n"]) -> _Curvature:
    """Eigenpairs of the mean of diag(p) - p p^T."""
    num_classes, num_rows = probabilities.shape[1:]
    mean = probabilities.mean(2)
    hessian = torch.diag_embed(mean) - probabilities @ probabilities.mT / num_rows
    # A constant added to all scores of a row changes nothing; with a curvature of 0, rounding
    # would move the biases along it. Its curvature is set to the mean of the others.
    hessian += hessian.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] / (num_classes - 1)
    scales, axes = torch.linalg.eigh(hessian)
    return _Curvature(axes, scales.clamp_(min=MIN_CURVATURE)[..., None])


def _gap(state: _State, curvature: _Curvature) -> Float[Tensor, " k"]:
    """Squared gradient over twice the convexity, which is the penalty, or the bias's curvature."""
    convexity = torch.where(state.penalty > 0, state.penalty, curvature.scales)
    return ((curvature.axes.mT @ state.gradient).square() / (2 * convexity)).sum((1, 2))


def _covariance_sketch(features: Float[Tensor, "n d"]) -> _Sketch:
    """Leading eigenpairs of the covariance by one randomised power step (arXiv 0909.4061).

    It only preconditions: an inaccurate sketch costs iterations, never accuracy.
    """
    num_rows, width = features.shape
    rows = features[:: max(num_rows // SKETCH_ROWS, 1)]
    rank = min(SKETCH_RANK, width - 1, len(rows))
    probes = torch.randn(
        rank, width, generator=torch.Generator().manual_seed(0), dtype=torch.float32
    )
    probes = (probes.to(rows) @ rows.T) @ rows
    # The bias column has no covariance with centred features.
    probes[:, -1] = 0
    basis = torch.linalg.qr(probes.T).Q
    projected = basis.T.contiguous() @ rows.T
    variances, rotation = torch.linalg.eigh((projected @ projected.T).double() / len(rows))
    variances = variances.clamp_(min=0).to(rows)
    # Class means lie along leading directions, where fitted classes leave the least curvature:
    # next to them the rest weighs more than its variance. Variances are 1 on average.
    complement = torch.full_like(rows[0], max(COMPLEMENT_WEIGHT * float(variances[0]), 0.01))
    complement[-1] = 1
    return _Sketch(basis @ rotation.to(rows), variances, complement)


def _precondition(
    sketch: _Sketch,
    vector: Float[Tensor, "k c d"],
    penalty: Float[Tensor, "k 1 d"],
    curvature: _Curvature,
) -> Float[Tensor, "k c d"]:
    """Multiply by the inverse of curvature (Kronecker) covariance + penalty."""
    vector = curvature.axes.mT @ vector
    rest = 1 / (curvature.scales * sketch.complement + penalty)
    leading = 1 / (curvature.scales * sketch.variances + penalty[..., :1]) - rest[..., :1]
    return curvature.axes @ (rest * vector + ((vector @ sketch.basis) * leading) @ sketch.basis.T)


def _dot(a: Float[Tensor, "k c d"], b: Float[Tensor, "k c d"]) -> Float[Tensor, "k 1 1"]:
    """Inner product of each regression."""
    return (a * b).sum((1, 2), keepdim=True)


def _quasi_newton_direction(
    state: _State, pairs: deque[_Pair], sketch: _Sketch, curvature: _Curvature
) -> Float[Tensor, "k c d"]:
    """Two-loop recursion of L-BFGS (Nocedal and Wright, algorithm 7.4), preconditioned."""
    vector, weights = -state.gradient, []
    for pair in reversed(pairs):
        weights.append(pair.inverse * _dot(pair.step, vector))
        vector = vector.addcmul(weights[-1], pair.change, value=-1)
    vector = _precondition(sketch, vector, state.penalty, curvature)
    if pairs:
        last = pairs[-1]
        change = _precondition(sketch, last.change, state.penalty, curvature)
        scale = 1 / (last.inverse * _dot(last.change, change))
        vector = torch.where(last.inverse > 0, scale * vector, vector)
    for pair in pairs:
        weight = weights.pop() - pair.inverse * _dot(pair.change, vector)
        vector = vector.addcmul(weight, pair.step)
    return vector


def _advance(
    design: Design, state: _State, direction: Float[Tensor, "k c d"]
) -> tuple[_State, _Pair]:
    """Step along ``direction``, to where the slope has fallen to a fraction of its start."""
    logits = _logits(design, direction)
    length, probabilities = _line_search(design, state, direction, logits)
    step = length * direction
    weight = state.weight + step
    gradient = _gradient(design, probabilities, state.penalty * weight)
    change = gradient - state.gradient
    product = _dot(step, change)
    pair = _Pair(step, change, torch.where(product > 0, 1 / product, 0))
    logits = state.logits + length * logits
    return _State(state.penalty, weight, logits, probabilities, gradient), pair


def _line_search(
    design: Design,
    state: _State,
    direction: Float[Tensor, "k c d"],
    change: Float[Tensor, "k c n"],
) -> tuple[Float[Tensor, "k 1 1"], Float[Tensor, "k c n"]]:
    """Step lengths by Newton's method on the convex slope, bracketed, and the probabilities there.

    ``change`` holds the logits of ``direction``.
    """
    num_rows = len(design.features)
    goal = SLOPE_RATIO * _dot(state.gradient, direction).abs()
    penalised = state.penalty * direction
    offset, growth = _dot(penalised, state.weight), _dot(penalised, direction)
    length = torch.ones_like(goal)
    low, high = torch.zeros_like(goal), torch.full_like(goal, torch.inf)
    for trial in range(MAX_TRIALS):
        probabilities = (state.logits + length * change).softmax(1)
        fit = _dot(probabilities - design.one_hot, change)
        slope = fit / num_rows + offset + length * growth
        missed = slope.abs() > goal
        if trial == MAX_TRIALS - 1 or not missed.any():
            break
        moved = probabilities * change
        spread = _dot(moved, change) - moved.sum(1, keepdim=True).square().sum(2, keepdim=True)
        low = torch.where(slope < 0, length, low)
        high = torch.where(slope < 0, high, length)
        newton = length - slope / (spread / num_rows + growth)
        middle = torch.where(high.isinf(), 2 * length, (low + high) / 2)
        inside = (low < newton) & (newton < high)
        length = torch.where(missed, torch.where(inside, newton, middle), length)
    return length, probabilities
