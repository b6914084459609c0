"""The checkpoint of every run: never incomplete, and at the end of the last step."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint
from typing_extensions import override

from toolkit.atomic import replacing
from toolkit.lightning_private import is_saved, restore_loaders, save_last
from toolkit.runs.folder import LAST_CHECKPOINT, SAVED_AT
from toolkit.runs.loops import validation_follows
from toolkit.runs.random_states import RunRandomStates

_DEFAULT_EVERY_N_STEPS = 1000


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints in one step: a kill leaves the old or the new file."""

    @override
    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Save the checkpoint; Lightning itself handles remote paths."""
        if "://" in str(path):
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        # Lightning writes to the system's temporary folder; moving to another disk is a copy.
        with replacing(Path(path)) as temporary:
            super().save_checkpoint(checkpoint, temporary, storage_options)


class RunCheckpoint(ModelCheckpoint):
    """Lightning's ModelCheckpoint with the defaults of a run that can be continued.

    Each checkpoint contains the random states of Python, numpy, torch and the devices in use, and
    loading restores them. A step with a validation is saved after the validation, so that a
    continued run does not repeat it.

    Args:
        dirpath: Folder; by default ``checkpoints`` in the run's version folder.
        filename: Name of the best or latest checkpoint, beside ``last.ckpt``.
        save_last: Whether to keep ``last.ckpt``, which ``--ckpt_path last`` continues.
        every_n_train_steps: Optimiser updates between checkpoints; by default 1000 without another
            interval.
        train_time_interval: Time between checkpoints.
        every_n_epochs: Epochs between checkpoints.
        enable_version_counter: Whether to keep an existing file of the same name.
        **kwargs: The other arguments of Lightning's ModelCheckpoint.
    """

    def __init__(
        self,
        *,
        dirpath: str | None = None,
        filename: str = "{step}",
        save_last: bool = True,
        every_n_train_steps: int | None = None,
        train_time_interval: timedelta | None = None,
        every_n_epochs: int | None = None,
        enable_version_counter: bool = False,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        if every_n_train_steps is None and train_time_interval is None and every_n_epochs is None:
            every_n_train_steps = _DEFAULT_EVERY_N_STEPS
        super().__init__(
            dirpath=dirpath,
            filename=filename,
            save_last=save_last,
            every_n_train_steps=every_n_train_steps,
            train_time_interval=train_time_interval,
            every_n_epochs=every_n_epochs,
            enable_version_counter=enable_version_counter,
            **kwargs,
        )
        self._random_states = RunRandomStates()
        self._before_validation: tuple[Any, Any, int] | None = None

    @override
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Save atomically if the strategy saves in Lightning's usual way."""
        super().setup(trainer, pl_module, stage)
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = AtomicCheckpointIO()

    @override
    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._random_states.load(checkpoint)

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Restore batches and random states of the checkpoint just before training."""
        super().on_train_start(trainer, pl_module)
        restore_loaders(trainer)
        self._random_states.restore(trainer)

    @override
    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Write logged points to disk, and note the time: later points are logged again."""
        for logger in trainer.loggers:
            logger.save()
        checkpoint[SAVED_AT] = time.time()
        self._random_states.save(trainer, checkpoint)

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save a scheduled step, unless a validation follows."""
        if validation_follows(trainer):
            self._before_validation = outputs, batch, batch_idx
        else:
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save a scheduled step after its validation."""
        if self._before_validation is not None:
            arguments, self._before_validation = self._before_validation, None
            super().on_train_batch_end(trainer, pl_module, *arguments)
        super().on_validation_end(trainer, pl_module)

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Always save the last step; Lightning does so only without an earlier checkpoint."""
        super().on_train_end(trainer, pl_module)
        self.keep(trainer)

    def keep(self, trainer: L.Trainer) -> None:
        """Save the last checkpoint now, unless this step is saved."""
        if not is_saved(self, trainer):
            save_last(self, trainer)

    @property
    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint of ``save_last``, None without a checkpoint."""
        path = Path(self.dirpath or "", LAST_CHECKPOINT.name)
        return path if self.save_last and path.is_file() else None
