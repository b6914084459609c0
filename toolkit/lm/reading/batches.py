"""Batches of texts: right-padded, and of equal length if the batch changes the vectors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

_Read = Callable[[Sequence[int]], Mapping[str, Tensor]]

# Relative to a vector's norm; well above the rounding error of another order of summation.
_TOLERANCE, _HALF_TOLERANCE = 1e-4, 0.05
_SEEN: WeakKeyDictionary[nn.Module, dict[tuple[int, int], bool]] = WeakKeyDictionary()
_SINGLE = torch.float32.itemsize
# Attributes besides buffers that `transformers` changes after the longest text so far.
_REMEMBERED = ("max_seq_len_cached", "attention_scaling")


def batch_indices(
    model: nn.Module, ids: Sequence[Sequence[int]], batch_size: int, read: _Read
) -> list[list[int]]:
    """Return the indices of the texts of each batch, longest texts first.

    This order needs little padding, and the first batch needs the most memory.

    Some position encodings (LongRoPE, dynamic NTK scaling) take their frequencies from the longest
    text of a batch. To detect them, the shortest text is read alone and together with the longest
    text, once for each model and pair of lengths. If its vectors differ, all texts of a batch have
    the same length.

    Args:
        model: The model that reads the texts.
        ids: Token ids of the texts.
        batch_size: Largest number of texts in a batch.
        read: Function from indices of texts to the vectors of these texts, by layer.
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
    """Return ids and mask of shape (B, T); only the mask marks the padding."""
    lengths = torch.tensor([len(tokens) for tokens in ids])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    padded = torch.zeros(mask.shape, dtype=torch.long)
    padded[mask] = torch.tensor([token for tokens in ids for token in tokens])
    return {"input_ids": padded.to(device), "attention_mask": mask.long().to(device)}


def num_positions(config: Any) -> int | None:  # noqa: ANN401 - any model's configuration
    """Return the largest number of tokens of a text, None if the configuration has no limit.

    Dynamic NTK scaling is meant for texts up to ``factor`` times as long as the training texts.
    """
    most: int | None = getattr(config, "max_position_embeddings", None)
    factors = [
        float(rope.get("factor", 1.0)) for rope in _ropes(config) if rope["rope_type"] == "dynamic"
    ]
    return most if most is None or not factors else int(most * min(factors))


def remembers_lengths(model: nn.Module) -> bool:
    """Whether the longest text so far changes the position encodings of later texts."""
    return any(rope["rope_type"] == "dynamic" for rope in _ropes(_text_config(model)))


@contextmanager
def positions_restored(model: nn.Module) -> Iterator[None]:
    """Restore the state of position encodings that depend on the longest text so far."""
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
        # A longer text creates new buffers; the old buffers keep their values.
        for module, remembered, tensors in zip(modules, attributes, buffers, strict=True):
            vars(module).update(remembered)
            for name, tensor in tensors.items():
                setattr(module, name, tensor)


def _depends_on_batch(
    model: nn.Module, ids: Sequence[Sequence[int]], read: _Read, longest: int, shortest: int
) -> bool:
    """Whether the vectors of the shortest text change in a batch with the longest text."""
    if len(ids[shortest]) == len(ids[longest]):
        return False
    if any(len(ids[longest]) > length for length in _lengths_of_change(model)):
        return True
    # The code of a model does not change during training: the result holds for all its steps.
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
    """Return the text lengths beyond which the position encodings of the batch change."""
    config = _text_config(model)
    most = getattr(config, "max_position_embeddings", None)
    trained = getattr(config, "original_max_position_embeddings", None)
    lengths: list[int | None] = []
    for rope in _ropes(config):
        if rope["rope_type"] == "dynamic":
            lengths.append(most)
        if rope["rope_type"] == "longrope":
            lengths.append(rope.get("original_max_position_embeddings", trained))
    return [length for length in lengths if length is not None]


def _text_config(model: nn.Module) -> Any:  # noqa: ANN401 - any model's configuration
    config: Any = model.config
    return config.get_text_config()


def _ropes(config: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401 - any model's configuration
    """Return the settings of the rotary encodings: one mapping, or one for each type of layer."""
    settings = getattr(config, "rope_parameters", None) or {}
    candidates = [settings, *settings.values()]
    return [rope for rope in candidates if isinstance(rope, Mapping) and "rope_type" in rope]
