"""The terminal during a run: the first step, and the progress bar."""

import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from toolkit.console.held_stderr import HeldStderr
from toolkit.lightning_private import OpenProgressBar

_SECONDS_BETWEEN_UPDATES = 0.1


class FirstStep(Callback):
    """Notifies standard error when the first step begins.

    Args:
        held: Standard error, which holds text back until then.
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
        """Release the held text, unless this is only Lightning's sanity check."""
        if not (self._held.started or trainer.sanity_checking):
            self._held.start()


class RunProgressBar(OpenProgressBar):
    """Lightning's bar, updated by the clock: a step of the toy model is faster than the bar.

    A run with a limit on its steps has one bar for all epochs, which counts steps. At each update
    the bar shows the values of the module's ``on_bar``, tensors by name.
    """

    def __init__(self) -> None:
        super().__init__(refresh_rate=round(1 / _SECONDS_BETWEEN_UPDATES))
        self._updated_at = 0.0
        self._batch_idx = 0

    @property
    @override
    def total_train_batches(self) -> int | float:
        """The length of the bar: steps of the run if they are limited, or batches of the epoch."""
        return self.trainer.max_steps if self._counts_steps else super().total_train_batches

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin at the run's first step, which is not 0 in a continued run."""
        super().on_train_start(trainer, pl_module)
        if self._counts_steps and self.progress is not None:
            self.begin_train_bar()
            if self.train_progress_bar_id is not None:
                # An update would count the work of an earlier process in the speed of this process.
                self.progress.reset(self.train_progress_bar_id, completed=trainer.global_step)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin a bar for the epoch, unless the run has a single bar."""
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
        """Return the model's values for the bar, without the version number."""
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        # Logged values are as old as the last logged step.
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
        # A run with a limit on its steps has max_epochs -1: Lightning shows "Epoch 0/-2".
        return "Training" if self.trainer.max_epochs == -1 else super().text_before_bar(epoch)
