"""Files that a command is asked to write are refused before anything is computed for them."""

import json
import math
import os
from pathlib import Path

import pytest

from toolkit.console.output_files import (
    check_outputs,
    json_text,
    write_csv,
    write_figure,
    write_json,
)
from toolkit.figures.style import new_axes


def test_a_new_file_and_an_old_one_are_taken(tmp_path: Path) -> None:
    (tmp_path / "old.csv").touch()
    check_outputs(csv=tmp_path / "old.csv", figure=tmp_path / "new.png")
    check_outputs(csv=tmp_path / "new" / "folder" / "a.csv")
    check_outputs()
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jpeg", "a file name with .png, .svg, .pdf"),
        ("a", "a file name with"),
        ("folder.png", "a file, got the folder"),
        ("file.txt/a.png", "a file in a folder, got .*/file.txt/a.png: .*/file.txt is a file"),
        ("file.txt/new/a.png", "a file in a folder, got .*a.png: .*/file.txt is a file"),
    ],
)
def test_a_figure_that_cannot_be_written(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file.txt").touch()
    with pytest.raises(ValueError, match=f"^figure: expected {expected}"):
        check_outputs(figure=tmp_path / name)


def test_a_table_may_have_any_name_and_no_other_place(tmp_path: Path) -> None:
    check_outputs(csv=tmp_path / "table")
    with pytest.raises(ValueError, match=r"^csv: expected a file, got the folder"):
        check_outputs(csv=tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(ValueError, match=r"^csv: expected a file that can be written, got"):
        check_outputs(csv=tmp_path / "a.csv")
    with pytest.raises(ValueError, match=r"^csv: expected a file that can be written, got"):
        check_outputs(csv=tmp_path / "new" / "folder" / "a.csv")


def test_a_table_and_a_figure_bring_their_folder(tmp_path: Path) -> None:
    write_csv(tmp_path / "a" / "t.csv", ["x", "y"], [[1, None], ["b,c", 0.5], [math.nan, math.inf]])
    assert (tmp_path / "a" / "t.csv").read_bytes() == b'x,y\n1,\n"b,c",0.5\n,inf\n'
    figure, axes = new_axes("title", "x")
    axes.plot([1, 2])
    for suffix, start in ((".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")):
        write_figure(tmp_path / "b" / f"f{suffix}", figure)
        assert (tmp_path / "b" / f"f{suffix}").read_bytes().startswith(start)


def test_json_is_indented_and_knows_no_nan(tmp_path: Path) -> None:
    assert json_text({"é": [1]}) == '{\n "é": [\n  1\n ]\n}\n'
    content = {"a": (1.5, math.nan), "b": [{"c": -math.inf}], "d": None, "e": True, "f": 10**400}
    expected = {"a": [1.5, None], "b": [{"c": None}], "d": None, "e": True, "f": 10**400}
    assert json.loads(json_text(content)) == expected
    write_json(tmp_path / "new" / "a.json", {"b": [math.nan]})
    assert (tmp_path / "new" / "a.json").read_bytes() == b'{\n "b": [\n  null\n ]\n}'
