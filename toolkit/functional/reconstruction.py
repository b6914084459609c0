"""Squared reconstruction error of the toy superposition autoencoder on sparse batches.

``h = W^T x``, ``y = relu(W h + b)``, loss ``sum_i (y_i - x_i)^2`` averaged over the samples
(arXiv 2505.10465, section 2). Hardly any cell of ``x`` is nonzero, so the fast step never forms
``x`` and never runs autograd: samples without an active cell share one row, the target enters at
the active cells only, and the gradient is a closed form.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import embedding_bag

from toolkit.functional._checks import (
    dense_tensor,
    instance,
    integer_at_least,
    integer_tensor,
)
from toolkit.functional._precision import full_precision

# Reading and writing the matrix of outputs once costs as much as this many multiply-adds per
# entry; the Gram route saves products but passes over the outputs more often.
_PASS_COST = 8.0


class CellLayoutResult(NamedTuple):
    """The active cells of a batch, grouped by sample and by feature; shared by all widths.

    Attributes:
        value: Values, cells sorted by sample, shape ``(T,)``.
        feature: Feature of each cell, shape ``(T,)``.
        row: Which of the R samples with an active cell it lies in, shape ``(T,)``.
        slot: Which of the F distinct features it belongs to, shape ``(T,)``.
        row_start: First cell of each of the R samples.
        features: The F distinct features.
        by_feature: The cells' rows, cells sorted by feature, shape ``(T,)``.
        value_by_feature: The cells' values in that order, shape ``(T,)``.
        feature_start: First cell of each of the F features in that order.
        num_rows: Samples in the batch, those without an active cell included.
    """

    value: Tensor
    feature: Tensor
    row: Tensor
    slot: Tensor
    row_start: Tensor
    features: Tensor
    by_feature: Tensor
    value_by_feature: Tensor
    feature_start: Tensor
    num_rows: int


def cell_layout(row: Tensor, feature: Tensor, value: Tensor, num_rows: int) -> CellLayoutResult:
    """Group the active cells of a batch once, for all widths that train on it.

    Args:
        row: Sample of each active cell, shape ``(T,)``, integers, non-decreasing.
        feature: Feature of each active cell, shape ``(T,)``, integers, in any order inside a
            sample; no cell twice.
        value: Value of each active cell, shape ``(T,)``.
        num_rows: Number of samples in the batch, at least 1.

    Raises:
        TypeError: If ``row``, ``feature`` or ``value`` is no tensor.
        ValueError: If the shapes or dtypes are others, the batch has no sample, or a cell lies
            outside it or out of order.
    """
    integer_at_least("num_rows", num_rows, 1)
    row, feature, value = _checked_cells(row, feature, value, num_rows)
    _, row_index, row_counts = torch.unique_consecutive(
        row, return_inverse=True, return_counts=True
    )
    sorted_feature, order = torch.sort(feature, stable=True)
    features, sorted_slot, feature_counts = torch.unique_consecutive(
        sorted_feature, return_inverse=True, return_counts=True
    )
    by_feature = row_index[order]
    # The sort is stable: cells of one feature are still in the order of their rows.
    if bool(((sorted_feature.diff() == 0) & (by_feature.diff() == 0)).any()):
        raise ValueError("row, feature: expected each cell once, got one twice; add their values")
    return CellLayoutResult(
        value=value,
        feature=feature,
        row=row_index,
        slot=torch.empty_like(sorted_slot).scatter_(0, order, sorted_slot),
        row_start=row_counts.cumsum(0) - row_counts,
        features=features,
        by_feature=by_feature,
        value_by_feature=value[order],
        feature_start=feature_counts.cumsum(0) - feature_counts,
        num_rows=num_rows,
    )


@full_precision
def reconstruction_loss(weight: Tensor, bias: Tensor, cells: CellLayoutResult) -> Tensor:
    """Return the loss on a sparse batch: summed over features, averaged over samples.

    Differentiable once in ``weight`` and ``bias``; the gradient is computed together with the
    loss. Equal to `dense_reconstruction_loss` on the same batch, up to rounding.

    Args:
        weight: W, shape ``(n, m)``, float32 or float64.
        bias: b, shape ``(n,)``, of the same dtype.
        cells: The batch, from `cell_layout`, values of the same dtype.

    Returns:
        A scalar, in squared units of x.

    Raises:
        TypeError: If ``weight`` or ``bias`` is no tensor, or ``cells`` no layout.
        ValueError: If shapes or dtypes do not fit together, or a cell's feature is beyond n.
    """
    _check_parameters(weight, bias)
    instance("cells", cells, CellLayoutResult)
    # Elsewhere reading a number would make the processor wait for the device.
    if weight.device.type == "cpu" and len(cells.features) and cells.features[-1] >= len(weight):
        raise ValueError(
            f"cells: expected features below {len(weight)}, the rows of weight, got "
            f"{int(cells.features[-1])}"
        )
    if cells.value.dtype != weight.dtype:
        raise ValueError(f"cells: expected values of {weight.dtype}, got {cells.value.dtype}")
    loss: Tensor = _SparseReconstruction.apply(weight, bias, cells)  # type: ignore[no-untyped-call]
    return loss


def dense_reconstruction_loss(weight: Tensor, bias: Tensor, inputs: Tensor) -> Tensor:
    """Return the same loss from the whole batch, by the definition; autograd differentiates it.

    Args:
        weight: W, shape ``(n, m)``.
        bias: b, shape ``(n,)``.
        inputs: x, shape ``(B, n)``.

    Returns:
        A scalar: squared error summed over features, averaged over the B samples.

    Raises:
        TypeError: If an argument is no tensor.
        ValueError: If shapes or dtypes do not fit together.
    """
    return (reconstruct(weight, bias, inputs) - inputs).square().sum(dim=1).mean()


@full_precision
def reconstruct(weight: Tensor, bias: Tensor, inputs: Tensor) -> Tensor:
    """Return ``relu(W W^T x + b)`` for each sample, shape ``(B, n)``.

    Args:
        weight: W, shape ``(n, m)``.
        bias: b, shape ``(n,)``.
        inputs: x, shape ``(B, n)``.

    Raises:
        TypeError: If an argument is no tensor.
        ValueError: If shapes or dtypes do not fit together.
    """
    _check_parameters(weight, bias)
    dense_tensor("inputs", inputs)
    if inputs.ndim != 2 or not len(inputs) or inputs.shape[1] != weight.shape[0]:
        raise ValueError(
            f"inputs: expected shape (B, {weight.shape[0]}), got {tuple(inputs.shape)}"
        )
    if inputs.dtype != weight.dtype:
        raise ValueError(f"inputs: expected {weight.dtype} like weight, got {inputs.dtype}")
    return torch.relu(inputs @ weight @ weight.T + bias)


def _checked_cells(
    row: Tensor, feature: Tensor, value: Tensor, num_rows: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Check everything but that no cell stands there twice."""
    row, feature = integer_tensor("row", row).long(), integer_tensor("feature", feature).long()
    value = dense_tensor("value", value)
    if not row.shape == feature.shape == value.shape:
        raise ValueError(
            "row, feature, value: expected equal one-dimensional shapes, got "
            f"{tuple(row.shape)}, {tuple(feature.shape)}, {tuple(value.shape)}"
        )
    if value.dtype not in {torch.float32, torch.float64}:
        raise ValueError(f"value: expected float32 or float64, got dtype {value.dtype}")
    _check_order(row)
    if len(row) and (row[0] < 0 or row[-1] >= num_rows):
        raise ValueError(
            f"row: expected samples from 0 to {num_rows - 1}, got {int(row[0])} to {int(row[-1])}"
        )
    if len(feature) and feature.min() < 0:
        raise ValueError(f"feature: expected features from 0 on, got {int(feature.min())}")
    return row, feature, value


