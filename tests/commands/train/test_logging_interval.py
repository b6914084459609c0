"""How often a run logs its training loss."""

from pathlib import Path

import pytest

from tests.runs.test_event_files import steps_of
from toolkit.cli import main
from toolkit.commands.train.logging_interval import interval

TINY = ["--model=tests.tiny_run.TinyModel", "--data=tests.tiny_run.TinyData"]
QUIET = ["--trainer.enable_progress_bar=false", "--trainer.num_sanity_val_steps=0"]


def test_about_a_hundred_points_the_last_among_them() -> None:
    for steps in (1, 7, 20, 99, 100, 1000, 1500, 3000, 20_000, 40_000):
        every = interval(steps)
        assert 1 <= every <= 50
        assert steps % every == 0
        assert steps // every >= min(steps, 100)
    assert interval(10_007) == 50  # a prime number of steps


def logged_steps(folder: Path) -> list[int]:
    return sorted(steps_of(folder)["lightning/loss"])


def test_a_short_run_logs_its_loss_and_its_continuation_goes_on(tmp_path: Path) -> None:
    args = ["fit", *TINY, *QUIET, f"--trainer.default_root_dir={tmp_path}", "--run=a"]
    assert main([*args, "--trainer.max_steps=3"]) == 0
    first = tmp_path / "a" / "version_0"
    # Lightning's own numbering is one behind.
    assert logged_steps(first) == [0, 1, 2]
    assert main([*args, "--trainer.max_steps=3", "--trainer.log_every_n_steps=2"]) == 0
    assert logged_steps(tmp_path / "a" / "version_1") == [1]
    (first / "summary.json").unlink()
    (tmp_path / "a" / "version_1" / "summary.json").touch()
    again = [*args, "--trainer.max_steps=6", f"--ckpt_path={first}/checkpoints/last.ckpt"]
    assert main(again) == 0
    assert logged_steps(tmp_path / "a" / "version_2") == [3, 4, 5]


@pytest.mark.parametrize("epochs", [1, 2])
def test_the_length_may_be_given_in_epochs(tmp_path: Path, epochs: int) -> None:
    args = ["fit", *TINY, *QUIET, f"--trainer.default_root_dir={tmp_path}", "--run=a"]
    length = [f"--trainer.max_epochs={epochs}", "--trainer.limit_train_batches=4"]
    assert main([*args, *length]) == 0
    assert logged_steps(tmp_path / "a" / "version_0") == list(range(4 * epochs))
