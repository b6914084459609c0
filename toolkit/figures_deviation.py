"""The figure of embedding deviations, in the style of `toolkit.figures`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from toolkit.figures import BLUE, GREY, ORANGE, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PALE = "#aaaaaa"
# More names would cover the points.
_MOST_NAMES = 8


def deviation_against_dim(
    measured: Sequence[tuple[str, int, float]], *, published: Sequence[tuple[int, float]]
) -> "Figure":
    """Draw embedding deviations against the dimension, with the two classes shaded.

    Args:
        measured: Name, dimension d and epsilon of each model; what is not positive, and has no
            place on a logarithmic axis, is left out. Up to eight are named.
        published: Dimension and epsilon of published models, one or more.
    """
    from matplotlib import colormaps  # noqa: PLC0415

    figure, axes = new_axes("Embedding deviation against dimension", "dimension d")
    axes.set_ylabel("epsilon = mu + 2 sigma")
    dims, epsilons = zip(*published, strict=True)
    axes.plot(dims, epsilons, "o", color=_PALE, label="published", markersize=4)
    shown = [point for point in measured if point[2] > 0]
    colors = colormaps["viridis"](np.linspace(0, 0.9, len(shown)))
    for (name, dim, epsilon), color in zip(shown, colors, strict=True):
        axes.plot(dim, epsilon, "D", color=tuple(color), label=name, markersize=7)
    _set_scales(axes)
    _shade_classes(axes)
    if len(shown) <= _MOST_NAMES:
        axes.legend(fontsize=8)
    return figure


def _set_scales(axes: "Axes") -> None:
    """Logarithmic axes with powers of two and round numbers as ticks, both classes in sight."""
    from matplotlib.ticker import (  # noqa: PLC0415
        LogLocator,
        NullLocator,
        StrMethodFormatter,
    )

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis, locator in (
        (axes.xaxis, LogLocator(base=2)),
        (axes.yaxis, LogLocator(subs=(1, 2, 5))),
    ):
        axis.set_major_locator(locator)
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.08), 1.5 * max(high, 0.25))


def _shade_classes(axes: "Axes") -> None:
    """The bounds are those of `toolkit.functional.embedding_deviation`."""
    low, high = axes.get_ylim()
    axes.axhspan(0.2, high, color=ORANGE, alpha=0.1, linewidth=0)
    axes.axhspan(low, 0.1, color=BLUE, alpha=0.1, linewidth=0)
    for name, y, side in (("class 1", 0.205, "bottom"), ("class 2", 0.098, "top")):
        axes.text(0.01, y, name, color=GREY, va=side, transform=axes.get_yaxis_transform())
