"""The walk: one checkpoint after another is measured in a stand-alone validation."""

import gc
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import lightning as L
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.callbacks import Callback
from torch import nn

from toolkit.commands.probe.batches import check_tokenizer, check_tokens, conditions, fingerprint
from toolkit.commands.probe.duplicates import Duplicates, matrix_hashes
from toolkit.commands.probe.losses import (
    CheckpointOnData,
    CheckpointOnTexts,
    TextLosses,
    empty_batch,
)
from toolkit.commands.probe.record import MATRICES, METRIC, WalkRecord
from toolkit.console.noise import said_once
from toolkit.console.stages import stage
from toolkit.data.batch_stream import FixedBatches
from toolkit.lm.checkpoints.base import Checkpoint, MissingCheckpointError, OpenedModel
from toolkit.lm.checkpoints.fetch_ahead import Fetched, fetch_ahead
from toolkit.lm.reading.token_losses import LossMeter
from toolkit.measures.text_set import TextSet
from toolkit.models import LanguageModel
from toolkit.runs.identity import WeightsIdentity
from toolkit.runs.measuring import Measuring
from toolkit.runs.model_logger import ModelLogger
from toolkit.runs.points import Point
from toolkit.runs.provenance import dtype_names, versions, weights_hash
from toolkit.threads import suited_to

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_RECORD_OF_FILES = "fetched.json"
_LOSS = "lm_val"


