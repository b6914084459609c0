"""A file or folder is there as a whole or not at all, and on disk before anybody relies on it."""

import os
from pathlib import Path

import pytest

from toolkit.atomic import new_folder, replacing, write_atomically


def test_it_appears_once_it_is_full(tmp_path: Path) -> None:
    path = tmp_path / "parent" / "folder"
    with new_folder(path) as temporary:
        (temporary / "file").write_text("content")
        assert not path.exists()
    assert (path / "file").read_text() == "content"
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode == path.parent.stat().st_mode


def test_nothing_is_left_of_a_failure(tmp_path: Path) -> None:
    def fail() -> None:
        with new_folder(tmp_path / "folder") as temporary:
            (temporary / "file").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_the_first_of_two_stays(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with new_folder(path) as late:
        with new_folder(path) as early:
            (early / "early").touch()
        (late / "late").touch()
    assert [file.name for file in path.iterdir()] == ["early"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.touch()
    with pytest.raises(OSError, match="folder"), new_folder(path):
        pass
    assert list(tmp_path.iterdir()) == [path]


def recorded_syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Inodes that are written to disk from now on, and -1 for each renaming."""
    events: list[int] = []
    fsync, replace, rename = os.fsync, Path.replace, Path.rename

    def noted_sync(descriptor: int) -> None:
        events.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    def noted_replace(self: Path, target: Path) -> Path:
        events.append(-1)
        return replace(self, target)

    def noted_rename(self: Path, target: Path) -> Path:
        events.append(-1)
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    monkeypatch.setattr(Path, "rename", noted_rename)
    return events


def test_a_file_is_on_disk_before_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = recorded_syncs(monkeypatch)
    path = tmp_path / "file"
    write_atomically(path, b"content")
    assert events == [path.stat().st_ino, -1, tmp_path.stat().st_ino]
    events.clear()
    write_atomically(tmp_path / "new" / "folder" / "file", b"")
    folder = tmp_path / "new" / "folder"
    names = [folder.parent.stat().st_ino, tmp_path.stat().st_ino]
    file = (folder / "file").stat().st_ino
    assert sorted(events[:2]) == sorted(names)
    assert events[2:] == [file, -1, folder.stat().st_ino]


def test_a_folder_is_on_disk_before_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = recorded_syncs(monkeypatch)
    with new_folder(tmp_path / "folder") as temporary:
        (temporary / "file").write_text("content")
    folder = tmp_path / "folder"
    inodes = [(folder / "file").stat().st_ino, folder.stat().st_ino]
    assert events == [*inodes, -1, tmp_path.stat().st_ino]


def test_nothing_is_left_of_a_failed_file(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    (tmp_path / "old").write_text("content")
    for name in ("old", "new/folder/file"):
        with pytest.raises(KeyboardInterrupt):
            fail(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text() == "content"


def test_a_body_may_change_its_mind(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("content")
    with replacing(tmp_path / "old") as temporary:
        temporary.write_text("the same")
        temporary.unlink()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["content"]


def test_only_one_module_writes_beside_a_file_and_renames() -> None:
    root = Path(__file__).parent.parent
    sources = [path for top in ("toolkit", "callbacks") for path in (root / top).rglob("*.py")]
    marks = ("os.replace(", "os.rename(", "NamedTemporaryFile", "mkstemp", "temporary.replace(")
    writers = {path.name for path in sources if any(mark in path.read_text() for mark in marks)}
    assert writers == {"atomic.py"}
