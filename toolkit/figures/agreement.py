"""The figure of agreement between models, in the style of `toolkit.figures.style`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.figures.style import BLUE, GREY, ORANGE, new_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES_A_ROW = 0.5
# For title, axis and legend.
_MARGIN = 1.2


def agreement_by_space(
    rows: Sequence[tuple[str, float, float, float, float]],
) -> "Figure":
    """Draw each comparison's agreement in full space, readout subspaces and random subspaces.

    Args:
        rows: Label, agreement in full space and inside the readout subspaces, mean and standard
            deviation over the random subspaces, of each comparison from top to bottom.
    """
    figure, axes = new_axes("Agreement of pairwise distances", "Spearman correlation")
    height = _MARGIN + _INCHES_A_ROW * max(len(rows), 4)
    figure.set_size_inches(figure.get_figwidth(), height)
    axes.set_position((0.04, 0.8 / height, 0.92, 1 - _MARGIN / height))
    labels, full, readout, means, stds = zip(*rows, strict=True)
    places = range(len(rows))
    axes.errorbar(
        means,
        places,
        xerr=stds,
        fmt="o",
        color=GREY,
        label="random subspaces, mean and std",
        markersize=4,
        capsize=3,
    )
    axes.plot(full, places, "s", color=BLUE, label="full space", mfc="none", markersize=7)
    axes.plot(readout, places, "D", color=ORANGE, label="readout subspaces", markersize=6)
    for place, label in zip(places, labels, strict=True):
        # Above its row, where a long name does not narrow the axes.
        axes.text(0.01, place - 0.28, label, fontsize=8, transform=axes.get_yaxis_transform())
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.5, -0.8)
    figure.legend(fontsize=8, loc="lower center", ncols=3, frameon=False)
    return figure
