"""The early end of a run: between two updates, with a checkpoint of the last step."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Checkpoint
from typing_extensions import override

from toolkit.atomic import is_disk_full
from toolkit.console.held_stderr import RefusedRunError
from toolkit.interruption import Interrupted, interruption
from toolkit.lightning_private import log_batch
from toolkit.runs.checkpoint import RunCheckpoint
from toolkit.runs.folder import read_checkpoint
from toolkit.runs.loops import (
    due_validation_in,
    is_at_end,
    is_between_updates,
    is_in_hooks,
    is_update,
    validation_follows,
)


class EndAtUpdate(Checkpoint):
    """Ends a run after the current update when a signal has come, and saves a checkpoint.

    A step with a validation ends after the validation; a run at its last step continues to its
    end. After an exception the step is saved if no update was interrupted. Notes of the exception
    name the saved checkpoint and the command that continues it.

    Args:
        keeper: The run's checkpoint callback; it must be the only callback before this one.
        continuing: Returns the command that continues a checkpoint, or starts a new run.
    """

    def __init__(self, keeper: RunCheckpoint, continuing: Callable[[Path | None], str]) -> None:
        self._keeper = keeper
        self._continuing = continuing
        self._has_begun = False
        self._validation_due = False
        self._keeps_due_validation = False

    @override
    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """From the first batch on, defer signals to the end of the update."""
        if not self._has_begun:
            self._has_begun = True
            # Lightning's own handlers would end the run after a batch, without a checkpoint.
            interruption.take_over()
            interruption.defer()

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """End here, unless gradients are accumulated or a validation follows."""
        self._validation_due = validation_follows(trainer)
        if not self._validation_due and self._is_asked(trainer, batch_idx):
            log_batch(trainer)
            self._end(trainer)

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End after the validation of a step."""
        self._validation_due = False
        if self._has_begun and self._is_asked(trainer, trainer.fit_loop.batch_idx):
            self._end(trainer)

    @override
    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Save the current step, and note how to continue."""
        is_refused = isinstance(exception, RefusedRunError)
        if is_refused or not self._has_begun or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if not isinstance(exception, Interrupted):
            self._keep_after(exception, trainer)
        path = self._keeper.last_checkpoint
        if path is not None:
            exception.add_note(self._kept(trainer, path))
        elif isinstance(exception, Interrupted | KeyboardInterrupt):
            command = self._continuing(None)
            exception.add_note(f"no checkpoint has been written; start anew with\n  {command}")

    @override
    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Mark a validation that has failed or not begun, so that a continued run repeats it."""
        if self._keeps_due_validation:
            due_validation_in(checkpoint["loops"]["fit_loop"])

    def _keep_after(self, exception: BaseException, trainer: L.Trainer) -> None:
        """Save the step, unless an update was interrupted or only a validation is missing."""
        in_hooks = is_in_hooks(trainer)
        due = validation_follows(trainer) if in_hooks else self._validation_due
        # Saving needs all processes, and one has failed. With a full disk, rows of the step may be
        # missing; a continued run measures them again from an earlier checkpoint.
        if (
            trainer.world_size > 1
            or is_disk_full(exception)
            or not is_between_updates(trainer)
            or (due and is_at_end(trainer))
        ):
            return
        self._keeps_due_validation = due
        try:
            if in_hooks:
                log_batch(trainer)
            self._keeper.keep(trainer)
        except Exception as error:  # noqa: BLE001 - the exception that ends the run counts
            exception.add_note(f"step {trainer.global_step} could not be kept: {error}")

    def _is_asked(self, trainer: L.Trainer, batch_idx: int) -> bool:
        if is_at_end(trainer) or not is_update(trainer, batch_idx):
            return False
        asked = interruption.requested
        if trainer.world_size > 1:
            asked = trainer.strategy.reduce_boolean_decision(asked, all=False)
        return asked

    def _end(self, trainer: L.Trainer) -> None:
        self._keeper.keep(trainer)
        interruption.check()
        # Another process has received the signal.
        raise Interrupted(signal.SIGTERM)

    def _kept(self, trainer: L.Trainer, path: Path) -> str:
        step = read_checkpoint(path)["global_step"]
        kept = "is kept" if step == trainer.global_step else "is the last one that is kept"
        return f"step {step} {kept}, in {path}; go on with\n  {self._continuing(path)}"
