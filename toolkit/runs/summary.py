"""The table at the end of a run, with the last and first values of its callbacks."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from toolkit.console.output_files import write_json
from toolkit.runs.layer_order import in_layer_order
from toolkit.runs.measuring import Measuring
from toolkit.runs.points import values_by_layer

_WIDTH = re.compile(r"m_0*(\d+)")


@dataclass(frozen=True)
class Summary:
    """The last values of a run, beside the first.

    Attributes:
        step: The last measured step, None if nothing was measured.
        columns: Titles of the columns.
        cells: Values by layer and title.
        lines: Sentences that go below the table.
        values: All last values by tag.
        first_step: The first measured step, None if it is also the last.
        first_cells: Values of the first step by layer and title.
    """

    step: int | None
    columns: list[str]
    cells: dict[str, dict[str, float]]
    lines: list[str]
    values: dict[str, float]
    first_step: int | None = None
    first_cells: dict[str, dict[str, float]] = field(default_factory=dict)

    def print(self, console: Console | None = None) -> None:
        """Print the table and the lines, if anything was measured.

        Args:
            console: Where to; standard output by default.
        """
        if self.step is None:
            return
        console = console or Console()
        if self.cells:
            console.print(self._table())
        for line in self.lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    def write(self, path: str | Path) -> None:
        """Write the summary as JSON, NaN as null, in one step."""
        content = {
            "step": self.step,
            "columns": self.columns,
            "cells": self.cells,
            "first_step": self.first_step,
            "first_cells": self.first_cells,
            "lines": self.lines,
            "values": self.values,
        }
        write_json(Path(path), content)

    def _table(self) -> Table:
        widths = all(_WIDTH.fullmatch(layer) for layer in self.cells)
        first = "" if self.first_step is None else f" (in brackets: step {self.first_step:,})"
        table = Table(title=f"After step {self.step:,}{first}")
        for title in ("width" if widths else "layer", *self.columns):
            table.add_column(title, justify="right")
        for layer, row in self.cells.items():
            name = _WIDTH.sub(r"\1", layer) if widths else layer
            before = self.first_cells.get(layer, {})
            table.add_row(
                name, *(_cell(row.get(title), before.get(title)) for title in self.columns)
            )
        return table


def collect(callbacks: Iterable[object]) -> Summary:
    """Gather the headlines of the `Measuring` callbacks among ``callbacks``, in their order."""
    watchers = [callback for callback in callbacks if isinstance(callback, Measuring)]
    steps = [step for callback in watchers for step in callback.history]
    first, last = min(steps, default=None), max(steps, default=None)
    first = None if first == last else first
    tags: dict[str, str] = {}
    cells: dict[str, dict[str, float]] = {}
    first_cells: dict[str, dict[str, float]] = {}
    for callback in watchers:
        for quantity, name in callback.headline_columns.items():
            title = f"{name} ({callback.prefix})" if name in tags else name
            tags[title] = f"{callback.prefix}/{quantity}"
            before = {} if first is None else callback.history.get(first, {})
            for target, values in ((cells, callback.latest), (first_cells, before)):
                for layer, value in values_by_layer(values, tags[title]).items():
                    target.setdefault(layer, {})[title] = value
    return Summary(
        step=last,
        columns=list(tags),
        cells={layer: cells[layer] for layer in in_layer_order(cells)},
        first_step=first,
        first_cells=first_cells,
        lines=[
            line
            for callback in watchers
            for line in (*callback.headline_lines(), *callback.nonfinite_lines())
        ],
        values={tag: value for callback in watchers for tag, value in callback.latest.items()},
    )


def _cell(value: float | None, before: float | None) -> str:
    shown, first = (
        "-" if number is None or math.isnan(number) else f"{number:.4g}"
        for number in (value, before)
    )
    return shown if before is None else f"{shown} ({first})"
