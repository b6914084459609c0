"""A disk that is full: one line with the file, and a continued run that misses nothing."""

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from tests.commands.probe.probing import local, probe
from tests.lm.listed_hub import save_revision
from tests.lm.tiny_models import tiny_model
from tests.test_cli import EVERY_10, TOY, assert_same_run, fit
from toolkit.atomic import is_disk_full, naming, write_atomically
from toolkit.cli import main
from toolkit.lm.checkpoints.saving import save_folder
from toolkit.runs.table import TABLE_NAME, MeasurementTable, read_measurements

RUN = [*TOY, *EVERY_10, "--trainer.callbacks.schedule=1"]


WITH_CURVES = [*TOY, *EVERY_10, "--trainer.callbacks.schedule=5"]


def without_curves(folder: Path) -> list[str]:
    """A run whose table grows faster than anything else that it writes."""
    logger = ["--trainer.logger=CSVLogger", f"--trainer.logger.save_dir={folder}"]
    return [*RUN, *logger, "--trainer.logger.name=run", "--trainer.logger.version=0"]


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, as if there were no room for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def check_lines(error: str, path: Path) -> list[str]:
    lines = error.splitlines()
    (line,) = [line for line in lines if line.startswith("error: ")]
    assert line == f"error: {path}: File too large"
    assert "Traceback" not in error
    return lines[lines.index(line) + 1 :]


def size_of(path: Path) -> int:
    return path.stat().st_size


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Experiment logs directory:UserWarning")
def test_a_run_whose_table_has_no_room_continues_to_the_same_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(tmp_path, *without_curves(tmp_path / "whole")) == 0
    whole, cut = (tmp_path / name / "run" / "version_0" for name in ("whole", "cut"))
    room = size_of(whole / TABLE_NAME) * 3 // 4
    assert room > max(size_of(path) for path in whole.glob("checkpoints/*"))
    capsys.readouterr()
    with largest_file(room):
        assert fit(tmp_path, *without_curves(tmp_path / "cut")) == 1
    kept, command = check_lines(capsys.readouterr().err, cut / TABLE_NAME)
    last = cut / "checkpoints" / "last.ckpt"
    assert kept.endswith(f"in {last}; go on with")
    assert "--ckpt_path" in command
    step = torch.load(last, weights_only=True)["global_step"]
    table = read_measurements(cut / TABLE_NAME)
    assert step <= max(row.step for row in table) < 40
    assert fit(tmp_path, *without_curves(tmp_path / "cut"), f"--ckpt_path={last}") == 0
    assert_same_run(whole, cut)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Experiment logs directory:UserWarning")
def test_a_run_whose_checkpoint_has_no_room_keeps_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fit(tmp_path, *without_curves(tmp_path / "whole")) == 0
    whole, cut = (tmp_path / name / "run" / "version_0" for name in ("whole", "cut"))
    last = cut / "checkpoints" / "last.ckpt"
    full = _full_from_the(5)
    monkeypatch.setattr("lightning.fabric.plugins.TorchCheckpointIO.save_checkpoint", full)
    capsys.readouterr()
    assert fit(tmp_path, *without_curves(tmp_path / "cut")) == 1
    error = capsys.readouterr().err
    monkeypatch.undo()
    assert f"error: {cut / 'checkpoints' / 'step=30.ckpt'}: No space left on device\n" in error
    assert torch.load(last, weights_only=True)["global_step"] == 20
    assert not list(cut.rglob("*.tmp"))
    assert fit(tmp_path, *without_curves(tmp_path / "cut"), f"--ckpt_path={last}") == 0
    assert_same_run(whole, cut)


