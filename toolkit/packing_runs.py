"""Measured packings, from a CSV file or from the folders of finished runs."""

import csv
from pathlib import Path

from toolkit.reference import PackingPoint
from toolkit.run_folder import SUMMARY
from toolkit.table import TABLE_NAME, MeasurementRow, read_measurements

_COLUMNS = ("k", "d", "max_abs_cosine")
_QUANTITY = ("packing", "best_max_abs_cosine")


def read_packings(path: str | Path) -> list[PackingPoint]:
    """Return the packings of a CSV file or of all finished runs below a folder.

    Args:
        path: A CSV file with the columns k, d and max_abs_cosine, or a folder; runs count once
            `PackingGeometry` has measured them to their end.

    Raises:
        ValueError: If there is no such path, no packing in it, or the file has other columns.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"fit: expected a CSV file or a folder of runs, got {path}")
    points = _finished_runs(path) if path.is_dir() else _csv_rows(path)
    if not points:
        raise ValueError(
            f"fit: expected packings in {path}, found none; a run counts when it has finished "
            "and PackingGeometry has measured it"
        )
    return points


def _csv_rows(path: Path) -> list[PackingPoint]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(
                f"fit: expected the columns {', '.join(_COLUMNS)} in {path}, missing "
                f"{', '.join(missing)}"
            )
        try:
            return [
                PackingPoint(int(row["k"]), int(row["d"]), float(row["max_abs_cosine"]))
                for row in reader
            ]
        except (TypeError, ValueError) as error:
            raise ValueError(f"fit: line {reader.line_num} of {path}: {error}") from error


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
