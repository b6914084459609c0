"""From the values of each layer or matrix to points, with NaN where an input is not finite."""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from torch import Tensor

from toolkit.measures.declaration import NUM_NONFINITE, Quantity
from toolkit.measures.subject import Subject
from toolkit.runs.points import Point, num_nonfinite


class Value(NamedTuple):
    """A number with a note.

    Attributes:
        value: The number, NaN where it is undefined.
        num_points: Rows or texts behind it; None for all of them.
        reason: Why it is NaN.
    """

    value: float
    num_points: int | None = None
    reason: str = ""


class Undefined(NamedTuple):
    """Stands for the values of a layer where every quantity is NaN.

    Attributes:
        reason: Why.
    """

    reason: str


Values = Mapping[str, float | Value] | Undefined


def layer_points(
    subject: Subject,
    quantities: Iterable[Quantity],
    values: Callable[[str, Tensor], Values],
    *,
    num_nonfinite_beside: Callable[[str], int] = lambda _: 0,
) -> list[Point]:
    """Return the points of each layer, from the vectors of the test texts.

    Args:
        subject: Model and texts.
        quantities: What ``values`` returns.
        values: Returns the values by name of a layer, given its name and the vectors of the test
            texts, float32, shape (N, d). It is called for finite vectors alone.
        num_nonfinite_beside: Returns how many values are not finite among the other inputs of a
            layer.

    Returns:
        ``num_nonfinite`` and the quantities of each layer, NaN with a reason where an input is not
        finite.
    """
    quantities = tuple(quantities)
    points = []
    for layer, hidden in subject.states("test").items():
        points += place_points(
            layer,
            quantities,
            partial(values, layer, hidden),
            num_points=len(hidden),
            num_nonfinite=num_nonfinite(hidden) + num_nonfinite_beside(layer),
        )
    return points


def matrix_points(
    name: str, matrix: Tensor, quantities: Iterable[Quantity], values: Callable[[Tensor], Values]
) -> list[Point]:
    """Return the points of an embedding matrix, of shape (rows, d), as `layer_points` does."""
    return place_points(
        name,
        quantities,
        partial(values, matrix),
        num_points=len(matrix),
        num_nonfinite=num_nonfinite(matrix),
    )


def place_points(
    place: str,
    quantities: Iterable[Quantity],
    values: Callable[[], Values],
    *,
    num_points: int,
    num_nonfinite: int,
) -> list[Point]:
    """Return the points of a layer or matrix: the count of bad inputs, then each quantity.

    Args:
        place: Name of the layer or matrix.
        quantities: What ``values`` returns.
        values: Returns the values by name; called if all inputs are finite.
        num_points: Rows or texts of the place.
        num_nonfinite: Inputs that are NaN or infinite.
    """
    found = Undefined(f"{num_nonfinite} values are not finite") if num_nonfinite else values()
    points = [Point(NUM_NONFINITE.name, place, num_nonfinite, num_points)]
    for quantity in quantities:
        if isinstance(found, Undefined):
            each: float | Value = Value(math.nan, reason=found.reason)
        else:
            each = found[quantity.name]
        value = each if isinstance(each, Value) else Value(each)
        number = num_points if value.num_points is None else value.num_points
        points.append(
            Point(quantity.name, place, value.value, number, quantity.metric, value.reason)
        )
    return points
