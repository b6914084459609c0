"""The record of a walk: each checkpoint is complete in table and curves, or absent."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolkit.lm.checkpoints.base import Checkpoint
from toolkit.runs.event_files import keep_steps
from toolkit.runs.model_logger import model_folder
from toolkit.runs.points import Point, measurement_rows
from toolkit.runs.table import TABLE_NAME, MeasurementRow, MeasurementTable, read_measurements
from toolkit.runs.unfinished import Unfinished

METRIC = "checkpoint"
DUPLICATE = "duplicate_of_step"
MATRICES = "matrix_hashes"
TEXTS_HASH = "texts_hash"
# The last row of a checkpoint: with this row the checkpoint is complete.
_LAST = "num_parameters"


class WalkRecord:
    """The table of a walk, and the checkpoints that it contains.

    Opening the record removes rows and points of a checkpoint that was interrupted by a kill.

    Args:
        folder: The run's folder.
        texts_hash: Returns the fingerprint of the texts that are read.

    Attributes:
        unfinished: The callbacks that have finished the interrupted checkpoint.
    """

    def __init__(self, folder: Path, *, texts_hash: Callable[[], str] = str) -> None:
        self._folder = folder
        self.unfinished = Unfinished(folder, texts_hash)
        self.table = MeasurementTable(folder / TABLE_NAME)
        rows = self.table.rows()
        self._done = _last_rows(rows)
        self._partial = _identities(self._resumed(rows))
        self._cut()
        for model in {row.model for row in rows}:
            self.keep_points(model)

    def hash_of(self, checkpoint: Checkpoint) -> str | None:
        """Return the weights hash of a measured checkpoint, None if it is not measured.

        A revision that has another commit today counts as not measured.
        """
        return _hash_of(checkpoint, self._done)

    def first_with(self, weights_hash: str, model: str) -> int | None:
        """Return the model's smallest step with these weights."""
        steps = [
            step
            for (name, step), row in self._done.items()
            if name == model and row.weights_hash == weights_hash
        ]
        return min(steps, default=None)

    def first_with_matrices(
        self, hashes: Mapping[str, str], model: str, *, before: float = math.inf
    ) -> dict[str, int]:
        """Return, by matrix, the model's smallest earlier step with the same matrix.

        Args:
            hashes: Fingerprints of the matrices by name. Rows of older versions have none.
            model: Name of the model.
            before: The step of the matrices, by default after all other steps.
        """
        first: dict[str, int] = {}
        for (name, step), row in sorted(self._done.items()):
            if name == model and step < before:
                known = row.conditions.get(MATRICES, {})
                for matrix in (m for m, one in hashes.items() if known.get(m) == one):
                    first.setdefault(matrix, step)
        return first

    def same_matrices(self, model: str) -> dict[int, dict[str, int]]:
        """Return the steps that share a matrix, but not all weights, with an earlier step.

        Returns:
            By step, the smallest step with the same matrix by the matrix's name.
        """
        duplicates = self.duplicates(model)
        rows = {step: row for (name, step), row in sorted(self._done.items()) if name == model}
        found = {
            step: self.first_with_matrices(row.conditions.get(MATRICES, {}), model, before=step)
            for step, row in rows.items()
            if step not in duplicates
        }
        return {step: shared for step, shared in found.items() if shared}

    def drop(self, checkpoint: Checkpoint) -> bool:
        """Remove the rows and points of this step of the model, which has new weights now.

        Later steps that are marked as its duplicates are removed, too.

        Returns:
            Whether the record had the step.
        """
        model = checkpoint.name
        if self._done.pop((model, checkpoint.step), None) is None:
            return False
        for step, first in self.duplicates(model).items():
            if first == checkpoint.step < step:
                self._done.pop((model, step), None)
        self._cut()
        self.keep_points(model)
        return True

    def finish(self, points: Iterable[Point], num_parameters: int, common: dict[str, Any]) -> None:
        """Write the rows about the checkpoint as a whole, after all other rows."""
        last = Point(_LAST, "", num_parameters, metric=METRIC)
        rows = measurement_rows([*points, last], common)
        self.table.append(rows)
        self._done[rows[-1].model, rows[-1].step] = rows[-1]
        self._partial = set()
        self.unfinished.clear()

    def resume(self, checkpoint: Checkpoint, weights_hash: str) -> None:
        """Keep the rows of callbacks that finished this checkpoint before a kill; drop others."""
        kept = [row for rows in self.unfinished.rows.values() for row in rows]
        if {row.identity for row in kept} != {checkpoint.identity} or {
            row.weights_hash for row in kept
        } != {weights_hash}:
            self._partial = set()
            self.unfinished.clear()
            self._cut()

    def _resumed(self, rows: Sequence[MeasurementRow]) -> list[MeasurementRow]:
        """Return the rows of finished callbacks at the last checkpoint, if it is incomplete."""
        last = [row for row in rows if rows and (row.model, row.step) == _place(rows[-1])]
        if not last or _place(last[0]) in self._done:
            return []
        return [row for some in self.unfinished.resume(last).values() for row in some]

    def _cut(self) -> None:
        """Remove all rows except those of complete checkpoints and finished callbacks."""
        self.table.keep(lambda row: _place(row) in self._done or _identity(row) in self._partial)

    def texts_hashes(self) -> set[str]:
        """Return the fingerprints of all texts in the table."""
        texts = (row.conditions.get("texts", {}) for row in self._done.values())
        return {one[TEXTS_HASH] for one in texts if TEXTS_HASH in one}

    def history(self, model: str) -> dict[int, dict[str, float]]:
        """Return the values of a model by step and tag."""
        history: dict[int, dict[str, float]] = {}
        for row in self.table.rows():
            if row.model == model:
                history.setdefault(row.step, {})[_tag(row)] = row.value
        return {step: history[step] for step in sorted(history)}

    def duplicates(self, model: str) -> dict[int, int]:
        """Return the steps that repeat the weights of an earlier step, with that step."""
        tag = f"{METRIC}/{DUPLICATE}"
        return {
            step: int(values[tag]) for step, values in self.history(model).items() if tag in values
        }

    def keep_points(self, model: str) -> None:
        """Remove the points of a model's incomplete checkpoints, with or without rows.

        A curve has points before the table has rows.
        """
        steps = {step for name, step in self._done if name == model}
        keep_steps(self._folder / model_folder(model), steps)


