"""The style of every figure: axes and colours, without pyplot's global state.

Sizes suit a TensorBoard card: about 600 pixels wide, so that text stays readable.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours are distinct with any kind of colour vision.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
NUM_BINS = 60


def new_axes(title: str, xlabel: str) -> tuple["Figure", "Axes"]:
    """Return a figure in the toolkit's style, and its axes."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(5.6, 4.0), dpi=110)
    # Fixed margins: a layout engine would draw everything twice to find them.
    axes = figure.add_axes((0.15, 0.125, 0.82, 0.79))
    # With a given height matplotlib need not search for a free position.
    axes.set_title(title, fontsize=11, y=1.01)
    axes.set_xlabel(xlabel)
    axes.set_axisbelow(True)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def shades(number: int) -> list[tuple[float, ...]]:
    """Return colours in order, dark to light, without the pale end, which is invisible on paper."""
    from matplotlib import colormaps  # noqa: PLC0415

    return [tuple(color) for color in colormaps["viridis"](np.linspace(0, 0.9, number))]
