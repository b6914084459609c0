"""Write again what a damaged file or a full disk has kept from TensorBoard."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_info

from toolkit.runs.event_files import BoardPoints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

History = Mapping[int, Mapping[str, float]]
Figures = Mapping[str, "Figure"]


def write_scalars_again(logger: TensorBoardLogger, history: History, present: BoardPoints) -> None:
    """Log the values of the history that TensorBoard does not show.

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
    """Draw the figures of the history that TensorBoard does not show, or say that they are lost.

    Args:
        logger: The run's logger.
        prefix: First part of the figures' tags.
        history: Values by step and tag.
        present: What the logger's folder holds.
        draw: Returns the figures of a step by tag, None if that takes more than values.
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
