"""Figures of a language model: layer by step, and the cosines of its embedding matrices."""

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from toolkit.figures import BLUE, GREY, ORANGE, new_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    MaskedArray = np.ma.MaskedArray[tuple[int, ...], np.dtype[np.float64]]

_MAX_TICKS = 12


def layer_step_heat_map(
    values: Mapping[int, Mapping[str, float]],
    *,
    label: str,
    marked: Collection[int] = (),
    partly_marked: Collection[int] = (),
    complete: bool = True,
) -> "Figure":
    """Draw a quantity as colours, layers upwards and measured steps to the right.

    Quantities of both signs are coloured by sign, white at 0; what is not finite stays grey.

    Args:
        values: Value by layer, by step.
        label: Name of the quantity.
        marked: Steps that hold the weights of an earlier one; their numbers get an asterisk.
        partly_marked: Steps that hold an embedding matrix of an earlier one; theirs get a plus.
        complete: Whether all layers are there: the one before ``final``, which the paper does not
            have, then gets an asterisk.
    """
    steps = sorted(values)
    layers = sorted({name for row in values.values() for name in row}, key=_height)
    xlabel = "step (measured ones, evenly spaced)"
    xlabel = f"{xlabel}; * same weights as earlier" if marked else xlabel
    xlabel = f"{xlabel}; + same embedding matrix" if partly_marked else xlabel
    figure, axes = new_axes(f"{label}, step {steps[-1]:,}", xlabel)
    axes.set_position((0.12, 0.18, 0.70, 0.735))
    axes.grid(visible=False)
    axes.set_facecolor("#bbbbbb")
    names = _names(layers, complete=complete)
    starred = any(name.endswith("*") for name in names)
    axes.set_ylabel("layer (*: not in the paper)" if starred else "layer")
    grid = np.array([[values[step].get(layer, np.nan) for step in steps] for layer in layers])
    finite = np.ma.masked_invalid(grid)
    if finite.count():
        colours, low, high = _colours(finite)
        image = axes.imshow(
            finite, aspect="auto", origin="lower", cmap=colours, vmin=low, vmax=high
        )
        figure.colorbar(image, cax=figure.add_axes((0.85, 0.18, 0.03, 0.735)))
    _ticks(
        axes.set_xticks,
        [f"{step:,}{'*' * (step in marked)}{'+' * (step in partly_marked)}" for step in steps],
    )
    _ticks(axes.set_yticks, names)
    axes.tick_params(axis="x", rotation=45, labelsize=8)
    return figure


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
        num_drawn: Of how many rows the pairs are, where not of all.
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


def _colours(values: "MaskedArray") -> tuple[str, float, float]:
    """Return a colour map with its lowest and highest value."""
    low, high = float(values.min()), float(values.max())
    if low < 0 < high:
        widest = max(-low, high)
        return "RdBu_r", -widest, widest
    return "viridis", low, high if high > low else low + 1


def _ticks(set_ticks: Callable[..., object], labels: list[str]) -> None:
    """Label at most a dozen positions, the last one among them."""
    stride = -(-len(labels) // _MAX_TICKS)
    positions = range(len(labels) - 1, -1, -stride)
    set_ticks(list(positions), labels=[labels[position] for position in positions])


def _names(layers: list[str], *, complete: bool) -> list[str]:
    """Shorten names; the last numbered layer is marked where the paper has ``final`` instead."""
    names = [name.removeprefix("layer_") for name in layers]
    if complete and len(names) > 1 and names[-1] == "final":
        names[-2] += "*"
    return names


def _height(layer: str) -> tuple[bool, int, str]:
    """Sort key: numbered layers by number, on top of them what enters the unembedding."""
    return layer == "final", len(layer), layer