@dataclass(kw_only=True)
class Walk:
    """A walk over checkpoints, which continues where it was interrupted.

    Attributes:
        folder: The run's folder: its table, and below it the curves of each model.
        callbacks: The callbacks that measure each checkpoint.
        texts: Texts; without ``data`` the loss is averaged over their test part.
        data: Batches for the loss instead of texts.
        dtype: Type of the loaded weights.
        accelerator: Lightning's name of the device.
        max_disk_gb: Limit on downloads, see `toolkit.lm.checkpoints.fetch_ahead`.
        loss: Whether to measure loss and perplexity.
    """

    folder: Path
    callbacks: Sequence[Callback]
    texts: TextSet
    data: L.LightningDataModule | None = None
    dtype: torch.dtype = torch.float32
    accelerator: str = "auto"
    max_disk_gb: float | None = None
    loss: bool = True

    def run(self, checkpoints: Sequence[Checkpoint]) -> WalkRecord:
        """Measure the checkpoints that have not been measured yet, models one after the other.

        Raises:
            ValueError: If a checkpoint cannot be loaded or measured; earlier results stay.
        """
        record = WalkRecord(
            self.folder, texts_hash=lambda: fingerprint(self.texts) if self.data is None else ""
        )
        for callback in self.watchers:
            # A walk without remaining checkpoints never calls their setup.
            callback.number_among(self.callbacks)
        for checkpoint in checkpoints:
            if checkpoint.commit and record.hash_of(checkpoint) is None:
                record.drop(checkpoint)
        # A commit fixes the weights; a folder may have changed and must be opened.
        waiting = [c for c in checkpoints if not c.commit or record.hash_of(c) is None]
        if waiting:
            self._prepare(waiting, record)
        walk = fetch_ahead(
            waiting, record=self.folder / _RECORD_OF_FILES, max_disk_gb=self.max_disk_gb
        )
        self._duplicates = Duplicates(record)
        with closing(walk), said_once():
            for model, of_model in groupby(walk, key=lambda fetched: fetched.checkpoint.name):
                self._walk_model(model, _whole(of_model), record)
        return record

    def restore(self, record: WalkRecord, model: str) -> None:
        """Give the callbacks the history of a model from the record."""
        history = record.history(model)
        for callback in self.watchers:
            callback.history = {step: dict(values) for step, values in history.items()}

    @property
    def watchers(self) -> list[Measuring]:
        """The callbacks that measure."""
        return [callback for callback in self.callbacks if isinstance(callback, Measuring)]

    def _walk_model(
        self, model: str, checkpoints: Iterator[Checkpoint], record: WalkRecord
    ) -> None:
        self.restore(record, model)
        record.keep_points(model)
        with closing(ModelLogger(self.folder, model)) as logger:
            for checkpoint in checkpoints:
                self._visit(checkpoint, logger, record)
                # Trainer and model refer to each other, and memory may not suffice for two models.
                gc.collect()

    def _visit(self, checkpoint: Checkpoint, logger: ModelLogger, record: WalkRecord) -> None:
        start = time.monotonic()
        opened = checkpoint.open(self.dtype)
        with stage(f"{checkpoint.label}: fingerprint"):
            digest = weights_hash(opened.model.named_parameters())
        if record.hash_of(checkpoint) == digest:
            return
        record.resume(checkpoint, digest)
        logger.unfinished = record.unfinished
        if record.drop(checkpoint):
            self.restore(record, checkpoint.name)
        with stage(f"{checkpoint.label}: measurements"):
            self._measure_checkpoint(logger, checkpoint, opened, digest, record)
        seconds = time.monotonic() - start
        sys.stdout.write(f"{checkpoint.label}: measured in {seconds:.1f} s\n")
        sys.stdout.flush()

    def _measure_checkpoint(
        self,
        logger: ModelLogger,
        checkpoint: Checkpoint,
        opened: OpenedModel,
        digest: str,
        record: WalkRecord,
    ) -> None:
        if self.data is not None:
            check_tokens(self.data, opened.tokenizer)
        elif self.loss:
            check_tokenizer(opened.tokenizer)
        module = self._module(checkpoint, opened)
        batches = FixedBatches(empty_batch, 1) if self.data is None else None
        # A trainer keeps its last model in memory, so each checkpoint has its own trainer.
        trainer = L.Trainer(
            accelerator=self.accelerator,
            devices=1,
            # One process, even in a batch job with several tasks, and without requeueing.
            plugins=[LightningEnvironment()],
            logger=logger,
            callbacks=list(self.callbacks),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        with suited_to(module):
            trainer.validate(module, dataloaders=batches, datamodule=self.data, verbose=False)
        points = self._loss_points(trainer, module, logger)
        common = self._common(checkpoint, opened.model, digest)
        matrices = common["conditions"][MATRICES]
        points += self._duplicates.marks(checkpoint, digest, matrices, logger)
        points.append(Point("hidden_size", "", _width(opened.model), metric=METRIC))
        # A checkpoint that is complete in the table must be complete on TensorBoard, too.
        logger.save()
        record.finish(points, _num_parameters(opened.model), common)

    def _module(self, checkpoint: Checkpoint, opened: OpenedModel) -> LanguageModel:
        """Return the model as a module that knows its step and origin."""
        kind = CheckpointOnTexts if self.data is None else CheckpointOnData
        module = kind({"model_type": opened.model.config.model_type})
        module.model, module.tokenizer = opened.model, opened.tokenizer
        if isinstance(module, CheckpointOnTexts) and self.loss:
            module.text_losses = TextLosses(self.texts, LossMeter(opened.model))
        module.on_load_checkpoint(
            {"global_step": checkpoint.step, "weights_source": tuple(checkpoint.identity)}
        )
        return module

    def _loss_points(
        self, trainer: L.Trainer, module: LanguageModel, logger: ModelLogger
    ) -> list[Point]:
        if not self.loss:
            return []
        if isinstance(module, CheckpointOnTexts):
            losses = cast("TextLosses", module.text_losses)
            loss = losses.meter.mean
            perplexity = float(torch.tensor(loss).exp())
            values = {f"{_LOSS}/loss": loss, f"{_LOSS}/perplexity": perplexity}
            step = cast("WeightsIdentity", module.source).step
            logger.log_metrics(values, step=step)
        else:
            values = {
                f"{_LOSS}/{name}": float(trainer.callback_metrics[f"{_LOSS}/{name}"])
                for name in ("loss", "perplexity")
            }
        return [Point(tag.split("/")[1], "", value, metric=_LOSS) for tag, value in values.items()]

    def _common(
        self, checkpoint: Checkpoint, model: "PreTrainedModel", digest: str
    ) -> dict[str, Any]:
        """Return the common fields of the rows about the checkpoint as a whole."""
        return {
            "run": "/".join(self.folder.parts[-2:]),
            **checkpoint.identity.columns(),
            "conditions": {
                **conditions(self.texts, self.data),
                MATRICES: matrix_hashes(model),
            },
            "dtype": dtype_names(model.parameters()),
            "weights_hash": digest,
            "versions": versions("lightning", "transformers"),
        }

    def _prepare(self, waiting: Sequence[Checkpoint], record: WalkRecord) -> None:
        """Check checkpoints and texts before any download."""
        for checkpoint in waiting:
            if not checkpoint.commit:
                checkpoint.missing()
        if self.data is None:
            self._check_texts(record)
        else:
            self.data.prepare_data()

    def _check_texts(self, record: WalkRecord) -> None:
        """Refuse to continue a curve with other texts: a file may have changed its content."""
        if record.texts_hashes() - {fingerprint(self.texts)}:
            raise ValueError(
                f"texts: expected those that {self.folder} was measured with, got others from "
                f"{self.texts.source}; restore them, or start a new walk with --run"
            )


def _whole(walk: Iterator[Fetched]) -> Iterator[Checkpoint]:
    """Yield the checkpoints that exist; warn of the others."""
    for checkpoint, error in walk:
        if isinstance(error, MissingCheckpointError) and not getattr(checkpoint, "strict", True):
            warnings.warn(f"{error}; the others are measured", stacklevel=2)
        elif error is not None:
            raise error
        else:
            yield checkpoint


def _width(model: nn.Module) -> int:
    embedding = model.get_input_embeddings()  # type: ignore[operator]
    return int(embedding.weight.shape[1])


def _num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
