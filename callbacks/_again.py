"""Restoring points that TensorBoard lost through a damaged file or a full disk."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import lightning as L
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_info

from callbacks.moment import Moment
from toolkit.runs.event_files import BoardPoints, points_in

if TYPE_CHECKING:
    from matplotlib.figure import Figure

History = Mapping[int, Mapping[str, float]]
Figures = Mapping[str, "Figure"]


class Drawing(Protocol):
    """A callback that draws figures of its history."""

    history: dict[int, dict[str, float]]

    @property
    def draws_values(self) -> bool:
        """Whether `figures` needs only values and `history`."""

    @property
    def prefix(self) -> str:
        """First part of every tag."""

    def tag(self, quantity: str, layer: str = "", *, metric: str = "") -> str:
        """Return the tag of a number or figure."""

    def figures(self, moment: Moment, values: Mapping[str, float]) -> Figures:
        """Return figures by name."""


def write_again(
    callback: Drawing,
    trainer: L.Trainer,
    pl_module: L.LightningModule,
    shared: dict[Any, Any],
    *,
    has_figures: bool,
) -> None:
    """Write the points of the history that TensorBoard has lost.

    Args:
        callback: The callback with the history.
        trainer: The running trainer.
        pl_module: Its model.
        shared: Results that the callbacks of a step share: each folder is read once.
        has_figures: Whether the callback draws figures.
    """
    history = callback.history

    def draw(step: int) -> dict[str, "Figure"]:
        callback.history = {other: v for other, v in history.items() if other <= step}
        try:
            figures = callback.figures(Moment(trainer, pl_module, step, {}), history[step])
        finally:
            callback.history = history
        return {callback.tag(name): figure for name, figure in figures.items()}

    for logger in trainer.loggers:
        if not isinstance(logger, TensorBoardLogger):
            continue
        if (key := ("board", logger.log_dir)) not in shared:
            logger.save()
            shared[key] = points_in(logger.log_dir)
        write_scalars_again(logger, history, shared[key])
        if has_figures:
            drawing = draw if callback.draws_values else None
            draw_figures_again(logger, callback.prefix, history, shared[key], drawing)


def write_scalars_again(logger: TensorBoardLogger, history: History, present: BoardPoints) -> None:
    """Log the values of the history that are missing in TensorBoard.

    Args:
        logger: The run's logger.
        history: Values by step and tag.
        present: What the logger's folder holds.
    """
    for step, values in history.items():
        missing = {tag: v for tag, v in values.items() if (tag, step) not in present.scalars}
        if missing:
            logger.log_metrics(missing, step=step)


def draw_figures_again(
    logger: TensorBoardLogger,
    prefix: str,
    history: History,
    present: BoardPoints,
    draw: Callable[[int], Figures] | None,
) -> None:
    """Draw the figures of the history that TensorBoard does not show, or report them as lost.

    Args:
        logger: The run's logger.
        prefix: First part of the figures' tags.
        history: Values by step and tag.
        present: What the logger's folder holds.
        draw: Returns the figures of a step by tag; None if figures need more than values.
    """
    shown = {point for point in present.images if point[0].startswith(f"{prefix}/")}
    tags = {tag for tag, _ in shown}
    measured = [step for step, values in history.items() if values]
    missing = [s for s in measured if not tags or any((tag, s) not in shown for tag in tags)]
    if draw is not None:
        for step in missing:
            for tag, figure in draw(step).items():
                if (tag, step) not in shown:
                    logger.experiment.add_figure(tag, figure, global_step=step)
    elif missing:
        steps = ", ".join(map(str, missing))
        rank_zero_info(
            f"{prefix}: TensorBoard lacks the figures of step {steps}, which take the weights of "
            "that step; the numbers are there"
        )
