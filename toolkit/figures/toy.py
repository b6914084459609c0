"""Figures of the toy model: losses, row norms and overlaps against the width."""

from collections.abc import Mapping, Sequence
from math import isfinite, log10
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from toolkit.figures.style import BLUE, GREEN, GREY, NUM_BINS, ORANGE, new_axes, shades

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TICK_GAP = 0.05  # of the axis


def loss_against_width(
    losses: Mapping[int, float], *, step: int, lines: Mapping[str, Mapping[int, float]]
) -> "Figure":
    """Draw the loss of each width beside fitted and predicted lines, on logarithmic axes.

    Args:
        losses: Loss by width m, summed over features; values that are not positive are left out.
        step: Optimiser updates behind the losses.
        lines: Up to three lines by label, each by width; values that are not positive are left out.
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
    bins = np.linspace(0, max(1.05 * largest, 1.2, 1.2 * threshold), NUM_BINS + 1)
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
        overlap: Mean squared overlap of all rows by width m; only positive values are drawn.
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
    # Hollow markers, as both series coincide once every feature is represented.
    xs, ys = _positive(represented)
    axes.plot(xs, ys, "s:", color=GREEN, label="represented rows", mfc="none", markersize=10)
    _log_axes(axes, sorted(overlap))
    axes.legend()
    return figure


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
