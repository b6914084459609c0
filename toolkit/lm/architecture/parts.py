"""Parts of a language model, their matrices, and checks of their weights."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from toolkit.functional._checks import lift, one_of
from toolkit.lm.architecture.layers import FINAL, check_layers
from toolkit.lm.architecture.norm_gain import norm_gain

# Types of packed weights; positions and masks have other types.
_PACKED_DTYPES = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.float8_e4m3fn)


class LanguageModelParts(NamedTuple):
    """Modules of a language model, none of them copied.

    Attributes:
        embedding: Input embedding; its ``weight`` has shape (V, d).
        blocks: The L blocks that add to the residual stream, in order.
        final_norm: The norm after the last block, or None.
        unembedding: Output matrix; its ``weight`` has shape (V, d).
        project_out: The projection between final norm and unembedding (some OPT models), or None.
        body: Module that runs embedding and blocks. In a known family it excludes the unembedding;
            otherwise it is the whole model.
        knows_final_norm: Whether a ``final_norm`` of None means that the model has none, as in a
            known family. False if it may have an unknown one.
    """

    embedding: nn.Module
    blocks: nn.ModuleList | nn.Sequential
    final_norm: nn.Module | None
    unembedding: nn.Module
    project_out: nn.Module | None
    body: nn.Module
    knows_final_norm: bool = True


def check_weights(model: nn.Module) -> None:
    """Raise a ValueError if the model's weights are not plain numbers in this process's memory.

    Args:
        model: Any module.

    Raises:
        ValueError: If weights are on the meta device, quantised, or sharded over processes.
    """
    for name, parameter in model.named_parameters():
        _check_plain(f"model: {name}", parameter)
    # The flag stays set after transformers has dequantised the weights, as for GGUF files.
    if getattr(model, "is_quantized", False) and _holds_packed_weights(model):
        raise ValueError(
            "model: expected floating-point weights, got a quantised model; load it unquantised"
        )


def _holds_packed_weights(model: nn.Module) -> bool:
    """Whether weights are stored in buffers of small integers, or in a special tensor type."""
    packed = any(b.ndim > 1 and b.dtype in _PACKED_DTYPES for b in model.buffers())
    return packed or any(type(p.data) is not Tensor for p in model.parameters())


def embedding_matrix(parts: LanguageModelParts, matrix: Literal["input", "output"]) -> Tensor:
    """Return the stored embedding matrix, shape (V, d), detached and not copied.

    Args:
        parts: The model's parts.
        matrix: ``input`` for the embedding, ``output`` for the unembedding.

    Raises:
        ValueError: If ``matrix`` has another value, or its weights are quantised, adapted, sharded
            or on the meta device.
    """
    one_of("matrix", matrix, "input", "output")
    return _plain_matrix(matrix, parts.embedding if matrix == "input" else parts.unembedding)


def is_tied(parts: LanguageModelParts) -> bool:
    """Return whether input and output embedding are one matrix in memory."""
    written, read = parts.embedding.weight, parts.unembedding.weight
    return written is read or (
        isinstance(written, Tensor)
        and isinstance(read, Tensor)
        and written.shape == read.shape
        and not written.is_meta
        and written.data_ptr() == read.data_ptr()
    )


def readout_matrix(parts: LanguageModelParts, layer: str, *, fold_norm: bool = False) -> Tensor:
    """Return the matrix that maps the hidden states of a layer to logits.

    For ``final`` it is the unembedding W_U. For other layers it is W_U P_out, with the projection
    P_out between final norm and unembedding, or W_U if there is no projection.

    Args:
        parts: The model's parts.
        layer: A layer's name, ``layer_00`` and so on or ``final``.
        fold_norm: Multiply by the final norm's gain, as it acts on the residual stream. ``final``
            follows the norm and contains the gain already, so its matrix stays W_U.

    Returns:
        Shape (V, d), detached: the stored matrix itself if nothing is multiplied, otherwise a new
        matrix, in float32 if the weights are of half precision.

    Raises:
        ValueError: If the layer does not exist, or the weights cannot be read; with ``fold_norm``
            also if the gain cannot be measured or it is unknown whether there is a final norm.
    """
    check_layers([layer], len(parts.blocks), argument="layer")
    matrix = embedding_matrix(parts, "output")
    if layer == FINAL:
        return matrix
    if parts.project_out is not None:
        matrix = lift(matrix) @ lift(_plain_matrix("project_out", parts.project_out))
    gain = final_gain(parts) if fold_norm else None
    if gain is None:
        return matrix
    matrix = lift(matrix)
    return matrix * gain.to(matrix.device, matrix.dtype)


def final_gain(parts: LanguageModelParts) -> Tensor | None:
    """Return the gain of the final norm on the residual stream, None without a final norm.

    Args:
        parts: The model's parts.

    Returns:
        Shape (d,), float64, on the CPU; d is the width of the residual stream.

    Raises:
        ValueError: If it is unknown whether there is a final norm, or its gain cannot be
            measured (`toolkit.lm.architecture.norm_gain.norm_gain`).
    """
    norm = parts.final_norm
    if norm is None and not parts.knows_final_norm:
        raise ValueError(
            "fold_norm: expected the final norm of a family that is not in the table, got none; "
            "name it, such as paths={'final_norm': 'transformer.ln_f'}, or leave fold_norm out"
        )
    if norm is None or isinstance(norm, nn.Identity):
        return None
    for name, parameter in norm.named_parameters():
        _check_plain(f"final_norm.{name}", parameter)
    reader = _plain_matrix("output", parts.project_out or parts.unembedding)
    return norm_gain(norm, reader.shape[1])


def _plain_matrix(name: str, module: nn.Module) -> Tensor:
    """Return a module's two-dimensional floating-point ``weight``, detached and not copied."""
    weight: Tensor | None = getattr(module, "weight", None)
    if weight is None:
        raise ValueError(
            f"{name}: expected a module with a weight, got {type(module).__name__}, which stores "
            "it in another form; load the model unquantised"
        )
    _check_plain(name, weight)
    # Attributes of PEFT: with an unmerged adapter, the weight is only the base matrix.
    if getattr(module, "active_adapters", None) and not getattr(module, "merged", True):
        raise ValueError(
            f"{name}: expected a plain matrix, got a matrix with an adapter on it; merge it first"
        )
    if weight.ndim != 2:
        raise ValueError(f"{name}: expected a matrix as weight, got shape {tuple(weight.shape)}")
    return weight.detach()


def _check_plain(name: str, weight: Tensor) -> None:
    if weight.is_meta:
        raise ValueError(f"{name}: expected values, got the meta device; load the weights first")
    # DTensor has a mesh, DeepSpeed ZeRO-3 an id; both lack the values of other processes.
    if hasattr(weight, "device_mesh") or hasattr(weight, "ds_id") or weight.numel() == 0:
        raise ValueError(
            f"{name}: expected the whole tensor, got a sharded one; measure an unsharded copy"
        )
    if not weight.is_floating_point() or weight.dtype.itemsize < torch.float16.itemsize:
        raise ValueError(
            f"{name}: expected float16, bfloat16, float32 or float64, got {weight.dtype}; "
            "load the model unquantised"
        )
