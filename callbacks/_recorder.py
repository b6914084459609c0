"""The targets of measurements: loggers, figures and the run's table."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightning.pytorch.loggers import Logger
from torch import Tensor

from callbacks.moment import Moment
from toolkit.runs.folder import logger_folder, used_error
from toolkit.runs.identity import WeightsIdentity
from toolkit.runs.model_logger import ModelLogger, is_walk
from toolkit.runs.points import Point, measurement_rows
from toolkit.runs.provenance import dtype_names, versions
from toolkit.runs.table import TABLE_NAME, MeasurementRow, MeasurementTable, read_measurements

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Recorder:
    """Writes the measurements of a callback; every rank constructs it, rank zero writes.

    Args:
        trainer: The running trainer; every rank constructs its recorder in ``setup``.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        self._is_walk = is_walk(trainer.loggers)
        loggers = [logger for logger in trainer.loggers if isinstance(logger, ModelLogger)]
        self._unfinished = loggers[0].unfinished if loggers else None
        # All ranks take part: the logger of each rank may count a different version.
        folder = trainer.strategy.broadcast(_table_folder(trainer.loggers))
        self._run = "/".join(folder.parts[-2:]) if folder else ""
        self._path = folder / TABLE_NAME if folder else None
        self._table: MeasurementTable | None = None

    def check_unused(self) -> None:
        """Refuse the folder of an earlier run: its rows and points would be duplicated.

        Raises:
            ValueError: If the table has rows of a training.
        """
        if self._path is None or not self._path.exists():
            return
        if any(row.step > 0 for row in read_measurements(self._path)):
            raise used_error(self._path.parent)

    @property
    def table(self) -> MeasurementTable | None:
        """The run's table, None if no logger has a folder."""
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
        source = moment.source
        trained = WeightsIdentity(type(moment.pl_module).__name__, step=moment.step)
        common = {
            "run": self._run,
            **(source or trained).columns(),
            "conditions": conditions,
            "dtype": dtype_names(tensors.values()),
            "weights_hash": moment.fingerprint(tensors),
            "versions": versions("lightning", *(() if source is None else ("transformers",))),
        }
        return measurement_rows(points, common)

    def holds(self, rows: list[MeasurementRow]) -> bool:
        """Whether the table has measured the same weights at the same step in the same way."""
        if self._is_walk:
            # A walk itself skips finished checkpoints, and its table is long.
            return False
        return bool(rows) and self.table is not None and self.table.holds(rows[0])

    def finished(self, prefix: str) -> list[MeasurementRow]:
        """Return the rows of this checkpoint that a walk had written before a kill."""
        return [] if self._unfinished is None else self._unfinished.rows.get(prefix, [])

    def write(
        self, moment: Moment, rows: list[MeasurementRow], values: Mapping[str, float], prefix: str
    ) -> None:
        """Append the rows, unless the table has them, and log the values at the moment's step."""
        if self.table is not None and not self.finished(prefix):
            self.table.append(rows)
            if self._unfinished is not None:
                self._unfinished.note(prefix, rows)
        for logger in moment.trainer.loggers:
            logger.log_metrics(dict(values), step=moment.step)


def _table_folder(loggers: list[Logger]) -> Path | None:
    """Return the table's folder: the loggers' folder, or in a walk the folder of all models."""
    shared = [logger.table_folder for logger in loggers if isinstance(logger, ModelLogger)]
    return shared[0] if shared else logger_folder(loggers)


def show_values(trainer: L.Trainer, values: Mapping[str, float]) -> None:
    """Make the values available to a ModelCheckpoint, on all ranks."""
    # With pl_module.log, Lightning would process each value again after every later batch.
    trainer.callback_metrics.update(
        {tag: torch.tensor(value, dtype=torch.float64) for tag, value in values.items()}
    )


def show_figures(
    moment: Moment,
    figures: Callable[[], Mapping[str, "Figure"]],
    tag: Callable[[str], str],
) -> None:
    """Add the figures to the loggers that can show them; draw none without such a logger.

    Args:
        moment: The moment of the measurement.
        figures: Draws the figures, by name.
        tag: Returns the tag of a figure's name.
    """
    boards = _figure_boards(moment.trainer.loggers)
    for name, figure in figures().items() if boards else ():
        for board in boards:
            board.add_figure(tag(name), figure, global_step=moment.step)


def _figure_boards(loggers: list[Logger]) -> list[Any]:
    """Return the loggers' experiments that can show a figure, such as TensorBoard's."""
    experiments = [getattr(logger, "experiment", None) for logger in loggers]
    return [board for board in experiments if hasattr(board, "add_figure")]
