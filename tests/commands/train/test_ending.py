"""What is kept of a run that a signal or an error ends, and that it goes on as if nothing had."""

import errno
import os
import signal
from pathlib import Path
from typing import Any, Literal

import lightning as L
import pytest
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import Callback

from tests.runs.test_event_files import read_points, steps_of
from tests.test_cli import (
    EVERY_10,
    TINY,
    TOY,
    assert_same_run,
    assert_same_state,
    fit,
    last_checkpoint,
    shell,
)

VALIDATED = [*TINY, *EVERY_10, "--trainer.val_check_interval=5"]
VALIDATED += ["--trainer.check_val_every_n_epoch=null"]
Hook = Literal["setup", "training", "update", "validation", "last_hook"]


class In(Callback):
    """Ends a run in one of its hooks, once a step is reached."""

    def __init__(
        self,
        hook: Hook,
        step: int,
        by: Literal["SIGTERM", "SIGINT", "error"] = "error",
        rank: int = 0,
    ) -> None:
        self.hook = hook
        self.step = step
        self.by = by
        self.rank = rank
        self.has_come = False

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._come("setup", trainer)

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        self._come("training", trainer)

    def on_before_optimizer_step(self, trainer: L.Trainer, *_: Any) -> None:
        self._come("update", trainer)

    def on_validation_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        self._come("validation", trainer)

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        self._come("last_hook", trainer)

    def _come(self, hook: str, trainer: L.Trainer) -> None:
        here = (hook, trainer.global_step, trainer.global_rank)
        if self.has_come or here != (self.hook, self.step, self.rank):
            return
        self.has_come = True
        if self.by == "error":
            raise RuntimeError(f"ended in {hook}")
        os.kill(os.getpid(), signal.Signals[self.by])


