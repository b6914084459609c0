"""The loss of a checkpoint: on the measured texts, or on a user's own data."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor
from typing_extensions import override

from toolkit.console.bar import with_progress
from toolkit.interruption import interruption
from toolkit.lm.reading.batches import batch_indices, positions_restored, right_padded
from toolkit.lm.reading.capture import reading_mode
from toolkit.lm.reading.token_losses import LossMeter
from toolkit.lm.reading.tokenizers import token_ids
from toolkit.measures.text_set import TextSet
from toolkit.models import LanguageModel


class TextLosses:
    """The losses of a model on the test texts, counted in the first pass that reads them.

    Args:
        texts: The texts.
        meter: Counts the losses.
    """

    def __init__(self, texts: TextSet, meter: LossMeter) -> None:
        self.texts = texts
        self.meter = meter

    def meter_for(self, texts: TextSet) -> LossMeter | None:
        """Return the meter to use while these texts are read, None if their losses do not count."""
        # These fields change vectors, but not predictions.
        same: dict[str, Any] = {"pooling": "last", "skip_first": False, "batch_size": 1}
        wanted = replace(texts, **same) == replace(self.texts, **same)
        return self.meter if wanted and not self.meter.complete else None


class CheckpointOnTexts(LanguageModel):
    """A checkpoint on texts; texts that no callback has read are read at the end."""

    text_losses: TextLosses | None = None

    @override
    def on_validation_epoch_start(self) -> None:
        """Count nothing here."""

    @override
    def validation_step(self, batch: Mapping[str, Tensor], batch_idx: int) -> None:
        """Do nothing: the one batch is empty."""

    @override
    def on_validation_epoch_end(self) -> None:
        """Log nothing: the walk does."""

    @override
    def on_validation_end(self) -> None:
        """Read the texts, unless a callback has read them."""
        if self.text_losses is not None and not self.text_losses.meter.complete:
            self._read(self.text_losses)

    def _read(self, losses: TextLosses) -> None:
        texts, meter, tokenizer = losses.texts, losses.meter, self.tokenizer
        if tokenizer is None:
            raise ValueError("tokenizer: expected one to read texts with, got none")
        ids = token_ids(tokenizer, texts.load().test_texts, max_length=texts.max_length)

        def inputs(indices: Sequence[int]) -> dict[str, Tensor]:
            return self.checked(right_padded([ids[index] for index in indices], self.device))

        with reading_mode(self.model), positions_restored(self.model), meter.whole_pass():
            batches = batch_indices(
                self.model,
                ids,
                texts.batch_size,
                lambda indices: {"last": meter.last_states(inputs(indices))},
            )
            for indices in with_progress(batches, description="texts"):
                with interruption.deferred():
                    meter.count(meter.read(inputs(indices)))


class CheckpointOnData(LanguageModel):
    """A checkpoint on a user's batches; it never holds the logits of all tokens."""

    _meter: LossMeter | None = None

    @override
    def token_losses(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the loss of each predicted token, float32, one dimension."""
        if self._meter is None:
            self._meter = LossMeter(self.model)
        inputs = self.checked(batch)
        with reading_mode(self.model), positions_restored(self.model):
            return self._meter.read(inputs)


def empty_batch(_: int) -> dict[str, Any]:
    """Return the empty batch of a validation in which only the callbacks read texts."""
    return {}
