"""Run a command line in an empty folder, and say what a refusal has to look like."""

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from toolkit.cli import main

# Lines that are tried by default, evenly spread; the others are slow.
_QUICK_SHARE = 8
_INTERNAL = re.compile(
    r"Traceback|RuntimeError|alloc_cpu|NoneType|object is not|object has no attribute|KeyError"
    r"|ZeroDivision|_LinAlgError|RecursionError|not supported between"
)


class Line(NamedTuple):
    """A command line that has to be refused.

    Attributes:
        args: The command and its options; ``{files}`` stands for the folder of prepared files.
        named: What the line on standard error has to name.
    """

    args: tuple[str, ...]
    named: str


def refused(
    base: Sequence[str], option: str, values: Iterable[str], *, named: str = ""
) -> list[Line]:
    """Return the lines that give an option each of the bad values."""
    named = named or option.lstrip("-").rpartition(".")[2]
    return [Line((*base, f"{option}={value}"), named) for value in values]


def parameters(lines: Sequence[Line]) -> list[Any]:
    """Return the lines as parameter sets, most of them slow."""
    return [
        pytest.param(
            line,
            id=f"{number}-{' '.join(line.args[-2:])[-60:]}",
            marks=[] if number % _QUICK_SHARE == 0 else [pytest.mark.slow],
        )
        for number, line in enumerate(lines)
    ]


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return everything below a folder, folders as None."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def check_refusal(
    line: Line, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run the line: one line on standard error that names the thing, and no file changes."""
    monkeypatch.chdir(files)
    before = contents(files)
    args = [argument.replace("{files}", str(files)) for argument in line.args]
    code = main(args)
    error = capsys.readouterr().err
    assert (code in {1, 2}, error.count("\n")) == (True, 1), (code, error)
    assert line.named.replace("{files}", str(files)) in error, error
    assert error.startswith("error: "), error
    assert not _INTERNAL.search(error), error
    assert differences(before, contents(files)) == []


def differences(before: Mapping[str, bytes | None], after: Mapping[str, bytes | None]) -> list[str]:
    """Return the paths that are new, gone or changed."""
    nothing = b"no such path"
    names = sorted({*before, *after})
    return [name for name in names if before.get(name, nothing) != after.get(name, nothing)]


def tidy(folder: Path, kept: Mapping[str, bytes | None]) -> None:
    """Remove what a test has left behind, so that the next one starts from the same files."""
    for name in sorted(set(contents(folder)) - set(kept)):
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
