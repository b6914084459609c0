"""The base of the three models: optimiser, learning-rate schedule, resumed settings, logging."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

import lightning as L
import torch
from lightning.pytorch.cli import OptimizerCallable
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from typing_extensions import override

from toolkit.functional._checks import function, moment_decays, optional, share
from toolkit.optim import AdamW, Settings, warmup_cosine


class ScheduledModule(L.LightningModule, ABC):
    """A module with one optimiser and a learning rate that rises, then falls along a cosine.

    A subclass sets ``lr`` and calls ``save_hyperparameters(ignore=["optimizer"])`` itself: a
    checkpoint holds plain types, and the factory of an optimiser is code.

    Args:
        betas: Decay rates of Adam's moments.
        warmup_fraction: Share of the run with linear warm-up; then a cosine follows.
        lr_floor: Where the cosine ends, as a share of the learning rate.
        optimizer: Replaces AdamW with its lr, betas and decay; the schedule stays.

    Attributes:
        lr: Learning rate of parameter groups without one of their own.
        on_bar: Values of the last batch for the progress bar, by name.

    Raises:
        ValueError: If a number is out of range.
    """

    lr: float

    def __init__(
        self,
        *,
        betas: tuple[float, float],
        warmup_fraction: float,
        lr_floor: float,
        optimizer: OptimizerCallable | None,
    ) -> None:
        super().__init__()
        self.betas = moment_decays("betas", betas)
        self.warmup_fraction = share("warmup_fraction", warmup_fraction)
        self.lr_floor = share("lr_floor", lr_floor)
        self.optimizer_factory = optional(function, "optimizer", optimizer)
        self.on_bar: dict[str, Tensor] = {}
        self._settings: Settings | None = None
        self._total_steps = 0
        self._loaded_step = 0
        self._logged_step = -1

    @abstractmethod
    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups of AdamW, each with its settings."""

    def lr_factor(self, step: int) -> float:
        """Return the factor on every learning rate at update ``step``, counted from 0."""
        return warmup_cosine(
            step,
            warmup_steps=round(self.warmup_fraction * self._total_steps),
            total_steps=self._total_steps,
            floor=self.lr_floor,
        )

    @override
    def configure_optimizers(self) -> OptimizerLRScheduler:
        if self.optimizer_factory is None:
            optimizer: torch.optim.Optimizer = AdamW(
                self.parameter_groups(), self.lr, betas=self.betas
            )
        else:
            optimizer = self.optimizer_factory(self.parameters())
        self._total_steps = int(self.trainer.estimated_stepping_batches)
        # A scheduler saves the attributes of its function; a partial has no attributes.
        scheduler = LambdaLR(optimizer, partial(self.lr_factor))
        self._settings = Settings(optimizer, scheduler)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._loaded_step = checkpoint.get("global_step", 0)

    @override
    def on_train_start(self) -> None:
        self._logged_step = -1
        # The settings of this run replace the settings that a checkpoint has restored.
        if self._settings is not None:
            self._settings.restore()

    @override
    def on_validation_end(self) -> None:
        # Otherwise a later checkpoint's name would contain this value.
        self.trainer.callback_metrics.pop("step", None)

    def begins_logged_step(self) -> bool:
        """Return whether the batch is the first of a step whose values are logged."""
        step = self.trainer.global_step
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        # Accumulated batches share a step.
        if step % every or step == self._logged_step:
            return False
        self._logged_step = step
        return True

    def log_at_step(self, values: Mapping[str, float]) -> None:
        """Log values of the weights of the current step, before its update."""
        # The step is given explicitly: Lightning's own logging would write the step before.
        for logger in self.loggers:
            logger.log_metrics(dict(values), step=self.trainer.global_step)

    def log_evaluation(self, values: Mapping[str, float], *, batch_size: int | None = None) -> None:
        """Log values of validation or test at the step of the weights.

        Args:
            values: By their tags.
            batch_size: Weight of the values in a mean over batches.
        """
        # Lightning uses a metric named step as the position of the point. Its own count is the step
        # before in fit, and 0 when a checkpoint is evaluated.
        fitting = self.trainer.state.fn == "fit"
        step = float(self.trainer.global_step if fitting else self._loaded_step)
        self.log_dict({**values, "step": step}, batch_size=batch_size, sync_dist=True)
