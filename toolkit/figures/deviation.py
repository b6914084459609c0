"""Figures of embedding deviations: against the dimension, and the cosines they come from."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from toolkit.figures.style import BLUE, GREY, ORANGE, new_axes
from toolkit.functional import cosine_histogram

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PALE = "#aaaaaa"
# More names would cover the points.
_MOST_NAMES = 8
# A histogram over all pairs of a large vocabulary would cost more than all measurements.
_MAX_ROWS = 4096


def deviation_against_dim(
    measured: Sequence[tuple[str, int, float]], *, published: Sequence[tuple[int, float]]
) -> "Figure":
    """Draw embedding deviations against the dimension, with the two classes shaded.

    Args:
        measured: Name, dimension d and epsilon of each model; values that are not positive have no
            place on a logarithmic axis and are left out. Up to eight models are named.
        published: Dimension and epsilon of at least one published model.
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
    """The bounds are the bounds of the classes in `toolkit.functional.embedding_deviation`."""
    low, high = axes.get_ylim()
    axes.axhspan(0.2, high, color=ORANGE, alpha=0.1, linewidth=0)
    axes.axhspan(low, 0.1, color=BLUE, alpha=0.1, linewidth=0)
    for name, y, side in (("class 1", 0.205, "bottom"), ("class 2", 0.098, "top")):
        axes.text(0.01, y, name, color=GREY, va=side, transform=axes.get_yaxis_transform())


def matrix_histograms(
    matrices: Mapping[str, Tensor], *, step: int, epsilons: Mapping[str, float]
) -> "Figure":
    """Draw the cosines of the rows of matrices; a large matrix is reduced to evenly spaced rows.

    Args:
        matrices: Matrices of finite numbers by name, shape (rows, d).
        step: Optimiser updates behind the matrices.
        epsilons: Deviation by matrix.
    """
    counts = {name: cosine_histogram(_drawn(m)).counts.cpu() for name, m in matrices.items()}
    drawn = _MAX_ROWS if any(len(m) > _MAX_ROWS for m in matrices.values()) else None
    return cosine_histograms(counts, step=step, epsilons=epsilons, num_drawn=drawn)


def _drawn(matrix: Tensor) -> Tensor:
    """Return the matrix, or evenly spaced rows if it is large."""
    if len(matrix) <= _MAX_ROWS:
        return matrix
    return matrix[torch.linspace(0, len(matrix) - 1, _MAX_ROWS, device=matrix.device).long()]


def cosine_histograms(
    counts: Mapping[str, Tensor],
    *,
    step: int,
    epsilons: Mapping[str, float],
    num_drawn: int | None = None,
) -> "Figure":
    """Draw how the cosines of pairs of rows are distributed, one line for each matrix.

    Args:
        counts: Pairs per bin by matrix, equal bins from -1 to 1, on the CPU.
        step: Optimiser updates behind the matrices.
        epsilons: Deviation by matrix.
        num_drawn: Number of rows that form the pairs, if not all rows.
    """
    pairs = "all pairs" if num_drawn is None else f"pairs of {num_drawn:,} rows"
    figure, axes = new_axes(f"Cosines of {pairs}, step {step:,}", "cosine similarity")
    axes.set_ylabel("density of pairs")
    low, high = 1.0, -1.0
    for (name, bins), color in zip(counts.items(), (BLUE, ORANGE), strict=False):
        edges = np.linspace(-1, 1, len(bins) + 1)
        numbers = bins.double().numpy()
        axes.stairs(numbers / numbers.sum() / np.diff(edges), edges, color=color, label=name)
        axes.axvline(
            epsilons[name],
            color=color,
            linestyle="--",
            linewidth=1,
            label=f"epsilon {epsilons[name]:.4f}",
        )
        filled = np.flatnonzero(numbers > 1e-4 * numbers.max())
        low = min(low, edges[filled[0]], epsilons[name])
        high = max(high, edges[filled[-1] + 1], epsilons[name])
    margin = 0.05 * (high - low)
    axes.set_xlim(low - margin, high + margin)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.legend()
    return figure