def _full_from_the(number: int) -> Any:
    """What saves checkpoints until there is no room for a further one."""
    from lightning.fabric.plugins import TorchCheckpointIO

    save, saved = TorchCheckpointIO.save_checkpoint, []

    def full(self: Any, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        saved.append(path)
        if len(saved) >= number:
            Path(path).write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        save(self, checkpoint, path, storage_options)

    return full


@pytest.mark.slow
def test_a_run_whose_curves_have_no_room_continues_to_the_same_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(tmp_path, *WITH_CURVES, "--run=whole") == 0
    whole, cut = (tmp_path / name / "version_0" for name in ("whole", "cut"))
    (events,) = whole.glob("events.*")
    capsys.readouterr()
    with largest_file(size_of(events) * 3 // 4):
        assert fit(tmp_path, *WITH_CURVES, "--run=cut") == 1
    notes = check_lines(capsys.readouterr().err, cut)
    assert "go on with" in notes[0]
    assert fit(tmp_path, *WITH_CURVES, "--run=cut", "--ckpt_path=last") == 0
    assert_same_run(whole, cut)


def test_a_first_checkpoint_without_room_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with largest_file(4096):
        assert main(["fit", *TOY, *EVERY_10, f"--trainer.default_root_dir={tmp_path}"]) in {1, 2}
    error = capsys.readouterr().err
    assert f"error: {tmp_path}" in error
    assert error.rstrip().splitlines()[-1].endswith("File too large")
    assert "Traceback" not in error


@pytest.mark.slow
def test_a_walk_without_room_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series = tmp_path / "hf"
    for step in (1, 2, 3):
        save_revision(series / f"step-{step}", seed=step)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    assert probe(whole, local(f"{series}/*", name="tiny")) == 0
    tables = [folder / "runs" / "walk" / "version_0" / TABLE_NAME for folder in (whole, cut)]
    capsys.readouterr()
    with largest_file(size_of(tables[0]) // 2):
        assert probe(cut, local(f"{series}/*", name="tiny")) == 1
    check_lines(capsys.readouterr().err, tables[1])
    measured = {row.step for row in read_measurements(tables[1])}
    assert 1 in measured
    assert 3 not in measured
    assert probe(cut, local(f"{series}/*", name="tiny")) == 0
    rows = [
        [_comparable(row) for row in sorted(read_measurements(table), key=lambda row: row.step)]
        for table in tables
    ]
    assert sorted(rows[0]) == sorted(rows[1])


def _comparable(row: Any) -> tuple[str, ...]:
    kept = row._replace(conditions={})
    return tuple(map(repr, kept))


def test_a_table_without_room_stays_readable(tmp_path: Path) -> None:
    from tests.runs.test_folder import row_at

    table = MeasurementTable(tmp_path / TABLE_NAME)
    table.append([row_at(0)])
    with (
        largest_file(size_of(table.path) + 5),
        pytest.raises(OSError, match="File too large") as caught,
    ):
        table.append([row_at(1)])
    assert caught.value.filename == str(table.path)
    assert [row.step for row in table.rows()] == [0]
    table.append([row_at(1)])
    assert [row.step for row in table.rows()] == [0, 1]


def test_an_atomic_file_without_room_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_atomically(path, b"old")
    with largest_file(10), pytest.raises(OSError, match="File too large") as caught:
        write_atomically(path, b"new" * 100)
    assert caught.value.filename == str(path)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [(path.name, b"old")]


def test_a_hugging_face_folder_without_room_is_not_there(tmp_path: Path) -> None:
    with largest_file(2000), pytest.raises(OSError, match="File too large") as caught:
        save_folder(tmp_path / "hf", tiny_model(), None)
    assert is_disk_full(caught.value)
    assert not list(tmp_path.iterdir())


def test_another_error_of_safetensors_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model()

    def fails(*_: Any, **__: Any) -> None:
        raise SafetensorError("no such dtype")

    monkeypatch.setattr(type(model), "save_pretrained", fails)
    with pytest.raises(SafetensorError, match="no such dtype"):
        save_folder(tmp_path / "hf", model, None)


def test_only_a_full_disk_is_named_after_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="refused") as caught, naming(tmp_path):
        raise OSError(errno.ECONNREFUSED, "refused")
    assert caught.value.filename is None
    assert not is_disk_full(caught.value)
    assert not is_disk_full(ValueError("no room"))
