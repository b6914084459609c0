"""A run that is refused leaves the file system as it was, and no run is written twice."""

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import TensorBoardLogger

from callbacks import SuperpositionGeometry
from tests.callbacks.toy import toy_data, toy_model, toy_trainer
from tests.runs.test_event_files import steps_of
from tests.test_cli import EVERY_10, TINY, TOY, assert_same_run, fit
from toolkit.runs.beginning import NewFiles
from toolkit.runs.folder_lock import locked
from toolkit.runs.table import read_measurements


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, folders as None."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def own_logger(folder: Path, kind: str = "TensorBoardLogger") -> list[str]:
    logger = [f"--trainer.logger={kind}", f"--trainer.logger.save_dir={folder}"]
    return [*logger, "--trainer.logger.name=own", "--trainer.logger.version=3"]


REFUSALS = {
    "model": ["--model.width=0"],
    "setup": ["--model.fail_in=setup"],
    "optimiser": ["--model.fail_in=configure_optimizers"],
    "validation": ["--model.fail_in=validation_step", "--trainer.num_sanity_val_steps=1"],
    "callback": ["--trainer.callbacks=SuperpositionGeometry"],
    "missing checkpoint": ["--ckpt_path=none.ckpt"],
    "trainer": ["--trainer.overfit_batches=-1"],
    "step 0": ["--trainer.callbacks=tests.tiny_run.FailsAtTheStart"],
}


