"""Figures of layers: by step, against depth, and a quantity against another quantity."""

from collections.abc import Callable, Collection, Mapping
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from toolkit.figures.style import GREY, new_axes, shades
from toolkit.runs.layer_order import in_layer_order

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

    Quantities of both signs are coloured by sign, white at 0; values that are not finite stay grey.

    Args:
        values: Value by layer, by step.
        label: Name of the quantity.
        marked: Steps with the weights of an earlier step; their numbers get an asterisk.
        partly_marked: Steps with an embedding matrix of an earlier step; their numbers get a plus.
        complete: Whether all layers have values. The layer before ``final``, which the paper does
            not have, then gets an asterisk.
    """
    steps = sorted(values)
    layers = in_layer_order({name for row in values.values() for name in row})
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


def _colours(values: "MaskedArray") -> tuple[str, float, float]:
    """Return a colour map with its lowest and highest value."""
    low, high = float(values.min()), float(values.max())
    if low < 0 < high:
        widest = max(-low, high)
        return "RdBu_r", -widest, widest
    return "viridis", low, high if high > low else low + 1


def _ticks(set_ticks: Callable[..., object], labels: list[str]) -> None:
    """Label at most a dozen positions, including the last."""
    stride = -(-len(labels) // _MAX_TICKS)
    positions = range(len(labels) - 1, -1, -stride)
    set_ticks(list(positions), labels=[labels[position] for position in positions])


def _names(layers: list[str], *, complete: bool) -> list[str]:
    """Shorten names; the last numbered layer is marked where the paper has ``final`` instead."""
    names = [name.removeprefix("layer_") for name in layers]
    if complete and len(names) > 1 and names[-1] == "final":
        names[-2] += "*"
    return names


Values = Mapping[str, Mapping[str, float]]


def against_depth(values: Values, *, label: str) -> "Figure":
    """Draw a quantity against relative depth, one line for each model.

    Args:
        values: Value by layer, by model; models in the order of the colours, dark to light.
        label: Name of the quantity.
    """
    figure, axes = new_axes(f"{label} against depth", "depth (0 embedding, 1 what is read out)")
    axes.set_ylabel(label)
    axes.axhline(0, color=GREY, linewidth=0.8)
    for (model, layers), color in zip(values.items(), shades(len(values)), strict=True):
        names = in_layer_order(layers)
        depths = [index / max(1, len(names) - 1) for index in range(len(names))]
        heights = [layers[name] for name in names]
        axes.plot(depths, heights, "o-", color=color, label=model, markersize=4, linewidth=1.4)
    axes.legend(fontsize=8)
    return figure


def one_against_another(x: Values, y: Values, *, xlabel: str, ylabel: str) -> "Figure":
    """Draw a quantity of each layer against another quantity, one colour for each model.

    Args:
        x: Value by layer, by model.
        y: Second quantity by layer, by model; layers that lack one of the two are left out.
        xlabel: Name of the first quantity.
        ylabel: Name of the second quantity.
    """
    figure, axes = new_axes(f"{ylabel} against {xlabel}, a point for each layer", xlabel)
    axes.set_ylabel(ylabel)
    axes.axvline(0, color=GREY, linewidth=0.8)
    for (model, layers), color in zip(x.items(), shades(len(x)), strict=True):
        others = y.get(model, {})
        points = [(layers[name], others[name]) for name in layers if name in others]
        finite = [point for point in points if all(map(isfinite, point))]
        axes.plot(*_columns(finite), "o", color=color, label=model, markersize=5)
    axes.legend(fontsize=8)
    return figure


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
