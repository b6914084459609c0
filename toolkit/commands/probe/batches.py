"""Batches over which a checkpoint's loss is averaged."""

import json
from dataclasses import asdict
from typing import Any

import lightning as L
from transformers import PreTrainedTokenizerBase

from toolkit.commands.probe.record import TEXTS_HASH
from toolkit.measures.text_set import TextSet
from toolkit.runs.provenance import texts_hash


def check_tokenizer(tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Refuse a checkpoint that cannot read texts.

    Raises:
        ValueError: If there is no tokenizer.
    """
    if tokenizer is None:
        raise ValueError(
            "series: expected checkpoints with a tokenizer to read the texts with, got one "
            "without; give the series or data a tokenizer"
        )


def check_tokens(data: L.LightningDataModule, tokenizer: PreTrainedTokenizerBase | None) -> None:
    """Refuse token ids of another tokenizer: the loss would be a wrong number.

    Raises:
        ValueError: If data and checkpoint have different tokenizers.
    """
    own: PreTrainedTokenizerBase | None = getattr(data, "tokenizer", None)
    if own is None or tokenizer is None or own.get_vocab().items() <= tokenizer.get_vocab().items():
        return
    raise ValueError(
        f"data: expected token ids of the checkpoint's own tokenizer, got {type(data).__name__} "
        "with another one; give it the tokenizer of the series"
    )


def fingerprint(texts: TextSet) -> str:
    """Return the hash of the training and test texts."""
    drawn = texts.load()
    return texts_hash([*drawn.train_texts, *drawn.test_texts])


def conditions(texts: TextSet, data: L.LightningDataModule | None) -> dict[str, Any]:
    """Return the settings that a loss depends on, as plain types, for the rows of the table."""
    if data is None:
        return {"texts": {**asdict(texts), TEXTS_HASH: fingerprint(texts)}}
    # A user's data module may hold any type, such as a Path.
    arguments = json.loads(json.dumps(dict(data.hparams), default=str))
    return {"data": {"class": type(data).__name__, **arguments}}
