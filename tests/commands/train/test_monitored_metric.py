"""A metric that nothing logs is refused early; a metric that comes later is not."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest

from tests.tiny_run import TinyModel
from toolkit.cli import main

DATA = "--data=tests.tiny_run.TinyData"
SHORT = ["--trainer.max_steps=6", "--trainer.log_every_n_steps=2", "--run=a"]


class LoggingLate(TinyModel):
    def on_train_epoch_end(self) -> None:
        self.log("late", 1.0)


class Watcher(L.Callback):
    """A callback of the user's, which may log whenever it likes."""


def run(folder: Path, model: str, *args: str) -> int:
    where = [f"--trainer.default_root_dir={folder}", "--trainer.enable_progress_bar=false"]
    return main(["fit", f"--model={model}", DATA, *SHORT, *where, *args])


@pytest.mark.parametrize("sanity", [0, 2])
def test_a_metric_that_nothing_logs(
    tmp_path: Path, sanity: int, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [f"--trainer.num_sanity_val_steps={sanity}", "--trainer.val_check_interval=4"]
    assert run(tmp_path, "tests.tiny_run.TinyModel", "--checkpoint.monitor=val_los", *args) == 2
    message = (
        "error: checkpoint.monitor: expected a metric that is logged, one of lightning/loss, "
        "val_loss, got val_los; did you mean val_loss?\n"
    )
    assert capsys.readouterr().err == message
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("monitor", ["val_loss", "lightning/loss", "step", "epoch"])
def test_a_metric_that_is_logged(tmp_path: Path, monitor: str) -> None:
    assert run(tmp_path, "tests.tiny_run.TinyModel", f"--checkpoint.monitor={monitor}") == 0


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (f"{__name__}.LoggingLate", ["--checkpoint.monitor=late"]),
        (
            "tests.tiny_run.TinyModel",
            ["--checkpoint.monitor=other", f"--trainer.callbacks+={__name__}.Watcher"],
        ),
    ],
)
def test_a_metric_that_may_come_later_is_not_refused(
    tmp_path: Path, model: str, args: list[str], recwarn: Any
) -> None:
    assert run(tmp_path, model, *args, "--trainer.limit_train_batches=6") == 0


def test_a_measured_value_can_be_monitored(tmp_path: Path) -> None:
    toy = ["--model.num_features=12", "--model.widths=[2, 3]", "--data=SparseFeatures"]
    toy += ["--data.num_features=12", "--data.batch_size=8", "--data.num_held_out=2"]
    toy += ["--data.frequencies=PowerFrequencies", "--trainer.callbacks+=SuperpositionGeometry"]
    monitor = "superposition/represented_fraction/m_0002"
    where = [f"--trainer.default_root_dir={tmp_path}", "--trainer.enable_progress_bar=false"]
    args = ["fit", "--model=SuperpositionAutoencoder", *toy, *SHORT, *where]
    assert main([*args, f"--checkpoint.monitor={monitor}"]) == 0
    assert main([*args, "--checkpoint.monitor=superposition/nope"]) == 2
    assert [path.name for path in tmp_path.glob("*/version_*")] == ["version_0"]
