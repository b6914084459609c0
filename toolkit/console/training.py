"""What is seen of a run while it runs."""

import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from toolkit.console.held_stderr import HeldStderr
from toolkit.lightning_private import OpenProgressBar

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
        self.begin(trainer)

    @override
    def on_validation_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        self.begin(trainer)

    @override
    def on_test_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        self.begin(trainer)

    @override
    def on_predict_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        self.begin(trainer)

    def begin(self, trainer: L.Trainer) -> None:
        """Let through what waits for the first step, unless this only checks that one can be."""
        if not (self._held.started or trainer.sanity_checking):
            self._held.start()


class RunProgressBar(OpenProgressBar):
    """Lightning's bar, updated by the clock: a step of the toy model is faster than the bar.

    A run that is limited by its steps has one bar for all its epochs, which counts steps. What a
    module keeps in ``on_bar``, tensors by name, is shown as it is when the bar is updated.
    """

    def __init__(self) -> None:
        super().__init__(refresh_rate=round(1 / _SECONDS_BETWEEN_UPDATES))
        self._updated_at = 0.0
        self._batch_idx = 0

    @property
    @override
    def total_train_batches(self) -> int | float:
        """The length of the bar: that of the run in steps, else that of the epoch in batches."""
        return self.trainer.max_steps if self._counts_steps else super().total_train_batches

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin where the run begins, which need not be step 0."""
        super().on_train_start(trainer, pl_module)
        if self._counts_steps and self.progress is not None:
            self.begin_train_bar()
            if self.train_progress_bar_id is not None:
                # An update would count what an earlier process has done as speed of this one.
                self.progress.reset(self.train_progress_bar_id, completed=trainer.global_step)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin a bar for the epoch, unless there is one for the run."""
        if not self._counts_steps:
            super().on_train_epoch_start(trainer, pl_module)

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        self._batch_idx = batch_idx
        now = time.monotonic()
        if now - self._updated_at >= _SECONDS_BETWEEN_UPDATES:
            self._updated_at = now
            self._update_bar(trainer, pl_module)

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._update_bar(trainer, pl_module)
        super().on_train_epoch_end(trainer, pl_module)

    @override
    def get_metrics(
        self, trainer: L.Trainer, pl_module: L.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Return what the model shows on the bar; the version is in the folder's name."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        # What is logged for the bar is as old as the last logged step.
        shown = getattr(pl_module, "on_bar", {})
        if isinstance(shown, dict):
            metrics |= {name: float(value) for name, value in shown.items()}
        return metrics

    @property
    def _counts_steps(self) -> bool:
        return self.trainer.max_epochs == -1 and self.trainer.max_steps > 0

    def _update_bar(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        done = trainer.global_step if self._counts_steps else self._batch_idx + 1
        super().on_train_batch_end(trainer, pl_module, None, None, done - 1)

    @override
    def text_before_bar(self, epoch: int) -> str:
        # A run that is limited by its steps has max_epochs -1: Lightning shows "Epoch 0/-2".
        return "Training" if self.trainer.max_epochs == -1 else super().text_before_bar(epoch)
