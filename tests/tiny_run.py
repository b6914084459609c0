"""A user's own model, data and callbacks, small enough to run through the command line in tests."""

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, Literal

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

Place = Literal["setup", "configure_optimizers", "training_step", "validation_step"]


class TinyModel(L.LightningModule):
    def __init__(self, width: int = 3, lr: float = 0.1, fail_in: Place | None = None) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width: expected at least 1, got {width}")
        self.save_hyperparameters()
        self.lr = lr
        self.fail_in = fail_in
        self.layer = torch.nn.Linear(3, width)

    def _pass_through(self, place: Place) -> None:
        if self.fail_in == place:
            sys.stderr.write("written before the failure\n")
            raise ValueError(f"fail_in: expected another place, got {place}")

    def setup(self, stage: str) -> None:
        self._pass_through("setup")

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self._pass_through("training_step")
        loss: Tensor = self.layer(batch).square().mean()
        # Lightning's own numbering, one behind the updates.
        self.log("lightning/loss", loss)
        for logger in self.loggers:
            logger.log_metrics({"own/loss": float(loss.detach())}, step=self.trainer.global_step)
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self._pass_through("validation_step")
        self.log("val_loss", self.layer(batch[0]).square().mean())

    def predict_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        result: Tensor = self.layer(batch[0])
        return result

    test_step = validation_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        self._pass_through("configure_optimizers")
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


class TinyStream:
    """Batches that are a function of their position."""

    def __init__(self) -> None:
        self.position = 0

    def __len__(self) -> int:
        # Lightning fetches one batch ahead of a loader without a length, which its state shows.
        return 1000

    def __iter__(self) -> Iterator[Tensor]:
        while self.position < len(self):
            self.position += 1
            generator = torch.Generator().manual_seed(self.position)
            yield torch.randn(4, 3, generator=generator)

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.position = state_dict["position"]


class TinyData(L.LightningDataModule):
    def __init__(self, rates: list[float] | None = None) -> None:
        super().__init__()
        self.rates = rates

    def train_dataloader(self) -> TinyStream:
        return TinyStream()

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(torch.ones(2, 3)), batch_size=2)

    test_dataloader = val_dataloader
    predict_dataloader = val_dataloader


class EndAt(L.Callback):
    """Ends the run after a number of updates."""

    def __init__(
        self, step: int, by: Literal["kill", "interrupt", "terminate", "error"] = "error"
    ) -> None:
        self.step = step
        self.by = by

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step != self.step:
            return
        if self.by == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.by == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        if self.by == "error":
            raise RuntimeError("ended by the test")
        if self.by == "terminate":
            os.kill(os.getpid(), signal.SIGTERM)


class FailsAtTheStart(L.Callback):
    """Fails after everything has been set up, and before the first step."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        for logger in trainer.loggers:
            logger.log_metrics({"own/start": 1.0}, step=0)
        raise ValueError("start: expected another callback")


class SpoilAt(L.Callback):
    """Makes one weight NaN after a number of updates."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any
    ) -> None:
        if trainer.global_step == self.step:
            with torch.no_grad():
                next(pl_module.parameters()).view(-1)[0] = torch.nan
