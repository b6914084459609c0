"""Gain of the final norm in each dimension, measured by a run of the norm."""

import copy

import torch
from torch import Tensor, nn

# Large enough to make the norm's epsilon negligible, and within the range of float16.
_SIZES = (1024.0, 320.0)
_TOLERANCE = 1e-3
_REFUSED = (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)


def norm_gain(norm: nn.Module, dim: int) -> Tensor:
    """Return the gain g of a norm x -> g * n(x) + b, where n(x) is x at root mean square 1.

    A module may store g, g - 1 or nothing, so that g is measured instead. The norm runs on two
    inputs of mean zero, for which LayerNorm and RMSNorm agree, and on the negatives of both: b
    cancels in the difference of the outputs.

    Args:
        norm: The norm; a copy of it runs on the CPU in float64.
        dim: Width d of the input of the norm.

    Returns:
        Shape (d,), float64.

    Raises:
        ValueError: If the module does not run on vectors of this width, or is not such a norm: its
            gain depends on the input.
    """
    inputs = _inputs(dim)
    try:
        outputs = _outputs(norm, inputs)
    except _REFUSED as error:
        raise _unmeasured(norm, f"cannot be run on vectors of width {dim}") from error
    if not isinstance(outputs, Tensor) or outputs.shape != (1, 4, dim):
        raise _unmeasured(norm, f"does not return vectors of width {dim}")
    upper, lower = outputs[0, ::2].double(), outputs[0, 1::2].double()
    plain = inputs[0, ::2]
    plain = plain / plain.square().mean(1, keepdim=True).sqrt()
    gains = (upper - lower) / (2 * plain)
    first, second = gains[0], gains[1]
    scale = first.nan_to_num(0.0, 0.0, 0.0).abs().amax()
    if not torch.allclose(
        first, second, rtol=_TOLERANCE, atol=_TOLERANCE * float(scale), equal_nan=True
    ):
        raise _unmeasured(norm, "multiplies different inputs by different numbers")
    return first


def _inputs(dim: int) -> Tensor:
    """Return two vectors of mean zero without zero entries, each followed by its negative."""
    order = torch.arange(dim, dtype=torch.float64, device="cpu")
    signs = 1 - 2 * (order % 2)
    vectors = torch.stack([_SIZES[0] * signs, _SIZES[1] * signs * (1 + (order % 7) / 7)])
    vectors -= vectors.mean(1, keepdim=True)
    return torch.stack([vectors, -vectors], 1).reshape(1, 4, dim)


def _outputs(norm: nn.Module, inputs: Tensor) -> object:
    # A copy in float64, because half precision would round the gain. `forward` skips the hooks,
    # which are meant for passes of the model.
    copied = copy.deepcopy(norm).to("cpu", torch.float64).eval()
    with (
        torch.compiler.set_stance("force_eager"),
        torch.autocast("cpu", enabled=False),
        torch.inference_mode(mode=False),
        torch.no_grad(),
    ):
        return copied.forward(inputs)


def _unmeasured(norm: nn.Module, why: str) -> ValueError:
    return ValueError(
        "fold_norm: expected a final norm that multiplies each dimension by its gain, got "
        f"{type(norm).__name__}, which {why}; leave fold_norm out"
    )
