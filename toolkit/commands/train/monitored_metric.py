"""A check that the metric that chooses checkpoints is logged at all."""

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.model_helpers import is_overridden
from typing_extensions import override

from toolkit.console.held_stderr import RefusedRunError
from toolkit.console.parser import did_you_mean

# Lightning adds these names itself.
_ALWAYS_THERE = {"epoch", "step"}
_KNOWN_PACKAGES = {"callbacks", "lightning", "toolkit"}


class MonitorCheck(Callback):
    """Refuses a run whose checkpoints monitor a metric that is never logged.

    The metrics of validation are known after Lightning's sanity check, those of training after
    the first ``log_every_n_steps`` updates. A run is not refused if a user's module or callback
    may log at the end of an epoch.

    Args:
        monitor: Name of the metric.
    """

    def __init__(self, monitor: str) -> None:
        self.monitor = monitor
        self._logged = set(_ALWAYS_THERE)
        self._has_validated = False
        self._is_settled = False

    @override
    def on_sanity_check_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._note(trainer)
        self._has_validated = True

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._note(trainer)
        self._has_validated = True

    @override
    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any
    ) -> None:
        """Refuse the run when all metrics have been logged at least once.

        Raises:
            RefusedRunError: If the metric is not among them.
        """
        if self._is_settled:
            return
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.global_step > every and (self._has_validated or _has_no_validation(trainer)):
            self._note(trainer)
            self._is_settled = True
            self._check(trainer, pl_module)

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Warn that the metric chose no checkpoint, if it was never logged."""
        self._note(trainer)
        if self.monitor not in self._logged:
            rank_zero_warn(
                f"checkpoint.monitor: nothing has logged {self.monitor}; only the last checkpoint "
                "is kept"
            )

    def _check(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.monitor not in self._logged and not _may_log_later(trainer, pl_module):
            known = sorted(self._logged - _ALWAYS_THERE)
            raise RefusedRunError(
                f"checkpoint.monitor: expected a metric that is logged, one of {', '.join(known)}, "
                f"got {self.monitor}{did_you_mean(self.monitor, known)}"
            )

    def _note(self, trainer: L.Trainer) -> None:
        self._logged |= set(trainer.callback_metrics)


def _has_no_validation(trainer: L.Trainer) -> bool:
    return not trainer.enable_validation


def _may_log_later(trainer: L.Trainer, pl_module: L.LightningModule) -> bool:
    """Return whether user code runs at the end of an epoch."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    packages = {type(callback).__module__.partition(".")[0] for callback in callbacks}
    return is_overridden("on_train_epoch_end", pl_module) or not packages <= _KNOWN_PACKAGES