@pytest.mark.parametrize(
    "logger",
    [
        "default",
        "TensorBoardLogger",
        pytest.param("CSVLogger", marks=pytest.mark.slow),
        pytest.param("none", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refused_run_leaves_nothing(tmp_path: Path, refusal: str, logger: str) -> None:
    args = {"default": [], "none": ["--trainer.logger=false"]}
    loggers = args.get(logger) or ([] if logger in args else own_logger(tmp_path / "own", logger))
    assert fit(tmp_path, *TINY, "--trainer.max_steps=3", *REFUSALS[refusal], *loggers) == 2
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_a_refused_evaluation_leaves_nothing(tmp_path: Path, command: str) -> None:
    assert fit(tmp_path, *TINY, "--model.fail_in=setup", command=command) == 2
    assert contents(tmp_path) == {}


def test_a_refused_run_leaves_earlier_versions_as_they_are(tmp_path: Path) -> None:
    assert fit(tmp_path, *TOY, "--trainer.max_steps=4") == 0
    before = contents(tmp_path)
    assert fit(tmp_path, *TOY, "--trainer.max_steps=4", "--model.lr=-1") == 2
    refused = ["--trainer.callbacks+=PackingGeometry", "--trainer.max_steps=4"]
    assert fit(tmp_path, *TOY, *refused) == 2
    assert contents(tmp_path) == before


@pytest.mark.slow
@pytest.mark.parametrize("change", [[], ["--seed_everything=1"], ["--model.lr=0.001"]])
def test_a_fixed_version_is_not_written_twice(
    tmp_path: Path, change: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*TOY, "--trainer.max_steps=4", *own_logger(tmp_path / "own")]
    assert fit(tmp_path, *args) == 0
    before = contents(tmp_path)
    capsys.readouterr()
    assert fit(tmp_path, *args, *change) == 2
    assert capsys.readouterr().err == (
        "error: trainer.logger: expected a folder without an earlier run, got "
        f"{tmp_path / 'own' / 'own' / 'version_3'}; give it another name or version\n"
    )
    assert contents(tmp_path) == before


def test_a_fixed_version_continues_without_doubled_points(tmp_path: Path) -> None:
    args = [*TOY, *EVERY_10, "--trainer.logger.default_hp_metric=false"]
    ending = ["--trainer.callbacks+=tests.tiny_run.EndAt", "--trainer.callbacks.step=25"]
    assert fit(tmp_path, *own_logger(tmp_path / "whole"), *args) == 0
    assert fit(tmp_path, *own_logger(tmp_path / "cut"), *args, *ending) == 1
    whole, cut = (tmp_path / name / "own" / "version_3" for name in ("whole", "cut"))
    last = cut / "checkpoints" / "last.ckpt"
    assert fit(tmp_path, *own_logger(tmp_path / "cut"), *args, f"--ckpt_path={last}") == 0
    assert_same_run(whole, cut)


@pytest.mark.parametrize("change", ["--model.widths=[2, 4]", "--model.widths=[1000000000000]"])
def test_a_refused_continuation_has_cut_nothing(tmp_path: Path, change: str) -> None:
    ending = ["--trainer.callbacks+=tests.tiny_run.EndAt", "--trainer.callbacks.step=25"]
    assert fit(tmp_path, *TOY, *EVERY_10, *ending) == 1
    version = tmp_path / "superposition_autoencoder" / "version_0"
    before = contents(tmp_path)
    assert max(row.step for row in read_measurements(version / "measurements.csv")) == 20
    assert max(steps_of(version)["toy/loss_mean/m_0002"]) == 24
    assert fit(tmp_path, *TOY, *EVERY_10, "--ckpt_path=last", change) == 2
    assert contents(tmp_path) == before


def test_a_run_that_is_being_written_is_not_continued_by_a_second_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = ["--trainer.callbacks+=tests.tiny_run.EndAt", "--trainer.callbacks.step=25"]
    assert fit(tmp_path, *TOY, *EVERY_10, *ending) == 1
    version = tmp_path / "superposition_autoencoder" / "version_0"
    with locked(version):
        before = contents(tmp_path)
        capsys.readouterr()
        # Another descriptor stands for another process.
        assert fit(tmp_path, *TOY, *EVERY_10, "--ckpt_path=last") == 2
        error = capsys.readouterr().err
        assert error.startswith("error: run: expected a folder to which no other process writes")
        assert error.count("\n") == 1
        assert contents(tmp_path) == before
    assert fit(tmp_path, *TOY, *EVERY_10, "--ckpt_path=last") == 0
    assert not (version / ".lock").exists()


def fit_with_a_trainer(folder: Path, **options: Any) -> None:
    logger = TensorBoardLogger(folder, name="own", version=3)
    trainer = toy_trainer(SuperpositionGeometry(schedule=2), logger=logger, max_steps=4)
    trainer.fit(toy_model(), toy_data(), **options)


def test_a_trainer_of_ones_own_does_not_double_the_table(tmp_path: Path) -> None:
    fit_with_a_trainer(tmp_path)
    table = tmp_path / "own" / "version_3" / "measurements.csv"
    before = table.read_bytes()
    with pytest.raises(ValueError, match=r"^trainer.logger: expected a folder without an earlier"):
        fit_with_a_trainer(tmp_path)
    assert table.read_bytes() == before


def test_a_validation_in_the_same_folder_is_no_earlier_run(tmp_path: Path) -> None:
    callback = SuperpositionGeometry(schedule=2)
    earlier = toy_trainer(max_steps=3, default_root_dir=tmp_path)
    earlier.fit(toy_model(), toy_data())
    earlier.save_checkpoint(tmp_path / "three.ckpt")
    logger = TensorBoardLogger(tmp_path, name="own", version=3)
    trainer = toy_trainer(callback, logger=logger, max_steps=4)
    model, data = toy_model(), toy_data()
    trainer.validate(model, data, ckpt_path=tmp_path / "three.ckpt", verbose=False)
    trainer.fit(toy_model(), data)
    rows = read_measurements(tmp_path / "own" / "version_3" / "measurements.csv")
    assert {row.step for row in rows} == {0, 2, 3, 4}


def test_files_of_others_in_a_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "hparams.yaml").write_text("of an earlier run")
    new = NewFiles(tmp_path, is_new=False)
    (tmp_path / "notes.txt").write_text("of somebody else")
    (tmp_path / "events.out.tfevents.1.host.2").touch()
    (tmp_path / "checkpoints").mkdir()
    assert new.event_files() == {tmp_path / "events.out.tfevents.1.host.2"}
    new.remove()
    assert {path.name for path in tmp_path.iterdir()} == {"hparams.yaml", "notes.txt"}


def test_folders_above_a_new_one_go_when_they_are_empty(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b" / "c") as is_new:
        new = NewFiles(tmp_path / "a" / "b" / "c", is_new=is_new)
        (tmp_path / "a" / "b" / "c" / "checkpoints").mkdir()
        (tmp_path / "a" / "b" / "c" / "notes.txt").touch()
        (tmp_path / "a" / "other").touch()
        new.remove()
    assert contents(tmp_path) == {"a": None, "a/other": b""}
