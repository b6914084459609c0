"""Texts in batches: right-padded, and of one length where a batch changes what a text becomes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

_Read = Callable[[Sequence[int]], Mapping[str, Tensor]]

# Relative to a vector's norm: well above what another order of the same sums changes.
_TOLERANCE, _HALF_TOLERANCE = 1e-4, 0.05
_SEEN: WeakKeyDictionary[nn.Module, dict[tuple[int, int], bool]] = WeakKeyDictionary()
_SINGLE = torch.float32.itemsize
# What `transformers` keeps of the longest text, beside buffers.
_REMEMBERED = ("max_seq_len_cached", "attention_scaling")


def divided(
    model: nn.Module, ids: Sequence[Sequence[int]], batch_size: int, read: _Read
) -> list[list[int]]:
    """Return indices of texts in batches, longest first: little padding, memory's peak at once.

    Some position encodings (LongRoPE, dynamic NTK scaling) take their frequencies from the longest
    text of a batch. This is found by reading the shortest text alone and beside the longest one,
    once for each model and pair of lengths; the texts of a batch then have one length.

    Args:
        model: The model that reads them.
        ids: Token ids of the texts.
        batch_size: Largest number of texts in a batch.
        read: Returns the vectors of the texts with these indices, by layer.
    """
    order = sorted(range(len(ids)), key=lambda index: -len(ids[index]))
    groups = [order]
    if _depends_on_batch(model, ids, read, order[0], order[-1]):
        groups = [list(group) for _, group in groupby(order, key=lambda index: len(ids[index]))]
    return [
        group[start : start + batch_size]
        for group in groups
        for start in range(0, len(group), batch_size)
    ]


def right_padded(ids: Sequence[Sequence[int]], device: torch.device) -> dict[str, Tensor]:
    """Return ids and mask of shape (B, T); the mask alone says what is padding."""
    lengths = torch.tensor([len(one) for one in ids])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    padded = torch.zeros(mask.shape, dtype=torch.long)
    padded[mask] = torch.tensor([token for one in ids for token in one])
    return {"input_ids": padded.to(device), "attention_mask": mask.long().to(device)}


def num_positions(config: Any) -> int | None:  # noqa: ANN401 - any model's configuration
    """Return how many tokens a model can read, None where its configuration sets no limit.

    Dynamic NTK scaling is meant for texts up to ``factor`` times as long as those of training.
    """
    most: int | None = getattr(config, "max_position_embeddings", None)
    factors = [
        float(rope.get("factor", 1.0)) for rope in _ropes(config) if rope["rope_type"] == "dynamic"
    ]
    return most if most is None or not factors else int(most * min(factors))


def remembers_lengths(model: nn.Module) -> bool:
    """Whether the longest text so far decides how the model encodes the positions of later ones."""
    return any(rope["rope_type"] == "dynamic" for rope in _ropes(_text_config(model)))


@contextmanager
def positions_restored(model: nn.Module) -> Iterator[None]:
    """Give position encodings that remember the longest text their state back."""
    modules = [m for m in model.modules() if hasattr(m, "max_seq_len_cached")]
    modules = modules if remembers_lengths(model) else []
    attributes = [
        {name: value for name, value in vars(module).items() if name.endswith(_REMEMBERED)}
        for module in modules
    ]
    buffers = [dict(module.named_buffers(recurse=False)) for module in modules]
    try:
        yield
    finally:
        # A longer text gets new buffers; the values of the old ones stay as they are.
        for module, remembered, tensors in zip(modules, attributes, buffers, strict=True):
            vars(module).update(remembered)
            for name, tensor in tensors.items():
                setattr(module, name, tensor)


def _depends_on_batch(
    model: nn.Module, ids: Sequence[Sequence[int]], read: _Read, longest: int, shortest: int
) -> bool:
    """Whether the shortest text's vectors are others beside the longest text."""
    if len(ids[shortest]) == len(ids[longest]):
        return False
    if any(len(ids[longest]) > length for length in _lengths_of_change(model)):
        return True
    # Whatever else its code does with a batch is the same at every step of its training.
    seen = _SEEN.setdefault(model, {})
    lengths = len(ids[shortest]), len(ids[longest])
    if lengths not in seen:
        seen[lengths] = _differs(model, read([shortest]), read([longest, shortest]))
    return seen[lengths]


def _differs(model: nn.Module, alone: Mapping[str, Tensor], together: Mapping[str, Tensor]) -> bool:
    half = any(p.is_floating_point() and p.dtype.itemsize < _SINGLE for p in model.parameters())
    tolerance = _HALF_TOLERANCE if half else _TOLERANCE
    return any(
        bool((alone[layer][0] - together[layer][1]).norm() > tolerance * alone[layer][0].norm())
        for layer in alone
    )


def _lengths_of_change(model: nn.Module) -> list[int]:
    """The lengths beyond which the model's encoding of positions changes for a whole batch."""
    config = _text_config(model)
    most = getattr(config, "max_position_embeddings", None)
    trained = getattr(config, "original_max_position_embeddings", None)
    found: list[int | None] = []
    for rope in _ropes(config):
        if rope["rope_type"] == "dynamic":
            found.append(most)
        if rope["rope_type"] == "longrope":
            found.append(rope.get("original_max_position_embeddings", trained))
    return [length for length in found if length is not None]


def _text_config(model: nn.Module) -> Any:  # noqa: ANN401 - any model's configuration
    config: Any = model.config
    return config.get_text_config()


def _ropes(config: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401 - any model's configuration
    """The settings of a model's rotary encodings: one, or one for each type of layer."""
    settings = getattr(config, "rope_parameters", None) or {}
    several = [settings, *settings.values()]
    return [one for one in several if isinstance(one, Mapping) and "rope_type" in one]
