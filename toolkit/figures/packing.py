"""Figures of packings: their cosines, and their deviations against fitted laws."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from toolkit.figures.style import BLUE, GREEN, GREY, NUM_BINS, ORANGE, new_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def abs_cosine_histogram(
    counts: Tensor, *, step: int, largest: float, welch: float, published: float | None
) -> "Figure":
    """Draw how the |cosines| of all pairs of vectors are distributed.

    Args:
        counts: Pairs per bin, an even number of equal bins from -1 to 1, on the CPU.
        step: Optimiser updates behind the vectors.
        largest: Largest |cosine|.
        welch: Smallest possible largest |cosine|.
        published: Largest |cosine| of the published packing, None without a published packing.
    """
    figure, axes = new_axes(f"|cos| of all pairs, step {step:,}", "|cos|")
    axes.set_ylabel("share of pairs")
    negative, positive = counts.double().numpy().reshape(2, -1)
    shares = (positive + negative[::-1]) / counts.sum().item()
    filled = int(np.flatnonzero(shares)[-1]) + 1
    # A figure resolves some sixty bins; neighbours are joined.
    joined = -(-filled // NUM_BINS)
    padded = np.pad(shares[:filled], (0, -filled % joined)).reshape(-1, joined).sum(1)
    bins = np.arange(len(padded) + 1) * joined / len(shares)
    axes.stairs(padded, bins, color=BLUE, fill=True, alpha=0.8)
    lines = {"largest": largest, "Welch bound": welch, "published": published}
    styles = zip(lines.items(), ("black", ORANGE, GREEN), ("-", ":", "--"), strict=True)
    for (label, value), color, style in styles:
        if value is not None:
            axes.axvline(value, color=color, linestyle=style, label=f"{label} {value:.4f}")
    axes.set_xlim(0, 1.1 * max(value for value in lines.values() if value is not None))
    axes.set_ylim(0, 1.25 * padded.max())
    axes.legend()
    return figure


def measured_against_fitted(
    measured: Mapping[str, Sequence[float]], fitted: Mapping[str, Sequence[float]]
) -> "Figure":
    """Draw the largest measured |cosines| against fitted laws, on logarithmic axes.

    Args:
        measured: Measured values of the points each law was fitted to, by law; all positive.
        fitted: The laws' values for the same points.
    """
    figure, axes = new_axes("Largest |cos|, measured against fitted", "fitted")
    axes.set_ylabel("measured")
    styles = zip(measured.items(), (BLUE, ORANGE, GREEN), ("o", "s", "^"), strict=False)
    for (law, values), color, marker in styles:
        axes.plot(fitted[law], values, marker, color=color, label=law, mfc="none", markersize=5)
    largest = max(max(values) for values in measured.values())
    smallest = min(min(values) for values in measured.values())
    axes.plot([smallest, largest], [smallest, largest], "-", color=GREY, linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend()
    return figure
