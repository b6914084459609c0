"""Tables of texts as columns: CSV and Parquet files, folders saved by ``datasets``."""

import csv
import io
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolkit.data._text_files import read_text

Columns = Mapping[str, Sequence[Any]]

PUBLISHED_COLUMNS = ("label", "title", "description")
_ESCAPE = re.compile(r'\\(["\\]?)')
# Regular files: only fields that begin with a quote contain quotes.
_FIELD = r'(?:"{}"|[^",\n]*+)'
_FILE = rf"{_FIELD}(?:[,\n]{_FIELD})*+"
_DOUBLED = re.compile(_FILE.replace("{}", r'[^"]*+(?:""[^"]*+)*+'))
_ESCAPED = re.compile(_FILE.replace("{}", r'(?:[^"\\]++|\\[\s\S])*+'))
# The largest C long that every platform has.
_ANY_SIZE = min(sys.maxsize, 2**31 - 1)


def file_columns(path: Path) -> Columns:
    """Return the columns of a CSV or Parquet file.

    A CSV file without a header has the columns of the published AG News files. Quotes in quoted
    fields are doubled, or all quotes in quoted fields of the file follow a backslash.

    Raises:
        ValueError: If the file is of another kind or damaged; the message names the file and, in a
            CSV file, the line.
    """
    readers: dict[str, Callable[[Path], Columns]] = {
        ".csv": _csv_columns,
        ".parquet": _parquet_columns,
    }
    if path.suffix.lower() not in readers:
        raise ValueError(f"source: expected a .csv or .parquet file, got {path}; convert it")
    if path.stat().st_size == 0:
        raise ValueError(f"source: expected rows in {path}, got an empty file")
    return readers[path.suffix.lower()](path)


def saved_parts(folder: Path) -> dict[str, Columns]:
    """Return the columns of ``train`` and ``test``, or of the only part, of a saved folder.

    Raises:
        ValueError: If the folder was not saved by ``datasets``, is damaged, or has other parts.
    """
    from datasets import load_from_disk  # noqa: PLC0415

    with _named(folder):
        loaded = load_from_disk(str(folder))
    parts = loaded if isinstance(loaded, dict) else {"train": loaded}
    names = part_names(parts, str(folder))
    with _named(folder):
        return {name: parts[name][:] for name in names}


def part_names(parts: Collection[str], source: str) -> tuple[str, ...]:
    """Return ``train`` and ``test``, or the name of the only part.

    Raises:
        ValueError: If there are several parts, and ``train`` and ``test`` are not among them.
    """
    if len(parts) > 1 and not {"train", "test"} <= set(parts):
        raise ValueError(
            f"source: expected parts named train and test, got {sorted(parts)} in {source}; "
            "give a folder or file with one part"
        )
    return ("train", "test") if len(parts) > 1 else tuple(parts)


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Turn errors of `datasets` about a folder into a ValueError that names the folder."""
    from pyarrow import ArrowException  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, IndexError, ArrowException) as error:
        reason = _first_line(error).replace(str(folder), folder.name)
        if isinstance(error, IndexError):
            # `datasets` saves a part without rows, but cannot load it.
            reason = "no rows"
        raise ValueError(
            f"source: expected a folder written by datasets' save_to_disk, got {folder} "
            f"({reason}); give a CSV or Parquet file, or such a folder"
        ) from error


def _csv_columns(path: Path) -> Columns:
    rows = _csv_rows(path)
    header = [cell.strip() for cell in rows[0]] if rows else []
    if rows and not header[0].isdigit():
        rows = rows[1:]
    else:
        header = list(PUBLISHED_COLUMNS)
    if not rows:
        raise ValueError(f"source: expected rows in {path}, got none")
    if len(rows[0]) != len(header):
        raise ValueError(
            f"source: expected rows of {','.join(header)} in {path}, got a row with {len(rows[0])} "
            "columns; give label,title,description without a header, or text,label with it"
        )
    if len(set(header)) < len(header):
        raise ValueError(f"source: expected different columns in {path}, got {','.join(header)}")
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def _csv_rows(path: Path) -> list[list[str]]:
    text = read_text(path)
    rows, error = _parsed_or_not(text)
    if '\\"' not in text:
        return _chosen([] if rows is None else [rows], path, error)
    # A backslash is an escape only before a quote; elsewhere it stands for a line break.
    escaped = _ESCAPE.sub(lambda match: match[0] if match[1] else r"\\", text)
    escaped_rows, _ = _parsed_or_not(escaped, escapechar="\\")
    readings = [(rows, _DOUBLED.fullmatch(text)), (escaped_rows, _ESCAPED.fullmatch(escaped))]
    possible = [(table, bool(regular)) for table, regular in readings if table is not None]
    # A quote inside an unquoted field shows that the file was not written in this way.
    best = max((regular for _, regular in possible), default=False)
    return _chosen([table for table, regular in possible if regular is best], path, error)


def _chosen(
    readings: list[list[list[str]]], path: Path, error: csv.Error | None
) -> list[list[str]]:
    """Return the rows of the only possible reading of a file; refuse none or several."""
    if not readings:
        raise ValueError(
            f"source: expected rows of as many columns each, quotes in quoted fields doubled, in "
            f"{path}, got {error}; correct the file"
        ) from error
    if len(readings) > 1:
        raise ValueError(
            f'source: expected quotes that can be read in one way, got \\" in {path}, which may '
            "end a field or stand in it; double the quotes"
        )
    return readings[0]


def _parsed_or_not(
    text: str, *, escapechar: str | None = None
) -> tuple[list[list[str]] | None, csv.Error | None]:
    """Return the rows and None, or None and the error."""
    try:
        return _parsed(text, escapechar=escapechar), None
    except csv.Error as error:
        return None, error


def _parsed(text: str, *, escapechar: str | None = None) -> list[list[str]]:
    """Return the rows, empty rows left out; a csv.Error names the first line of a bad row."""
    reader = csv.reader(io.StringIO(text), strict=True, escapechar=escapechar)
    rows: list[list[str]] = []
    begins = 1
    with _fields_of_any_size():
        try:
            for row in reader:
                _check_even(row, rows)
                rows += [row] if row else []
                begins = reader.line_num + 1
        except csv.Error as error:
            raise csv.Error(f"{error} in the row that begins in line {begins}") from error
    return rows


def _check_even(row: list[str], rows: list[list[str]]) -> None:
    if row and rows and len(row) != len(rows[0]):
        raise csv.Error(f"{len(row)} columns instead of {len(rows[0])}")


@contextmanager
def _fields_of_any_size() -> Iterator[None]:
    before = csv.field_size_limit(_ANY_SIZE)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _parquet_columns(path: Path) -> Columns:
    from pyarrow import ArrowException, parquet  # noqa: PLC0415

    try:
        table = parquet.ParquetFile(path).read()
        if len(set(table.column_names)) < table.num_columns:
            names = ",".join(table.column_names)
            raise ValueError(f"source: expected different columns in {path}, got {names}")
        columns: Columns = table.to_pydict()
    except UnicodeDecodeError as error:
        raise ValueError(f"source: expected UTF-8 text in {path}, got {error}") from error
    except (ArrowException, OSError) as error:
        raise ValueError(
            f"source: expected a whole Parquet file, got {path} ({_first_line(error)})"
        ) from error
    return columns


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
