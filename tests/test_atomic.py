"""A folder is there as a whole or not at all."""

from pathlib import Path

import pytest

from toolkit.atomic import new_folder


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
