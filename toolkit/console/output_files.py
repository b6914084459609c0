"""Output files of commands: checked first, written last, each in one step."""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.atomic import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_KINDS = (".png", ".svg", ".pdf")


def check_outputs(*, csv: Path | None = None, figure: Path | None = None) -> None:
    """Refuse files that cannot be written; nothing is created yet.

    Args:
        csv: File for a table, None for none.
        figure: File for a figure, None for none.

    Raises:
        ValueError: If a path is a folder, or lies below a file or in a folder that cannot be
            written, or the figure's name has no known ending.
    """
    if figure is not None and figure.suffix not in FIGURE_KINDS:
        kinds = ", ".join(FIGURE_KINDS)
        raise ValueError(f"figure: expected a file name with {kinds}, got {figure}")
    for name, path in (("csv", csv), ("figure", figure)):
        if path is not None:
            _check_target(name, path)


def write_figure(path: Path, figure: "Figure") -> None:
    """Write a figure in the format of the file's ending; the folder is created if needed.

    Args:
        path: The file; its ending is one of `FIGURE_KINDS`.
        figure: The figure.
    """
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix("."))
    write_atomically(path, content.getvalue())


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table, None and NaN as an empty cell; the folder is created if needed."""
    cells = ([None if _is_nan(cell) else cell for cell in row] for row in rows)
    write_atomically(path, csv_text([header, *cells]).encode())


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return lines of comma-separated cells."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def json_text(content: object) -> str:
    """Return indented JSON that ends with a line break; NaN and infinity are null."""
    return f"{_json(content)}\n"


def write_json(path: Path, content: object) -> None:
    """Write indented JSON, NaN and infinity as null; the folder is created if needed."""
    write_atomically(path, _json(content).encode())


def _is_nan(cell: object) -> bool:
    return isinstance(cell, float) and math.isnan(cell)


def _json(content: object) -> str:
    return json.dumps(_finite(content), indent=1, ensure_ascii=False, allow_nan=False)


def _finite(content: object) -> object:
    """Return the content with None for NaN and infinity, which JSON lacks."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    return [*map(_finite, content)] if isinstance(content, list | tuple) else content


def _check_target(name: str, path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"{name}: expected a file, got the folder {path}")
    existing = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
    if existing != path and not existing.is_dir():
        raise ValueError(f"{name}: expected a file in a folder, got {path}: {existing} is a file")
    if not os.access(existing, os.W_OK):
        raise ValueError(f"{name}: expected a file that can be written, got {path}")
