"""The long table of a run: a CSV file with a row for each measurement, safe against kills."""

import csv
import io
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from toolkit.atomic import naming, write_atomically
from toolkit.console.output_files import csv_text
from toolkit.runs.identity import WeightsIdentity

TABLE_NAME = "measurements.csv"
# The fields of a row that are results, not settings.
_OUTCOME = ("value", "num_points", "versions")


class MeasurementRow(NamedTuple):
    """One measured number and its conditions.

    Attributes:
        run: Name of the run that measured it.
        model: Name of the model.
        revision: Revision of a published checkpoint, or empty.
        commit: Commit of that revision, or empty.
        step: Optimiser updates behind the weights.
        metric: First part of the tag.
        quantity: Second part of the tag.
        layer: Layer, matrix or width; empty for other numbers.
        value: The number, NaN where it could not be computed.
        num_points: Rows, texts or widths behind the number, None if undefined.
        conditions: Arguments of the measurement, plain types.
        dtype: dtype of the weights.
        weights_hash: Fingerprint of the weights (`toolkit.runs.provenance.weights_hash`).
        versions: Versions of the packages in use.
    """

    run: str
    model: str
    revision: str
    commit: str
    step: int
    metric: str
    quantity: str
    layer: str
    value: float
    num_points: int | None
    conditions: dict[str, Any]
    dtype: str
    weights_hash: str
    versions: dict[str, str]

    @property
    def identity(self) -> WeightsIdentity:
        """Model, revision, commit and step of the weights."""
        return WeightsIdentity(self.model, self.revision, self.commit, self.step)


class MeasurementTable:
    """A CSV file of `MeasurementRow`; rows are appended, or cut back to a step.

    Opening the table drops an unfinished last line after a kill. The first `append` creates the
    file. Each `append` opens it again, so that several writers of a process can share it.

    Args:
        path: The file; its folder is created if needed.

    Raises:
        ValueError: If the file is no such table.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.exists():
            complete = _complete_lines(self.path)
            _check_header(self.path, complete)
            os.truncate(self.path, len(complete))

    def append(self, rows: Iterable[MeasurementRow]) -> None:
        """Write ``rows`` in one write, and wait until they are on disk."""
        rows = list(rows)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with naming(self.path), self.path.open("ab", buffering=0) as file:
            start = file.seek(0, os.SEEK_END)
            data = _to_bytes(rows, header=start == 0)
            try:
                written = 0
                while written < len(data):
                    written += file.write(data[written:])
                os.fsync(file.fileno())
            except OSError:
                file.truncate(start)
                raise

    def drop_after(self, step: int) -> int:
        """Remove the rows of later steps in one step.

        Returns:
            The number of rows removed.
        """
        return self.keep(lambda row: row.step <= step)

    def keep(self, is_kept: Callable[[MeasurementRow], bool]) -> int:
        """Remove all other rows in one step.

        Duplicated rows are kept once.

        Returns:
            The number of rows removed.
        """
        if not self.path.exists():
            return 0
        records = _records(_complete_lines(self.path))[1:]
        kept = [row for row in map(_from_record, _single(records)) if is_kept(row)]
        if len(kept) < len(records):
            write_atomically(self.path, _to_bytes(kept, header=True))
        return len(records) - len(kept)

    def rows(self) -> list[MeasurementRow]:
        """Return all rows; none if there is no file yet."""
        return read_measurements(self.path) if self.path.exists() else []

    def holds(self, row: MeasurementRow) -> bool:
        """Return whether the table has the same measurement of the same weights and step."""
        identity = _identity(row)
        return any(_identity(other) == identity for other in self.rows())


def read_measurements(path: str | Path) -> list[MeasurementRow]:
    """Return the rows of a table with their types; an unfinished last line is left out.

    Duplicated rows, as two processes may write them, are returned once.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is no measurement table.
    """
    complete = _complete_lines(Path(path))
    _check_header(Path(path), complete)
    return [_from_record(record) for record in _single(_records(complete)[1:])]


def _single(records: Iterable[list[str]]) -> list[list[str]]:
    """Return the first of the records that differ only in their results."""
    first: dict[tuple[str, ...], list[str]] = {}
    for record in records:
        measurement = tuple(
            field
            for name, field in zip(MeasurementRow._fields, record, strict=True)
            if name not in _OUTCOME
        )
        first.setdefault(measurement, record)
    return list(first.values())


def _identity(row: MeasurementRow) -> tuple[Any, ...]:
    # The form in the file, because a tuple is read back as a list, and NaN differs from NaN.
    return row.run, row.step, row.metric, _to_json(row.conditions), row.weights_hash


def _to_json(plain: dict[str, Any]) -> str:
    return json.dumps(plain, sort_keys=True)


def _complete_lines(path: Path) -> bytes:
    data = path.read_bytes()
    return data[: data.rfind(b"\n") + 1]


def _check_header(path: Path, complete: bytes) -> None:
    # Many writers open a long table, so only the first line is checked.
    header = _records(complete[: complete.find(b"\n") + 1])
    if header and header[0] != list(MeasurementRow._fields):
        raise ValueError(
            f"{path}: expected a table of measurements, got columns {','.join(header[0])}; "
            "move the file away"
        )


def _records(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode(), newline="")))


def _to_bytes(rows: Iterable[MeasurementRow], *, header: bool) -> bytes:
    lines = [MeasurementRow._fields] if header else []
    return csv_text([*lines, *map(_to_record, rows)]).encode()


def _to_record(row: MeasurementRow) -> list[str]:
    plain = row._asdict()
    for name in ("conditions", "versions"):
        plain[name] = _to_json(plain[name])
    plain["num_points"] = "" if row.num_points is None else row.num_points
    # repr keeps every digit of the float.
    plain["value"] = repr(float(row.value))
    return [str(field) for field in plain.values()]


def _from_record(record: list[str]) -> MeasurementRow:
    fields: dict[str, Any] = dict(zip(MeasurementRow._fields, record, strict=True))
    fields["step"] = int(fields["step"])
    fields["value"] = float(fields["value"])
    fields["num_points"] = int(fields["num_points"]) if fields["num_points"] else None
    fields["conditions"] = json.loads(fields["conditions"])
    fields["versions"] = json.loads(fields["versions"])
    return MeasurementRow(**fields)
