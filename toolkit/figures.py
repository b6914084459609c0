"""Every figure, drawn without pyplot's global state; matplotlib is imported when one is drawn.

Sizes suit a TensorBoard card: about 600 pixels wide, so that text stays readable.
"""

from collections.abc import Mapping, Sequence
from math import isfinite, log10
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours are told apart with any kind of colour vision.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
_NUM_BINS = 60
_TICK_GAP = 0.05  # of the axis


def loss_against_width(
    losses: Mapping[int, float], *, step: int, lines: Mapping[str, Mapping[int, float]]
) -> "Figure":
    """Draw the loss of each width beside fitted and predicted lines, on logarithmic axes.

    Args:
        losses: Loss by width m, summed over features; what is not positive is left out.
        step: Optimiser updates behind the losses.
        lines: Up to three lines by label, each by width; what is not positive is left out.
    """
    figure, axes = new_axes(f"Loss against width, step {step:,}", "width m")
    axes.set_ylabel("loss (squared error, sum over features)")
    styles = zip(lines.items(), (ORANGE, BLUE, GREEN), (":", "-", "--"), strict=False)
    for (label, values), color, style in styles:
        axes.plot(*_positive(values), style, color=color, label=label, linewidth=1.6)
    axes.plot(*_positive(losses), "o", color="black", label="measured", markersize=6)
    _log_axes(axes, sorted(losses))
    axes.legend()
    return figure


def norm_histogram(norms: Mapping[int, Tensor], *, step: int, threshold: float) -> "Figure":
    """Draw how the row norms of W are distributed, one line for each width.

    Args:
        norms: Row norms by width m, each of shape ``(num_features,)``, on the CPU.
        step: Optimiser updates behind the weights.
        threshold: Norm above which a feature counts as represented.
    """
    figure, axes = new_axes(f"Row norms of W, step {step:,}", "row norm of W (one row per feature)")
    axes.set_ylabel("share of features")
    largest = max((float(values.max()) for values in norms.values()), default=0.0)
    bins = np.linspace(0, max(1.05 * largest, 1.2, 1.2 * threshold), _NUM_BINS + 1)
    for (m, values), color in zip(sorted(norms.items()), shades(len(norms)), strict=True):
        counts, _ = np.histogram(values.double().numpy(), bins)
        axes.stairs(counts / len(values), bins, color=color, label=f"m = {m}", linewidth=1.4)
    axes.axvline(threshold, color=GREY, linestyle="--", linewidth=1.2)
    axes.text(
        threshold,
        0.99,
        " represented →",
        color=GREY,
        va="top",
        transform=axes.get_xaxis_transform(),
    )
    axes.set_xlim(0, bins[-1])
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    if norms:
        axes.legend(ncols=1 + (len(norms) > 6))
    return figure


def overlap_against_width(
    overlap: Mapping[int, float],
    *,
    step: int,
    represented: Mapping[int, float],
    welch: Mapping[int, float],
) -> "Figure":
    """Draw the mean squared overlap of different rows against width, on logarithmic axes.

    Args:
        overlap: Mean squared overlap of all rows by width m; what is not positive is left out.
        step: Optimiser updates behind the weights.
        represented: The same for the represented rows.
        welch: Its smallest possible value, reached by tight frames.
    """
    figure, axes = new_axes(f"Overlap against width, step {step:,}", "width m")
    axes.set_ylabel("mean squared cosine of different rows")
    random = {m: 1 / m for m in overlap}
    axes.plot(*_positive(random), "--", color=GREY, label="random directions, 1/m")
    axes.plot(*_positive(welch), ":", color=ORANGE, label="tight frame (Welch)")
    axes.plot(*_positive(overlap), "o-", color=BLUE, label="all rows")
    # Hollow, as the two coincide once every feature is represented.
    xs, ys = _positive(represented)
    axes.plot(xs, ys, "s:", color=GREEN, label="represented rows", mfc="none", markersize=10)
    _log_axes(axes, sorted(overlap))
    axes.legend()
    return figure


def abs_cosine_histogram(
    counts: Tensor, *, step: int, largest: float, welch: float, published: float | None
) -> "Figure":
    """Draw how the |cosines| of all pairs of vectors are distributed.

    Args:
        counts: Pairs per bin, an even number of equal bins from -1 to 1, on the CPU.
        step: Optimiser updates behind the vectors.
        largest: Largest |cosine|.
        welch: Smallest possible largest |cosine|.
        published: Largest |cosine| of the published packing, None where there is none.
    """
    figure, axes = new_axes(f"|cos| of all pairs, step {step:,}", "|cos|")
    axes.set_ylabel("share of pairs")
    negative, positive = counts.double().numpy().reshape(2, -1)
    shares = (positive + negative[::-1]) / counts.sum().item()
    filled = int(np.flatnonzero(shares)[-1]) + 1
    # A figure resolves some sixty bins; neighbours are joined.
    joined = -(-filled // _NUM_BINS)
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
    """Draw measured largest |cosines| against what fitted laws say, on logarithmic axes.

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


def new_axes(title: str, xlabel: str) -> tuple["Figure", "Axes"]:
    """Return a figure of the house style, and its axes."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(5.6, 4.0), dpi=110)
    # Fixed margins: a layout engine would draw everything twice to find them.
    axes = figure.add_axes((0.15, 0.125, 0.82, 0.79))
    # A given height spares a search for one that clears the ticks.
    axes.set_title(title, fontsize=11, y=1.01)
    axes.set_xlabel(xlabel)
    axes.set_axisbelow(True)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _log_axes(axes: "Axes", widths: Sequence[int]) -> None:
    """Make both axes logarithmic, with the widths themselves and round numbers as ticks."""
    from matplotlib.ticker import (  # noqa: PLC0415
        LogLocator,
        MaxNLocator,
        NullLocator,
        StrMethodFormatter,
    )

    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = _spread(widths)
    axes.set_xticks(ticks, labels=[str(m) for m in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    if low <= 0:
        axes.set_ylim(0.1, 1)  # nothing to show
        return
    decades = log10(high / low)
    subs = (1, 2, 5) if decades < 3 else (1,)
    axes.yaxis.set_major_locator(MaxNLocator(6) if decades < 1 else LogLocator(subs=subs))
    if decades < 4:
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _spread(widths: Sequence[int]) -> list[int]:
    """Return the widths whose labels do not touch on a logarithmic axis."""
    kept = [widths[0]]
    for m in widths[1:]:
        if log10(m / kept[-1]) > _TICK_GAP * log10(widths[-1] / widths[0]):
            kept.append(m)
    return kept


def _positive(values: Mapping[int, float]) -> tuple[list[int], list[float]]:
    """Return the points that a logarithmic axis can show, by rising x."""
    kept = sorted(x for x, y in values.items() if y > 0 and isfinite(y))
    return kept, [values[x] for x in kept]


def shades(number: int) -> list[tuple[float, ...]]:
    """Return colours in order, dark to light, without the pale end that paper swallows."""
    from matplotlib import colormaps  # noqa: PLC0415

    return [tuple(color) for color in colormaps["viridis"](np.linspace(0, 0.9, number))]
