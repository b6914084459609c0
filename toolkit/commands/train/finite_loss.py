"""A warning about the first training loss that is not finite; the run continues."""

import math
from collections.abc import Mapping
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from typing_extensions import override

from toolkit.runs.nonfinite import WarnsOfNonfinite

# Reading a number from a GPU waits for the GPU's work.
_STEPS_BETWEEN_READS = 50


class FiniteLoss(Callback, WarnsOfNonfinite):
    """Warns once, naming the first step whose training loss is NaN or infinite.

    As in the curves, the step is the number of updates behind the weights of the loss.

    Attributes:
        has_warned: Whether it has warned.
    """

    def __init__(self) -> None:
        self.has_warned = False
        self._step = 0
        self._unread: list[tuple[int, Tensor]] = []

    @override
    def on_train_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        self._step = trainer.global_step

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Check the loss, on a GPU at every fiftieth step."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if self.has_warned or not isinstance(loss, Tensor) or loss.numel() != 1:
            return
        self._unread.append((self._step, loss.detach()))
        if loss.device.type == "cpu" or len(self._unread) >= _STEPS_BETWEEN_READS:
            self._read()

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._read()

    def _read(self) -> None:
        steps = [step for step, _ in self._unread]
        values = (
            torch.stack([loss.reshape(()) for _, loss in self._unread]).tolist() if steps else []
        )
        self._unread.clear()
        for step, value in zip(steps, values, strict=True):
            if not math.isfinite(value):
                self.has_warned = True
                rank_zero_warn(
                    f"training loss: {value} at step {step}, the first that is not finite; the "
                    "run goes on, and what depends on it is NaN"
                )
                return
