"""One vector per text from hidden states of every token."""

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from toolkit.functional._checks import dense_tensor, finite_float, of_shape, real_tensor
from toolkit.functional._scale import times_power


def last_token(hidden: Tensor, mask: Tensor) -> Tensor:
    """Hidden state of each text's last real token.

    The mask decides, never token ids: it is right for left and right padding and for a padding
    token that equals the end token.

    Args:
        hidden: Real tensor of shape (B, T, d), or (L, B, T, d) for L layers.
        mask: 1 or True at real tokens, 0 or False at padding, shape (B, T).

    Returns:
        Shape (B, d) or (L, B, d); half precision is lifted to float32, integers to float64.

    Raises:
        TypeError: If an argument is no tensor.
        ValueError: If a shape does not fit, ``mask`` holds anything but 0 and 1, a text has no
            real token, or a selected value is not finite.

    Example:
        >>> hidden = torch.tensor([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]])
        >>> last_token(hidden, torch.tensor([[1, 1, 0], [0, 1, 1]]))
        tensor([[2.],
                [6.]])
    """
    states, real = _checked(hidden, mask)
    return finite_float("hidden", _last_token(states, real), dims=(2, 3))


def masked_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean hidden state of each text's real tokens; values at padding have no effect.

    Args:
        hidden: Real tensor of shape (B, T, d), or (L, B, T, d) for L layers.
        mask: 1 or True at real tokens, 0 or False at padding, shape (B, T).

    Returns:
        Shape (B, d) or (L, B, d); half precision is lifted to float32, integers to float64.

    Raises:
        TypeError: If an argument is no tensor.
        ValueError: If a shape does not fit, ``mask`` holds anything but 0 and 1, a text has no
            real token, or a real token's value is not finite.

    Example:
        >>> hidden = torch.tensor([[[1.0], [2.0], [9.0]]])
        >>> masked_mean(hidden, torch.tensor([[True, True, False]]))
        tensor([[1.5000]])
    """
    states, real = _checked(hidden, mask)
    tokens = finite_float("hidden", states.where(real[..., None], 0), dims=(3, 4))
    return _masked_mean(tokens, real)


def _last_token(
    hidden: Real[Tensor, "*l b t d"], mask: Bool[Tensor, "b t"]
) -> Real[Tensor, "*l b d"]:
    positions = torch.arange(mask.shape[1], device=mask.device)
    last = positions.where(mask, -1).amax(1)
    texts = torch.arange(len(mask), device=mask.device)
    return hidden[..., texts, last, :]


def _masked_mean(
    tokens: Float[Tensor, "*l b t d"], mask: Bool[Tensor, "b t"]
) -> Float[Tensor, "*l b d"]:
    """Mean over real tokens of states that are 0 elsewhere."""
    num_tokens = tokens.shape[-2]
    largest = max(map(abs, map(float, torch.aminmax(tokens))))
    # Values near the dtype's limit have a mean, but no sum.
    fits = largest <= torch.finfo(tokens.dtype).max / num_tokens
    exponent = 0 if fits else num_tokens.bit_length()
    means = times_power(tokens, -exponent).sum(-2) / mask.sum(1)[:, None]
    return times_power(means, exponent)


def _checked(hidden: Tensor, mask: Tensor) -> tuple[Tensor, Bool[Tensor, "b t"]]:
    """Check shapes and mask, but no values, for padding may hold anything."""
    states = real_tensor("hidden", hidden, dims=(3, 4))
    mask = dense_tensor("mask", mask)
    if mask.dtype != torch.bool:
        mask = real_tensor("mask", mask)
    of_shape("mask", mask, states.shape[-3:-1], reason=" like hidden's texts and tokens")
    real = mask.to(states.device) != 0
    if not bool((real == mask).all()):
        raise ValueError("mask: expected 0 and 1 only, got other values; pass the attention mask")
    num_empty = int((~real.any(1)).sum())
    if num_empty:
        raise ValueError(
            f"mask: expected a real token in every text, got {num_empty} of {len(real)} without; "
            "drop empty texts"
        )
    return states, real