def _check_order(row: Tensor) -> None:
    falls = row.diff() < 0
    if bool(falls.any()):
        first = int(falls.nonzero()[0])
        raise ValueError(
            f"row: expected non-decreasing samples, got {int(row[first])} before "
            f"{int(row[first + 1])}; sort the cells by row"
        )


def _check_parameters(weight: Tensor, bias: Tensor) -> None:
    dense_tensor("weight", weight)
    dense_tensor("bias", bias)
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise ValueError(
            "weight, bias: expected shapes (n, m) and (n,), got "
            f"{tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    if weight.dtype not in {torch.float32, torch.float64} or bias.dtype != weight.dtype:
        raise ValueError(
            "weight, bias: expected both float32 or both float64, got "
            f"{weight.dtype} and {bias.dtype}"
        )


class _SparseReconstruction(torch.autograd.Function):
    """Loss and its closed-form gradient in one pass."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, cells: CellLayoutResult) -> Tensor:  # noqa: ANN401
        wanted = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        loss, gradients = _loss_and_gradients(weight, bias, cells, with_gradients=wanted)
        if gradients is not None:
            ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401
        weight_gradient, bias_gradient = ctx.saved_tensors
        return weight_gradient * grad_output, bias_gradient * grad_output, None


def _loss_and_gradients(
    weight: Float[Tensor, "n m"],
    bias: Float[Tensor, " n"],
    cells: CellLayoutResult,
    *,
    with_gradients: bool,
) -> tuple[Float[Tensor, ""], tuple[Float[Tensor, "n m"], Float[Tensor, " n"]] | None]:
    num_empty = cells.num_rows - len(cells.row_start)
    at_rest = bias.relu()
    squared = num_empty * at_rest.dot(at_rest)
    bias_gradient = num_empty * at_rest
    weight_gradient = torch.zeros_like(weight)
    if len(cells.value):
        route = _Gram(weight, cells) if _prefers_gram(weight, cells) else _Direct(weight, cells)
        error = route.preactivations(bias).relu_()
        flat, active = error.view(-1), cells.row * len(weight) + cells.feature
        output = flat[active]
        residual = output - cells.value
        flat[active] = residual
        squared += flat.dot(flat)
        if with_gradients:
            # The relu passes nothing where the output is 0; elsewhere that holds by itself.
            flat[active] = torch.where(output > 0, residual, 0.0)
            bias_gradient += error.sum(dim=0)
            weight_gradient = route.weight_gradient(error)
    scale = 2 / cells.num_rows
    gradients = (weight_gradient.mul_(scale), bias_gradient.mul_(scale)) if with_gradients else None
    return squared / cells.num_rows, gradients


def _prefers_gram(weight: Tensor, cells: CellLayoutResult) -> bool:
    """Whether products over distinct features beat products over samples for this width."""
    num_rows, num_features = len(cells.row_start), len(cells.features)
    saved = (num_rows - num_features) * weight.shape[1]
    return bool(saved > _PASS_COST * num_rows)


class _Direct:
    """h per sample, then products of R rows."""

    def __init__(self, weight: Float[Tensor, "n m"], cells: CellLayoutResult) -> None:
        self.weight, self.cells = weight, cells
        self.hidden = embedding_bag(
            cells.feature, weight, cells.row_start, mode="sum", per_sample_weights=cells.value
        )

    def preactivations(self, bias: Float[Tensor, " n"]) -> Float[Tensor, "rows n"]:
        return torch.addmm(bias, self.hidden, self.weight.T)

    def weight_gradient(self, error: Float[Tensor, "rows n"]) -> Float[Tensor, "n m"]:
        # Products with the short side first: the other order is several times slower on a CPU.
        gradient = (self.hidden.T @ error).T.contiguous()
        hidden_gradient = (self.weight.T @ error.T).T.contiguous()
        return gradient.index_add_(
            0, self.cells.features, _to_features(hidden_gradient, self.cells)
        )


class _Gram:
    """Rows of W W^T for the features that occur, gathered per sample: products of F rows."""

    def __init__(self, weight: Float[Tensor, "n m"], cells: CellLayoutResult) -> None:
        self.weight, self.cells = weight, cells
        self.occurring = weight[cells.features]

    def preactivations(self, bias: Float[Tensor, " n"]) -> Float[Tensor, "rows n"]:
        cells = self.cells
        gram = self.occurring @ self.weight.T
        return embedding_bag(
            cells.slot, gram, cells.row_start, mode="sum", per_sample_weights=cells.value
        ).add_(bias)

    def weight_gradient(self, error: Float[Tensor, "rows n"]) -> Float[Tensor, "n m"]:
        gram_gradient = _to_features(error, self.cells)
        gradient = (self.occurring.T @ gram_gradient).T.contiguous()
        occurring_gradient = (self.weight.T @ gram_gradient.T).T
        return gradient.index_add_(0, self.cells.features, occurring_gradient)


def _to_features(
    per_row: Float[Tensor, "rows width"], cells: CellLayoutResult
) -> Float[Tensor, "slots width"]:
    """Sum ``value * per_row[row]`` over the cells of each distinct feature."""
    return embedding_bag(
        cells.by_feature,
        per_row,
        cells.feature_start,
        mode="sum",
        per_sample_weights=cells.value_by_feature,
    )
