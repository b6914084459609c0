"""What the loss of a checkpoint is the mean of: texts as batches, or a user's own data."""

import json
from dataclasses import asdict
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from toolkit.data.batch_stream import FixedBatches
from toolkit.lm._tokens import token_ids
from toolkit.measures.text_set import TextSet
from toolkit.provenance import texts_hash
from toolkit.walk_record import TEXTS_HASH


def text_batches(
    texts: TextSet, tokenizer: PreTrainedTokenizerBase | None
) -> FixedBatches[dict[str, Tensor]]:
    """Return the test texts as padded batches of token ids.

    Raises:
        ValueError: If there is no tokenizer, or the texts cannot be had.
    """
    if tokenizer is None:
        raise ValueError(
            "series: expected checkpoints with a tokenizer to read the texts with, got one "
            "without; give the series or data a tokenizer"
        )
    size = texts.batch_size
    ids = token_ids(tokenizer, texts.load().test_texts, max_length=texts.max_length)
    return FixedBatches(
        lambda position: _padded(ids[position * size : (position + 1) * size]),
        -(-len(ids) // size),
    )


def check_tokens(data: L.LightningDataModule, tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Refuse token ids that mean something else to the model: its loss would be a number, too.

    Raises:
        ValueError: If the data's tokenizer is another one than the checkpoint's.
    """
    own: PreTrainedTokenizerBase | None = getattr(data, "tokenizer", None)
    if own is None or tokenizer is None or own.get_vocab().items() <= tokenizer.get_vocab().items():
        return
    raise ValueError(
        f"data: expected token ids of the checkpoint's own tokenizer, got {type(data).__name__} "
        "with another one; give it the tokenizer of the series"
    )


def fingerprint(texts: TextSet) -> str:
    """Return the hash of the texts themselves, those for training and those for testing."""
    drawn = texts.load()
    return texts_hash([*drawn.train_texts, *drawn.test_texts])


def conditions(texts: TextSet, data: L.LightningDataModule | None) -> dict[str, Any]:
    """Return what a loss depends on, plain types, for the rows of the table."""
    if data is None:
        return {"texts": {**asdict(texts), TEXTS_HASH: fingerprint(texts)}}
    # A user's may hold anything, such as a Path.
    arguments = json.loads(json.dumps(dict(data.hparams), default=str))
    return {"data": {"class": type(data).__name__, **arguments}}


def _padded(ids: list[list[int]]) -> dict[str, Tensor]:
    rows = [torch.tensor(one) for one in ids]
    return {
        "input_ids": pad_sequence(rows, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in rows], batch_first=True),
    }
