"""What is seen of a run while it runs."""

import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, RichProgressBar
from typing_extensions import override

from toolkit.diagnostics import HeldStderr

_SECONDS_BETWEEN_UPDATES = 0.1


class FirstStep(Callback):
    """Tells standard error that the first step begins.

    Args:
        held: What waits for it.
    """

    def __init__(self, held: HeldStderr) -> None:
        self._held = held

    @override
    def on_train_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        """Training has begun."""
        self.begin(trainer)

    @override
    def on_validation_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        """A validation has begun."""
        self.begin(trainer)

    @override
    def on_test_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        """A test has begun."""
        self.begin(trainer)

    @override
    def on_predict_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        """A prediction has begun."""
        self.begin(trainer)

    def begin(self, trainer: L.Trainer) -> None:
        """Let through what waits for the first step, unless this only checks that one can be."""
        if not (self._held.started or trainer.sanity_checking):
            self._held.start()


class RunProgressBar(RichProgressBar):
    """Lightning's bar, updated by the clock: a step of the toy model is faster than the bar."""

    def __init__(self) -> None:
        super().__init__(refresh_rate=round(1 / _SECONDS_BETWEEN_UPDATES))
        self._updated_at = 0.0
        self._batch_idx = 0

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Update the bar if it is time."""
        self._batch_idx = batch_idx
        now = time.monotonic()
        if now - self._updated_at >= _SECONDS_BETWEEN_UPDATES:
            self._updated_at = now
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show where the epoch ended."""
        super().on_train_batch_end(trainer, pl_module, None, None, self._batch_idx)
        super().on_train_epoch_end(trainer, pl_module)

    @override
    def get_metrics(
        self, trainer: L.Trainer, pl_module: L.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Return what the model shows on the bar; the version is in the folder's name."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        return metrics

    @override
    def _get_train_description(self, current_epoch: int) -> str:
        # A run that is limited by its steps has max_epochs -1: Lightning shows "Epoch 0/-2".
        if self.trainer.max_epochs == -1:
            return "Training"
        return super()._get_train_description(current_epoch)
