"""The bar of a run counts the run's steps and shows its newest loss."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest
from lightning.pytorch.callbacks import Callback

from tests.callbacks.toy import toy_data, toy_model, toy_trainer
from toolkit.console.training import RunProgressBar
from toolkit.runs.checkpoint import RunCheckpoint


class EveryBatch(RunProgressBar):
    """A bar for which it is always time, and which keeps what it has shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[tuple[float, float | None]] = []
        self.losses: list[float] = []
        self.num_timed = 0.0

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        self._updated_at = 0.0
        super().on_train_batch_end(trainer, *args)
        self.shown.append((self.train_progress_bar.completed, self.train_progress_bar.total))
        self.num_timed = sum(sample.completed for sample in self.train_progress_bar._progress)
        model = args[0]
        self.losses.append(float(self.get_metrics(trainer, model)["loss"]))  # type: ignore[arg-type]


class Losses(Callback):
    """The loss of the widest width in each batch, computed once more before the update."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        model: Any = pl_module
        self.values.append(float(model.losses(batch)[-1].detach()))


def bar_of(folder: Path, ckpt_path: str | None = None, **options: Any) -> EveryBatch:
    bar, losses = EveryBatch(), Losses()
    keeper = RunCheckpoint(dirpath=str(folder), every_n_train_steps=5)
    quiet = {"log_every_n_steps": 50, "limit_val_batches": 0}
    shown = {"enable_checkpointing": True, "enable_progress_bar": True}
    trainer = toy_trainer(bar, losses, keeper, **(quiet | shown | options))
    trainer.fit(
        toy_model(),
        datamodule=toy_data(steps_per_epoch=4),
        ckpt_path=ckpt_path,
        weights_only=True,
    )
    assert bar.losses == losses.values
    return bar


@pytest.mark.filterwarnings("ignore:.*exists and is not empty")
def test_a_continued_run_counts_its_own_steps(tmp_path: Path) -> None:
    first = bar_of(tmp_path, max_steps=6)
    assert first.shown == [(step, 6) for step in range(1, 7)]
    second = bar_of(tmp_path, str(tmp_path / "last.ckpt"), max_steps=10)
    assert second.shown == [(step, 10) for step in range(7, 11)]
    # What speed and time left are computed from.
    assert second.num_timed == 4


def test_updates_are_counted_not_the_batches_for_them(tmp_path: Path) -> None:
    bar = bar_of(tmp_path, max_steps=3, accumulate_grad_batches=2)
    assert bar.shown == [(0, 3), (1, 3), (1, 3), (2, 3), (2, 3), (3, 3)]


def test_a_run_of_epochs_has_a_bar_for_each(tmp_path: Path) -> None:
    bar = bar_of(tmp_path, max_steps=-1, max_epochs=2)
    assert bar.shown == [(batch, 4) for batch in (1, 2, 3, 4)] * 2