def measured_before(checkpoints: Iterable[Checkpoint], folder: Path) -> list[Checkpoint]:
    """Return the checkpoints whose commits are in a run's table; the table is not changed."""
    path = folder / TABLE_NAME
    done = _last_rows(read_measurements(path) if path.exists() else [])
    return [one for one in checkpoints if one.commit and _hash_of(one, done) is not None]


def _place(row: MeasurementRow) -> tuple[str, int]:
    return row.model, row.step


def _identity(row: MeasurementRow) -> tuple[str | int, ...]:
    return row.model, row.step, row.metric, row.quantity, row.layer


def _identities(rows: Iterable[MeasurementRow]) -> set[tuple[str | int, ...]]:
    return {_identity(row) for row in rows}


def _last_rows(rows: Iterable[MeasurementRow]) -> dict[tuple[str, int], MeasurementRow]:
    """Return the last row of each complete checkpoint."""
    lasts = (row for row in rows if (row.metric, row.quantity) == (METRIC, _LAST))
    return {(row.model, row.step): row for row in lasts}


def _hash_of(checkpoint: Checkpoint, done: Mapping[tuple[str, int], MeasurementRow]) -> str | None:
    row = done.get((checkpoint.name, checkpoint.step))
    if row is None or row.identity != checkpoint.identity:
        return None
    return row.weights_hash


def _tag(row: MeasurementRow) -> str:
    return "/".join(part for part in (row.metric, row.quantity, row.layer) if part)
