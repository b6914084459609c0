"""Pooling by masks."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from toolkit.functional import last_token, masked_mean

Pool = Callable[[Tensor, Tensor], Tensor]
FUNCTIONS: list[Pool] = [last_token, masked_mean]

# Three texts of 2, 4 and 1 tokens.
RIGHT = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])


def states(mask: Tensor, *, padding: float = 99.0) -> Tensor:
    """States that count each text's real tokens 1, 2, ... in every dimension."""
    count = mask.cumsum(1).float().where(mask.bool(), padding)
    return count[..., None] * torch.tensor([1.0, -2.0])


@pytest.mark.parametrize("mask", [RIGHT, RIGHT.flip(1)], ids=["right", "left"])
@pytest.mark.parametrize("padding", [0.0, 99.0, math.nan, math.inf])
def test_padding_never_matters(mask: Tensor, padding: float) -> None:
    hidden = states(mask, padding=padding)
    scale = torch.tensor([1.0, -2.0])
    assert torch.equal(last_token(hidden, mask), torch.tensor([[2.0], [4.0], [1.0]]) * scale)
    assert torch.equal(masked_mean(hidden, mask), torch.tensor([[1.5], [2.5], [1.0]]) * scale)


def test_masks_decide_where_the_padding_token_ends_texts() -> None:
    # The text itself ends in token 0, which also pads it.
    ids = torch.tensor([[5, 7, 0, 0, 0]])
    hidden = torch.arange(5.0).reshape(1, 5, 1)
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    assert ids[0, 2] == ids[0, 3]
    assert last_token(hidden, mask).item() == 2
    assert masked_mean(hidden, mask).item() == 1


def test_masks_may_have_holes() -> None:
    hidden = torch.arange(5.0).reshape(1, 5, 1)
    mask = torch.tensor([[True, False, False, True, False]])
    assert last_token(hidden, mask).item() == 3
    assert masked_mean(hidden, mask).item() == 1.5


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32], ids=str)
def test_masks_of_any_dtype(function: Pool, dtype: torch.dtype) -> None:
    hidden = states(RIGHT)
    assert torch.equal(function(hidden, RIGHT.to(dtype)), function(hidden, RIGHT))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_layers_are_pooled_alike(function: Pool, generator: torch.Generator) -> None:
    layers = torch.randn(5, 3, 4, 6, generator=generator)
    expected = torch.stack([function(layer, RIGHT) for layer in layers])
    assert torch.equal(function(layers, RIGHT), expected)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("dtype", "lifted"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float64, torch.float64),
        (torch.int32, torch.float64),
    ],
    ids=str,
)
def test_dtypes_are_lifted_and_left_alone(
    function: Pool, dtype: torch.dtype, lifted: torch.dtype, generator: torch.Generator
) -> None:
    hidden = (10 * torch.randn(3, 4, 6, generator=generator)).to(dtype)
    before = hidden.clone()
    pooled = function(hidden, RIGHT)
    assert pooled.dtype == lifted
    assert torch.equal(pooled, function(hidden.to(lifted), RIGHT))
    assert torch.equal(hidden, before)


def test_half_precision_means_do_not_overflow() -> None:
    hidden = torch.full((1, 100, 2), 6e4, dtype=torch.float16)
    assert masked_mean(hidden, torch.ones(1, 100)).tolist() == [[6e4, 6e4]]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("hidden", "mask", "message"),
    [
        (torch.ones(2, 4), RIGHT, "hidden: expected 3 or 4 dimensions"),
        (torch.ones(3, 5, 2), RIGHT, r"mask: expected shape \(3, 5\) .* got \(3, 4\)"),
        (torch.ones(3, 4, 2), RIGHT - 1, "mask: expected 0 and 1 only"),
        (torch.ones(3, 4, 2), RIGHT * torch.nan, "mask: expected 0 and 1 only"),
        (
            torch.ones(2, 2, 2),
            torch.tensor([[1, 1], [0, 0]]),
            "mask: expected a real token in every text, got 1 of 2 without",
        ),
        (torch.full((3, 4, 2), math.inf), RIGHT, "hidden: expected finite values, got"),
    ],
    ids=["matrix", "shape", "additive", "nan_mask", "empty_text", "infinite"],
)
def test_bad_input_is_refused(function: Pool, hidden: Tensor, mask: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(hidden, mask)
