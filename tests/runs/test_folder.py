"""Names, versions and which of them can be continued."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from tests.runs.test_event_files import steps_of, write_points
from toolkit.runs.folder import (
    RunFolder,
    check_complete,
    log_folder,
    read_checkpoint,
    rewind,
    run_name,
)
from toolkit.runs.table import MeasurementRow, MeasurementTable, read_measurements


@pytest.mark.parametrize(
    ("given", "configs", "class_path", "expected"),
    [
        ("mine", ["a/toy.yaml"], "pkg.SuperpositionAutoencoder", "mine"),
        (None, ["base.yaml", "a/toy.yaml"], "pkg.SuperpositionAutoencoder", "toy"),
        (None, [], "pkg.models.SuperpositionAutoencoder", "superposition_autoencoder"),
        (None, [], "LanguageModel", "language_model"),
        (None, [], "pkg.GPT2Model", "gpt2_model"),
        ("sweep/m_10/", [], None, "sweep/m_10"),
    ],
)
def test_run_name(
    given: str | None, configs: list[str], class_path: str | None, expected: str
) -> None:
    assert run_name(given, configs, class_path) == expected


@pytest.mark.parametrize("name", ["", "/tmp/x", "../x", "a/../../x", ".", None])
def test_run_name_stays_below_its_root(name: str | None) -> None:
    with pytest.raises(ValueError, match=r"^run: expected the name of a folder, got .*--run NAME$"):
        run_name(name, [], None)


def make_version(root: Path, version: int, *, checkpoint: bool, summary: bool) -> Path:
    folder = root / "toy" / f"version_{version}"
    (folder / "checkpoints").mkdir(parents=True)
    if checkpoint:
        (folder / "checkpoints" / "last.ckpt").touch()
    if summary:
        (folder / "summary.json").touch()
    return folder


def test_a_folder_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "toy")
    assert folder.path == tmp_path / "toy"
    assert folder.versions() == []
    assert folder.next_version() == 0
    assert folder.unfinished() is None
    with pytest.raises(ValueError, match=r"^ckpt_path: expected a run with a checkpoint in .*toy$"):
        folder.newest_checkpoint()


def test_the_newest_unfinished_version_has_a_checkpoint_and_no_summary(tmp_path: Path) -> None:
    make_version(tmp_path, 2, checkpoint=True, summary=False)
    make_version(tmp_path, 9, checkpoint=True, summary=False)
    finished = make_version(tmp_path, 10, checkpoint=True, summary=True)
    make_version(tmp_path, 11, checkpoint=False, summary=False)
    (tmp_path / "toy" / "version_x").mkdir()
    (tmp_path / "toy" / "version_12").touch()
    folder = RunFolder(tmp_path, "toy")
    assert folder.versions() == [2, 9, 10, 11]
    assert folder.next_version() == 12
    assert folder.unfinished() == folder.version_to_continue() == 9
    assert folder.newest_checkpoint() == finished / "checkpoints" / "last.ckpt"


def test_a_run_that_ended_before_its_first_checkpoint_is_told_apart(tmp_path: Path) -> None:
    make_version(tmp_path, 0, checkpoint=True, summary=True)
    (make_version(tmp_path, 1, checkpoint=False, summary=False) / "config.yaml").touch()
    message = r"^ckpt_path: expected a checkpoint in .*version_1, found none: the run ended before"
    with pytest.raises(ValueError, match=message):
        RunFolder(tmp_path, "toy").version_to_continue()


def test_nothing_is_unfinished_once_all_have_a_summary(tmp_path: Path) -> None:
    make_version(tmp_path, 0, checkpoint=True, summary=True)
    folder = RunFolder(tmp_path, "toy")
    assert folder.unfinished() is None
    with pytest.raises(ValueError, match=r"^ckpt_path: expected an unfinished run in .*toy, found"):
        folder.version_to_continue()


@pytest.mark.parametrize(
    ("loggers", "expected"),
    [
        ([], "root"),
        ([("tensorboard", "a", 3)], "a/toy/version_3"),
        ([("remote", "a", "id"), ("csv", "b", 1)], "b/toy/version_1"),
        ([("remote", "a", "id")], "a/toy/id"),
    ],
    ids=["none", "tensorboard", "first file logger", "no file logger"],
)
def test_log_folder(tmp_path: Path, loggers: list[tuple[str, str, Any]], expected: str) -> None:
    kinds: dict[str, Any] = {
        "tensorboard": TensorBoardLogger,
        "csv": CSVLogger,
        "remote": lambda save_dir, name, version: SimpleNamespace(
            log_dir=None, save_dir=save_dir, name=name, version=version
        ),
    }
    trainer: Any = SimpleNamespace(
        loggers=[kinds[k](str(tmp_path / d), name="toy", version=v) for k, d, v in loggers],
        default_root_dir=str(tmp_path / "root"),
    )
    assert log_folder(trainer) == tmp_path / expected


def row_at(step: int) -> MeasurementRow:
    return MeasurementRow(
        "toy", "Tiny", "", "", step, "toy", "loss", "m_4", step / 7, None, {}, "float32", "", {}
    )


def test_rewind_drops_what_lies_beyond_the_checkpoint(tmp_path: Path) -> None:
    folder = make_version(tmp_path, 0, checkpoint=False, summary=False)
    torch.save({"global_step": 20, "saved_at": 101.0}, folder / "checkpoints" / "last.ckpt")
    MeasurementTable(folder / "measurements.csv").append(map(row_at, [0, 10, 20, 25]))
    write_points(folder, {"a": [0, 10, 20]}, wall_time=100.0)
    write_points(folder, {"b": [10, 20, 30]}, wall_time=102.0)
    assert rewind(folder) == 20
    assert [row.step for row in read_measurements(folder / "measurements.csv")] == [0, 10, 20]
    assert steps_of(folder) == {"a": [0, 10, 20], "b": [10]}


def test_rewind_needs_neither_table_nor_time(tmp_path: Path) -> None:
    folder = make_version(tmp_path, 0, checkpoint=False, summary=False)
    torch.save({"global_step": 20}, folder / "checkpoints" / "last.ckpt")
    write_points(folder, {"a": [20, 30]})
    assert rewind(folder) == 20
    assert steps_of(folder) == {"a": [20]}
    assert not (folder / "measurements.csv").exists()


class RunsCode:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("code of a checkpoint was run",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no checkpoint", "expected a checkpoint of tensors and plain types, got .*x.ckpt; --we"),
        ({"global_step": 1, "more": RunsCode()}, "expected a checkpoint of tensors and plain"),
        ({"weights": torch.ones(2)}, "expected a checkpoint of a Lightning run, got .*x.ckpt$"),
        (torch.ones(2), "expected a checkpoint of a Lightning run"),
    ],
    ids=["bytes", "code", "other keys", "tensor"],
)
def test_read_checkpoint_refuses_anything_else(
    tmp_path: Path, content: object, message: str
) -> None:
    path = tmp_path / "x.ckpt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=f"^ckpt_path: {message}"):
        read_checkpoint(path)


def test_read_checkpoint_returns_its_content(tmp_path: Path) -> None:
    torch.save({"global_step": 3, "weights": torch.arange(4.0)}, tmp_path / "x.ckpt")
    checkpoint = read_checkpoint(tmp_path / "x.ckpt")
    assert checkpoint["global_step"] == 3
    assert checkpoint["weights"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("is_continued", [True, False])
def test_a_checkpoint_lacks_what_a_run_needs(tmp_path: Path, is_continued: bool) -> None:
    weights = {"pytorch-lightning_version": "2.6", "state_dict": {}}
    rest: dict[str, Any] = {"optimizer_states": [], "lr_schedulers": [], "loops": {}}
    path = tmp_path / "some.ckpt"
    check_complete(weights | rest, path, is_continued=is_continued)
    with pytest.raises(ValueError, match=r"^ckpt_path: .*some.ckpt without state_dict"):
        check_complete({"pytorch-lightning_version": "2.6"}, path, is_continued=is_continued)
    if is_continued:
        with pytest.raises(
            ValueError, match=r"a whole run, got .* without optimizer_states, lr_sch"
        ):
            check_complete(weights, path, is_continued=True)
    else:
        check_complete(weights, path, is_continued=False)
