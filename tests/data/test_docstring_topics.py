"""Docstrings of the standard library: enough of them, distinct, and never imported."""

import sys
from pathlib import Path

import pytest

from toolkit.data import load_docstring_topics
from toolkit.data.docstring_topics import HELD_OUT_MODULES, _docstrings, _words
from toolkit.data.standard_library import module_files, standard_library_files


def test_defaults_are_balanced() -> None:
    texts = load_docstring_topics()
    assert texts.classes == ("networking", "text", "numbers", "system")
    assert texts.train_labels.bincount().tolist() == [300] * 4
    assert texts.test_labels.bincount().tolist() == [100] * 4
    assert texts.source.startswith("docstrings of Python 3.")
    assert texts.num_removed > 100


def test_labels_name_the_area() -> None:
    pool, _ = _docstrings()
    label_of = dict(zip(pool.texts, pool.labels, strict=True))
    for word, label in (("FTP", 0), ("paragraph", 1), ("arithmetic mean", 2), ("subprocess", 3)):
        labels = [label_of[text] for text in pool.texts if word in text]
        assert max(set(labels), key=labels.count) == label


def test_texts_are_distinct_prose() -> None:
    pool, _ = _docstrings()
    assert len(set(pool.texts)) == len(pool.texts)
    assert all(len(_words(text)) >= 8 for text in pool.texts)
    assert not [text for text in pool.texts if ">>>" in text or "\n" in text or "  " in text]


def test_a_near_duplicate_is_counted_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = "return the number of bytes that were sent to the peer so far"
    (tmp_path / "os.py").touch()
    (tmp_path / "socket.py").write_text(
        f'def f():\n    """{said}."""\n\n'
        f'def g():\n    """Or {said}!"""\n\n'
        'class C:\n    """too short to count"""\n\n'
        'async def h():\n    """Wait until all of the queued messages have been read.\n\n'
        '    >>> h()\n    """\n'
    )
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    pool, num_duplicates = _docstrings.__wrapped__()
    assert pool.texts == [f"{said}.", "Wait until all of the queued messages have been read."]
    assert pool.labels == [0, 0]
    assert num_duplicates == 1


def test_nothing_is_imported() -> None:
    before = set(sys.modules)
    _docstrings.__wrapped__()
    assert set(sys.modules) == before
    assert "turtle" not in before


def test_its_modules_are_held_out() -> None:
    held_out = set(module_files(HELD_OUT_MODULES))
    corpus = set(standard_library_files(without=HELD_OUT_MODULES))
    assert not held_out & corpus
    assert held_out | corpus == set(standard_library_files())
    names = {path.name for path in held_out}
    assert {"socket.py", "smtplib.py", "turtle.py"} <= names


def test_what_repeats_itself_is_no_part_of_the_library() -> None:
    files = standard_library_files()
    assert files == sorted(files)
    parts = {part for path in files for part in path.parts[len(files[0].parent.parts) :]}
    assert not parts & {"test", "tests", "idlelib", "encodings", "site-packages"}
    assert not [path for path in files if path.name.startswith("_sysconfigdata")]


def test_a_python_without_sources_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(ValueError, match="source: expected the standard library's source files in"):
        standard_library_files()