def ending(hook: Hook, step: int, by: str) -> list[str]:
    options = {"hook": hook, "step": step, "by": by}
    return [
        "--trainer.callbacks+=tests.commands.train.test_ending.In",
        *(f"--trainer.callbacks.{name}={value}" for name, value in options.items()),
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing has ended."""
    root = tmp_path_factory.mktemp("whole")
    assert fit(root, *VALIDATED) == 0
    return root / "tiny_model" / "version_0"


@pytest.mark.parametrize(
    ("hook", "step", "by", "code", "kept"),
    [
        # The update that is under way comes first.
        ("training", 12, "SIGTERM", 143, 13),
        ("update", 12, "SIGINT", 130, 13),
        ("last_hook", 12, "SIGTERM", 143, 12),
        # So does the validation of a step, one that is due and one that is under way.
        ("last_hook", 15, "SIGTERM", 143, 15),
        ("validation", 15, "SIGINT", 130, 15),
        ("validation", 20, "SIGTERM", 143, 20),
        # An error keeps the step behind the last update.
        ("last_hook", 12, "error", 1, 12),
        ("last_hook", 15, "error", 1, 15),
        ("validation", 15, "error", 1, 15),
        # Weights and random states of an update that is under way fit no step.
        ("training", 12, "error", 1, 10),
        ("update", 12, "error", 1, 10),
    ],
)
def test_a_run_keeps_whole_steps_and_goes_on_from_them(
    tmp_path: Path,
    whole: Path,
    capsys: pytest.CaptureFixture[str],
    hook: Hook,
    step: int,
    by: str,
    code: int,
    kept: int,
) -> None:
    assert fit(tmp_path, *VALIDATED, *ending(hook, step, by)) == code
    said = capsys.readouterr().err
    version = tmp_path / "tiny_model" / "version_0"
    assert last_checkpoint(version)["global_step"] == kept
    what = "is the last one that is kept" if by == "error" and kept < step else "is kept"
    assert f"step {kept} {what}, in {version / 'checkpoints' / 'last.ckpt'}; go on with\n" in said
    assert fit(tmp_path, *VALIDATED, "--ckpt_path=last") == 0
    assert_same_run(whole, version)
    assert steps_of(version)["val_loss"] == steps_of(whole)["val_loss"]


EPOCHS = [*TOY, "--trainer.max_epochs=4", "--data.steps_per_epoch=10"]


@pytest.fixture(scope="module", params=["every_n_train_steps=5", "every_n_epochs=1"])
def epochs(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[list[str], Path]:
    """Arguments of a run of epochs, each validated at its end, and such a run."""
    root = tmp_path_factory.mktemp("epochs")
    arguments = [*EPOCHS, f"--checkpoint.{request.param}"]
    assert fit(root, *arguments) == 0
    return arguments, root / "superposition_autoencoder" / "version_0"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hook", "step", "by"),
    [
        ("last_hook", 10, "SIGTERM"),
        ("validation", 20, "SIGINT"),
        ("training", 20, "SIGTERM"),
        pytest.param("last_hook", 20, "error", marks=pytest.mark.slow),
        pytest.param("validation", 20, "error", marks=pytest.mark.slow),
        pytest.param("update", 20, "error", marks=pytest.mark.slow),
        pytest.param("update", 25, "error", marks=pytest.mark.slow),
    ],
)
def test_a_run_of_epochs_goes_on_from_any_of_its_steps(
    tmp_path: Path, epochs: tuple[list[str], Path], hook: Hook, step: int, by: str
) -> None:
    arguments, whole = epochs
    assert fit(tmp_path, *arguments, *ending(hook, step, by)) != 0
    assert fit(tmp_path, *arguments, "--ckpt_path=last") == 0
    assert_same_run(whole, tmp_path / "superposition_autoencoder" / "version_0")


@pytest.mark.parametrize(("by", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_before_the_first_batch_nothing_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str, code: int
) -> None:
    assert fit(tmp_path, *VALIDATED, *ending("setup", 0, by)) == code
    assert capsys.readouterr().err.endswith("interrupted\n")
    assert list(tmp_path.rglob("*.ckpt")) == []


def test_accumulated_gradients_are_used_up_first(tmp_path: Path) -> None:
    accumulated = [*TINY, *EVERY_10, "--trainer.accumulate_grad_batches=3"]
    assert fit(tmp_path, *accumulated, "--run=whole") == 0
    assert fit(tmp_path, *accumulated, "--run=ended", *ending("training", 12, "SIGTERM")) == 143
    folders = [tmp_path / name / "version_0" for name in ("whole", "ended")]
    assert last_checkpoint(folders[1])["global_step"] == 13
    assert fit(tmp_path, *accumulated, "--run=ended", "--ckpt_path=last") == 0
    ends = [last_checkpoint(folder) for folder in folders]
    for key in ("global_step", "state_dict", "optimizer_states"):
        assert_same_state(ends[0][key], ends[1][key])
    assert read_points(folders[0]) == read_points(folders[1])


def test_a_run_at_its_last_step_finishes(tmp_path: Path, whole: Path) -> None:
    assert fit(tmp_path, *VALIDATED, *ending("update", 39, "SIGTERM")) == 0
    version = tmp_path / "tiny_model" / "version_0"
    assert (version / "summary.json").exists()
    assert_same_run(whole, version)


def test_where_no_checkpoint_is_wanted_a_signal_ends_the_run_all_the_same(tmp_path: Path) -> None:
    off = "--trainer.enable_checkpointing=false"
    assert fit(tmp_path, *TINY, *EVERY_10[:1], off, *ending("training", 3, "SIGTERM")) == 143
    assert list(tmp_path.rglob("*.ckpt")) == []


def test_a_full_disk_leaves_the_last_good_checkpoint(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save = TorchCheckpointIO.save_checkpoint

    def fill(io: TorchCheckpointIO, checkpoint: dict[str, Any], path: Path, *more: Any) -> None:
        if checkpoint["global_step"] < 20:
            save(io, checkpoint, path, *more)
            return
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(TorchCheckpointIO, "save_checkpoint", fill)
        assert fit(tmp_path, *VALIDATED) == 1
    version = tmp_path / "tiny_model" / "version_0"
    *_, lost, kept, _ = capsys.readouterr().err.splitlines()
    assert lost.endswith("step=20.ckpt.tmp: No space left on device")
    assert kept.startswith(f"step 10 is the last one that is kept, in {version}")
    names = {path.name for path in (version / "checkpoints").iterdir()}
    assert names == {"last.ckpt", "step=10.ckpt"}
    assert fit(tmp_path, *VALIDATED, "--ckpt_path=last") == 0
    assert_same_run(whole, version)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_process_ends_all_after_the_same_update(tmp_path: Path, rank: int) -> None:
    two = ["--trainer.devices=2", "--trainer.strategy=ddp", "--trainer.accelerator=cpu"]
    args = ["fit", *VALIDATED, *two]
    end = [*ending("training", 12, "SIGTERM"), f"--trainer.callbacks.rank={rank}"]
    assert shell(tmp_path, *args, "--run=whole").returncode == 0
    done = shell(tmp_path, *args, "--run=ended", *end)
    assert done.returncode == 143, done.stderr
    assert "step 13 is kept" in done.stderr
    assert shell(tmp_path, *args, "--run=ended", "--ckpt_path=last").returncode == 0
    folders = [tmp_path / "checkpoints" / name / "version_0" for name in ("whole", "ended")]
    assert len(last_checkpoint(folders[1])["random_states"]) == 2
    assert_same_run(*folders)
