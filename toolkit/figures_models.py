"""Figures that compare several models, layer by layer."""

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING

from toolkit.figures import GREY, new_axes, shades

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        names = _upwards(layers)
        depths = [index / max(1, len(names) - 1) for index in range(len(names))]
        heights = [layers[name] for name in names]
        axes.plot(depths, heights, "o-", color=color, label=model, markersize=4, linewidth=1.4)
    axes.legend(fontsize=8)
    return figure


def one_against_another(x: Values, y: Values, *, xlabel: str, ylabel: str) -> "Figure":
    """Draw a quantity of each layer against another one, one colour for each model.

    Args:
        x: Value by layer, by model.
        y: The same of the other quantity; layers that lack either are left out.
        xlabel: Name of the first quantity.
        ylabel: Name of the other one.
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


def _upwards(layers: Mapping[str, float]) -> list[str]:
    return sorted(layers, key=lambda name: (name == "final", name))


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
