"""Checkpoints are whole files of the right step, whatever interrupts them."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import SingleDeviceStrategy

from tests.callbacks.toy import toy_data, toy_model, toy_trainer
from tests.runs.test_event_files import read_points
from tests.tiny_run import TinyData, TinyModel
from toolkit.runs.checkpoint import AtomicCheckpointIO, RunCheckpoint


class OtherCheckpointIO(TorchCheckpointIO):
    pass


def test_a_kill_while_saving_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"step": 1}, path)

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            AtomicCheckpointIO().save_checkpoint({"step": 2}, path)
    assert torch.load(path, weights_only=True) == {"step": 1}
    AtomicCheckpointIO().save_checkpoint({"step": 3}, path)
    assert torch.load(path, weights_only=True) == {"step": 3}
    assert [file.name for file in path.parent.iterdir()] == ["last.ckpt"]


def test_a_remote_path_is_left_to_lightning() -> None:
    AtomicCheckpointIO().save_checkpoint({"step": 1}, "memory://folder/last.ckpt")
    assert AtomicCheckpointIO().load_checkpoint("memory://folder/last.ckpt", weights_only=True) == {
        "step": 1
    }


@pytest.mark.parametrize(
    ("arguments", "steps", "epochs", "interval"),
    [
        ({}, 1000, 0, None),
        ({"every_n_train_steps": 7}, 7, 0, None),
        ({"every_n_epochs": 2}, 0, 2, None),
        ({"train_time_interval": timedelta(minutes=1)}, 0, 0, timedelta(minutes=1)),
    ],
    ids=["default", "steps", "epochs", "time"],
)
def test_intervals(
    arguments: dict[str, Any], steps: int, epochs: int, interval: timedelta | None
) -> None:
    checkpoint = RunCheckpoint(**arguments)
    assert checkpoint._every_n_train_steps == steps
    assert checkpoint.every_n_epochs == epochs
    assert checkpoint._train_time_interval == interval
    assert checkpoint.save_last
    assert checkpoint.filename == "{step}"


def trainer_in(folder: Path, **arguments: Any) -> L.Trainer:
    return L.Trainer(
        accelerator="cpu",
        max_steps=3,
        limit_val_batches=0,
        log_every_n_steps=50,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=TensorBoardLogger(folder, name="run", default_hp_metric=False),
        **arguments,
    )


@pytest.mark.parametrize(
    ("io", "expected"),
    [(None, AtomicCheckpointIO), (OtherCheckpointIO(), OtherCheckpointIO)],
    ids=["default", "of the user's own"],
)
def test_only_lightnings_own_way_of_saving_is_replaced(
    tmp_path: Path, io: TorchCheckpointIO | None, expected: type[TorchCheckpointIO]
) -> None:
    strategy = SingleDeviceStrategy(device="cpu", checkpoint_io=io)
    trainer = trainer_in(tmp_path, strategy=strategy, callbacks=[RunCheckpoint()])
    trainer.fit(TinyModel(), datamodule=TinyData())
    assert type(trainer.strategy.checkpoint_io) is expected


class FilesAtSave(L.Callback):
    """Reads the event files when a checkpoint has been written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.points: dict[int, dict[str, list[Any]]] = {}

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        self.points[trainer.global_step] = read_points(self.folder)


def test_points_are_on_disk_once_a_checkpoint_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(time=lambda: 1234.5)
    monkeypatch.setattr("toolkit.runs.checkpoint.time", clock)
    files = FilesAtSave(tmp_path / "run" / "version_0")
    trainer = trainer_in(tmp_path, callbacks=[RunCheckpoint(every_n_train_steps=1), files])
    trainer.fit(TinyModel(), datamodule=TinyData())
    # The model itself writes step n before update n + 1; the checkpoint follows that update.
    assert [step for step, _ in files.points[2]["own/loss"]] == [0, 1]
    path = tmp_path / "run" / "version_0" / "checkpoints" / "last.ckpt"
    assert torch.load(path, weights_only=True)["saved_at"] == 1234.5


def test_checkpoints_are_named_after_their_own_step(tmp_path: Path) -> None:
    save = RunCheckpoint(dirpath=str(tmp_path), save_top_k=-1, every_n_train_steps=3)
    trainer = toy_trainer(
        save,
        enable_checkpointing=True,
        val_check_interval=4,
        check_val_every_n_epoch=None,
        max_steps=9,
    )
    trainer.fit(toy_model(), toy_data())
    names = sorted(path.name for path in tmp_path.glob("step*"))
    assert names == ["step=3.ckpt", "step=6.ckpt", "step=9.ckpt"]
