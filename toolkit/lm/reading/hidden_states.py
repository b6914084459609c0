"""Hidden states of a language model, pooled to one vector per text and layer."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from toolkit.console.bar import with_progress
from toolkit.functional._checks import (
    at_most,
    flag,
    instance,
    integer_at_least,
    lift,
    one_of,
    optional,
    strings,
    text_mapping,
)
from toolkit.functional.pooling import _last_token, _masked_mean
from toolkit.interruption import interruption
from toolkit.lm.architecture.families import language_model_parts
from toolkit.lm.architecture.layers import check_layers, layer_names
from toolkit.lm.architecture.parts import LanguageModelParts, check_weights
from toolkit.lm.architecture.search import find_language_model
from toolkit.lm.reading.batches import (
    batch_indices,
    num_positions,
    positions_restored,
    remembers_lengths,
    right_padded,
)
from toolkit.lm.reading.capture import captured_layers, reading_mode, run_body
from toolkit.lm.reading.token_losses import LossMeter, is_meter
from toolkit.lm.reading.tokenizers import token_ids

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["Pooling", "hidden_states", "layer_names"]

Pooling = Literal["last", "mean"]


def hidden_states(
    model: nn.Module,
    tokenizer: "PreTrainedTokenizerBase",
    texts: Sequence[str],
    *,
    pooling: Pooling = "last",
    max_length: int = 128,
    batch_size: int = 32,
    layers: Sequence[str] | None = None,
    skip_first: bool = False,
    paths: Mapping[str, str] | None = None,
    progress: bool = False,
    losses: LossMeter | None = None,
) -> dict[str, Tensor]:
    """Return one vector per text and layer; one pass over the texts gives all layers.

    The model runs in eval mode, uncompiled and without gradients; afterwards its state is restored.
    A text's vectors depend neither on the other texts of its batch nor on the tokenizer's padding
    side: padding follows the tokens of a text, so a causal model does not see it, and absolute
    positions stay correct. If a longer text in the batch changes the vectors nevertheless, as with
    LongRoPE, only texts of equal length run together. Non-finite values are returned unchanged.

    Args:
        model: A Hugging Face causal language model, or a module that holds one.
        tokenizer: Its tokenizer, used with the special tokens that it adds by default.
        texts: N texts, each with at least one token.
        pooling: ``last`` for the last token's state, ``mean`` for the mean over the tokens.
        max_length: Largest number of tokens of a text; longer texts are cut.
        batch_size: Number of texts in a batch.
        layers: Names of the layers to return (`layer_names`), by default all of them.
        skip_first: Leave each text's first token out of the pooling; the model still reads it. The
            norm of a BOS token is often far larger than that of all other tokens.
        paths: Names of modules, for families that `language_model_parts` does not know.
        progress: Show a bar on standard error if the reading takes longer than two seconds.
        losses: Meter that adds up the losses of the predicted tokens in the same pass.

    Returns:
        For each layer a float32 tensor of shape (N, d) on the CPU, in the order of ``texts``. d is
        smaller for ``final`` if a projection precedes the unembedding (some OPT models).

    Raises:
        TypeError: If ``texts`` is not a sequence of strings.
        ValueError: If an option or the name of a layer is invalid, a text has no token to pool or
            more tokens than the model has positions, the tokenizer has ids that the model lacks,
            the family is unknown, the weights are quantised, sharded or not loaded, or the module
            of a layer is not run.
    """
    instance("model", model, nn.Module)
    optional(text_mapping, "paths", paths)
    language_model = find_language_model(model, argument="model")
    check_weights(language_model)
    parts = language_model_parts(language_model, paths=paths)
    names = _chosen_layers(layers, len(parts.blocks))
    check_encoding(
        pooling=pooling,
        max_length=max_length,
        batch_size=batch_size,
        skip_first=skip_first,
        progress=progress,
    )
    optional(is_meter, "losses", losses)
    ids = token_ids(tokenizer, texts, max_length=max_length, min_length=1 + skip_first)
    check_fit(ids, parts, language_model)
    reader = _Reader(parts, names, ids, partial(_Pool, pooling=pooling, skip_first=skip_first))
    states: dict[str, Tensor] = {}
    counting = nullcontext() if losses is None else losses.whole_pass()
    with reading_mode(language_model), positions_restored(language_model), counting:
        batches = batch_indices(language_model, ids, batch_size, reader.read)
        for indices in with_progress(batches, description="texts") if progress else batches:
            # Ctrl-C and SIGTERM end the reading after the current batch.
            with interruption.deferred():
                vectors = reader.read(indices, losses)
            for name, pooled in vectors.items():
                if name not in states:
                    shape = (len(ids), pooled.shape[-1])
                    states[name] = torch.empty(shape, dtype=torch.float32, device="cpu")
                states[name][indices] = pooled
    return {name: states[name] for name in names}


class _Reader:
    """Reads batches of texts with a model."""

    def __init__(
        self,
        parts: LanguageModelParts,
        layers: Sequence[str],
        ids: Sequence[Sequence[int]],
        pool: Callable[[Tensor], "_Pool"],
    ) -> None:
        self._parts = parts
        self._layers = layers
        self._ids = ids
        self._pool = pool
        self._device = next(parts.embedding.parameters()).device

    def read(self, indices: Sequence[int], losses: LossMeter | None = None) -> dict[str, Tensor]:
        """Return the pooled vectors of the texts with these indices by layer, on the CPU."""
        if remembers_lengths(self._parts.body):
            # A text of one token resets position encodings that depend on the longest text.
            run_body(self._parts, right_padded([self._ids[indices[0]][:1]], self._device))
        inputs = right_padded([self._ids[index] for index in indices], self._device)
        pool = self._pool(inputs["attention_mask"])
        with nullcontext() if losses is None else losses.watching():
            captured = captured_layers(self._parts, self._layers, inputs, pool)
        if losses is not None:
            losses.add(inputs)
        return {name: pooled.cpu() for name, pooled in captured.items()}


class _Pool:
    """Pools the token states of a batch to one float32 vector per text."""

    def __init__(self, mask: Tensor, *, pooling: Pooling, skip_first: bool) -> None:
        self._mask = mask.bool()
        self._mask[:, 0] &= not skip_first
        self._pooling = pooling

    def __call__(self, hidden: Tensor) -> Tensor:
        mask = self._mask.to(hidden.device)
        if self._pooling == "last":
            return _last_token(hidden, mask).float()
        return _masked_mean(lift(hidden).where(mask[..., None], 0), mask).float()


def check_encoding(
    *,
    pooling: Pooling = "last",
    max_length: int = 1,
    batch_size: int = 1,
    skip_first: bool = False,
    progress: bool = False,
) -> None:
    """Raise a ValueError unless these options of `hidden_states` are valid."""
    one_of("pooling", pooling, *get_args(Pooling))
    integer_at_least("max_length", max_length, 1)
    integer_at_least("batch_size", batch_size, 1)
    flag("skip_first", skip_first)
    flag("progress", progress)


def _chosen_layers(layers: Sequence[str] | None, num_blocks: int) -> list[str]:
    names = (
        layer_names(num_blocks)
        if layers is None
        else list(dict.fromkeys(strings("layers", layers)))
    )
    check_layers(names, num_blocks)
    return names


def check_fit(
    ids: Sequence[Sequence[int]], parts: LanguageModelParts, model: "PreTrainedModel"
) -> None:
    """Refuse token ids and lengths that the model does not support.

    On a GPU they would end the process.

    Args:
        ids: Token ids of each text.
        parts: The model's parts.
        model: The model.

    Raises:
        ValueError: If an id has no row in the embedding, or a text has more tokens than the model
            has positions.
    """
    weight = parts.embedding.weight
    largest = max(map(max, ids))
    if isinstance(weight, Tensor) and largest >= len(weight):
        raise ValueError(
            f"tokenizer: expected ids below the model's {len(weight)} rows, got {largest}; "
            "pass the tokenizer that belongs to the model"
        )
    limit = num_positions(model.config.get_text_config())
    longest = max(range(len(ids)), key=lambda index: len(ids[index]))
    if limit is not None:
        at_most(
            "max_length",
            len(ids[longest]),
            limit,
            limit=f"the model's {limit} positions",
            given=f"text {longest} with {len(ids[longest])} tokens",
            advice=f"lower max_length to {limit}",
        )
