"""The tokenizer that a run has of its own."""

from typing import TYPE_CHECKING

import lightning as L

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def held_tokenizer(
    trainer: L.Trainer, pl_module: L.LightningModule
) -> "PreTrainedTokenizerBase | None":
    """Return the ``tokenizer`` of the LightningModule or else of its data, None without any."""
    holders = (pl_module, getattr(trainer, "datamodule", None))
    found = (getattr(holder, "tokenizer", None) for holder in holders)
    return next((tokenizer for tokenizer in found if tokenizer is not None), None)
