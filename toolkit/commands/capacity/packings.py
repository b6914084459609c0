"""Measured packings, from a CSV file or from the folders of finished runs."""

import csv
from itertools import islice
from pathlib import Path

from toolkit.reference import PackingPoint
from toolkit.runs.folder import SUMMARY
from toolkit.runs.table import TABLE_NAME, MeasurementRow, read_measurements

_COLUMNS = ("k", "d", "max_abs_cosine")
# Largest number of vectors and dimensions of a packing.
_LARGEST = 10**12
# A bootstrap holds 800 numbers for each packing.
_MOST_PACKINGS = 10_000
_QUANTITY = ("packing", "best_max_abs_cosine")


def read_packings(path: str | Path) -> list[PackingPoint]:
    """Return the packings of a CSV file or of all finished runs below a folder.

    Args:
        path: A CSV file with the columns k, d and max_abs_cosine, or a folder; runs count once
            `PackingGeometry` has measured them to their end.

    Raises:
        ValueError: If the path does not exist, has no packing, or the file has other columns.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"fit: expected a CSV file or a folder of runs, got {path}")
    points = _finished_runs(path) if path.is_dir() else _csv_rows(path)
    if len(points) > _MOST_PACKINGS:
        raise ValueError(
            f"fit: expected at most {_MOST_PACKINGS:,} packings in {path}, got more; fit a part of "
            "them"
        )
    if not points:
        raise ValueError(
            f"fit: expected packings in {path}, found none; a run counts when it has finished "
            "and PackingGeometry has measured it"
        )
    return points


def _csv_rows(path: Path) -> list[PackingPoint]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or ()
            # Reading one more than the limit shows that there are too many.
            rows = [(reader.line_num, row) for row in islice(reader, _MOST_PACKINGS + 1)]
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"fit: expected a readable CSV file, got {path}: {error}") from error
    missing = [name for name in _COLUMNS if name not in columns]
    if missing:
        raise ValueError(
            f"fit: expected the columns {', '.join(_COLUMNS)} in {path}, missing "
            f"{', '.join(missing)}"
        )
    return [_packing(path, line, *(row[name] for name in _COLUMNS)) for line, row in rows]


def _packing(path: Path, line: int, *cells: str | None) -> PackingPoint:
    """Return the packing of a line, or raise a ValueError that names the wrong number."""
    where = f"fit: line {line} of {path}"
    try:
        k, d, max_abs_cosine = int(cells[0] or ""), int(cells[1] or ""), float(cells[2] or "")
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    for name, number in (("k", k), ("d", d)):
        if not 1 <= number <= _LARGEST:
            got = number if abs(number) <= _LARGEST else f"{number.bit_length()} bits"
            raise ValueError(f"{where}: expected {name} from 1 to {_LARGEST:,}, got {got}")
    if not 0 <= max_abs_cosine <= 1:
        raise ValueError(f"{where}: expected max_abs_cosine from 0 to 1, got {cells[2]}")
    return PackingPoint(k, d, max_abs_cosine)


def _finished_runs(folder: Path) -> list[PackingPoint]:
    finished = sorted(summary.parent for summary in folder.rglob(SUMMARY))
    tables = (run / TABLE_NAME for run in finished)
    rows = (read_measurements(table) for table in tables if table.exists())
    return [_point(last) for table in rows if (last := _last(table)) is not None]


def _last(table: list[MeasurementRow]) -> MeasurementRow | None:
    measured = [row for row in table if (row.metric, row.quantity) == _QUANTITY]
    return max(measured, key=lambda row: row.step, default=None)


def _point(row: MeasurementRow) -> PackingPoint:
    return PackingPoint(row.conditions["num_vectors"], row.conditions["dim"], row.value)
