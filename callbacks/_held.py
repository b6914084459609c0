"""Access of callbacks to objects of the run: its tokenizer and the toy model."""

from typing import TYPE_CHECKING

import lightning as L

from toolkit.models import SuperpositionAutoencoder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def held_tokenizer(
    trainer: L.Trainer, pl_module: L.LightningModule
) -> "PreTrainedTokenizerBase | None":
    """Return the ``tokenizer`` of the LightningModule or of its data module, or None."""
    holders = (pl_module, getattr(trainer, "datamodule", None))
    tokenizers = (getattr(holder, "tokenizer", None) for holder in holders)
    return next((tokenizer for tokenizer in tokenizers if tokenizer is not None), None)


def toy_model(pl_module: L.LightningModule, *, wanted_by: object) -> SuperpositionAutoencoder:
    """Return the module as the toy model; another module raises a ValueError."""
    if not isinstance(pl_module, SuperpositionAutoencoder):
        raise ValueError(  # noqa: TRY004 - the run is wrong, not a call
            f"model: expected a SuperpositionAutoencoder for {type(wanted_by).__name__}, got "
            f"{type(pl_module).__name__}; remove the callback"
        )
    return pl_module
