"""The finished callbacks of a checkpoint that a kill has interrupted."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from toolkit.atomic import write_atomically
from toolkit.runs.table import MeasurementRow

_NAME = "unfinished.json"


class Unfinished:
    """The callbacks that have written all their rows about the current checkpoint.

    The table does not show this: a kill may leave a part of a callback's rows. The file is removed
    when the checkpoint is complete.

    Args:
        folder: The run's folder.
        texts_hash: Returns the fingerprint of the texts that are read, empty without texts.
    """

    def __init__(self, folder: Path, texts_hash: Callable[[], str]) -> None:
        self._path = folder / _NAME
        self._texts_hash = texts_hash
        self.rows: dict[str, list[MeasurementRow]] = {}

    def note(self, prefix: str, rows: Sequence[MeasurementRow]) -> None:
        """Record that the table holds all rows of the callback with this prefix."""
        if not rows:
            return
        key = _key(rows[0], self._texts_hash())
        content = self._read()
        if content.get("checkpoint") != key:
            content = {"checkpoint": key, "callbacks": {}}
        content["callbacks"][prefix] = len(rows)
        write_atomically(self._path, json.dumps(content).encode())

    def resume(self, rows: Sequence[MeasurementRow]) -> dict[str, list[MeasurementRow]]:
        """Return the rows of each finished callback of a checkpoint, by prefix.

        Args:
            rows: The rows of the checkpoint in the table, in their order.
        """
        content, start = self._read(), 0
        self.rows = {}
        if rows and content and content["checkpoint"] == _key(rows[0], self._texts_hash()):
            for prefix, number in content["callbacks"].items():
                if start + number > len(rows):
                    break
                self.rows[prefix] = list(rows[start : start + number])
                start += number
        return self.rows

    def clear(self) -> None:
        """Forget the checkpoint: it is complete, or will be measured again."""
        self.rows = {}
        self._path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        if not self._path.exists():
            return {}
        content: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        return content


def _key(row: MeasurementRow, texts_hash: str) -> list[str | int]:
    name, revision, commit, step = row.identity
    return [name, step, revision, commit, row.weights_hash, texts_hash]
