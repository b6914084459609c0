"""Where measurements go: the loggers, their figures and the run's table."""

from collections.abc import Mapping
from typing import Any

import lightning as L
from lightning.pytorch.loggers import Logger
from torch import Tensor

from callbacks.measurement import Moment
from toolkit.points import Point, measurement_rows
from toolkit.provenance import dtype_names, versions
from toolkit.run_folder import logger_folder
from toolkit.table import TABLE_NAME, MeasurementRow, MeasurementTable


class Recorder:
    """Writes what one callback measures; all but its construction happens on rank zero.

    Args:
        trainer: The running trainer; every rank constructs its recorder in ``setup``.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        # A collective: each rank's logger may count another version.
        folder = trainer.strategy.broadcast(logger_folder(trainer.loggers))
        self._run = "/".join(folder.parts[-2:]) if folder else ""
        self._path = folder / TABLE_NAME if folder else None
        self._table: MeasurementTable | None = None

    @property
    def table(self) -> MeasurementTable | None:
        """The run's table, None where no logger has a folder."""
        if self._table is None and self._path is not None:
            self._table = MeasurementTable(self._path)
        return self._table

    def rows(
        self,
        moment: Moment,
        points: list[Point],
        tensors: Mapping[str, Tensor],
        *,
        conditions: dict[str, Any],
    ) -> list[MeasurementRow]:
        """Return the points as rows of the table, with the fingerprint of ``tensors``."""
        common = {
            "run": self._run,
            "model": type(moment.pl_module).__name__,
            "revision": "",
            "commit": "",
            "step": moment.step,
            "conditions": conditions,
            "dtype": dtype_names(tensors.values()),
            "weights_hash": moment.fingerprint(tensors),
            "versions": versions("lightning"),
        }
        return measurement_rows(points, common)

    def holds(self, rows: list[MeasurementRow]) -> bool:
        """Whether the table has measured the same weights at the same step in the same way."""
        return self.table is not None and self.table.holds(rows[0])

    def write(
        self, moment: Moment, rows: list[MeasurementRow], values: Mapping[str, float]
    ) -> None:
        """Append the rows and log the values at the moment's own step."""
        if self.table is not None:
            self.table.append(rows)
        for logger in moment.trainer.loggers:
            logger.log_metrics(dict(values), step=moment.step)


def figure_boards(loggers: list[Logger]) -> list[Any]:
    """The loggers' experiments that can show a figure, as TensorBoard's can."""
    experiments = [getattr(logger, "experiment", None) for logger in loggers]
    return [board for board in experiments if hasattr(board, "add_figure")]
