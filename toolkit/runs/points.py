"""Measured numbers, and their rows in the long table."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from toolkit.functional._checks import shown
from toolkit.runs.table import MeasurementRow

_Number = TypeVar("_Number", int, float)


class Point(NamedTuple):
    """One measured number.

    Attributes:
        quantity: Second part of the tag.
        layer: Third part of the tag; empty for a number that belongs to no layer.
        value: The number, NaN where it could not be computed.
        num_points: Rows, texts or widths behind the number, None if undefined.
        metric: First part of the tag; empty for the metric of its measurement.
        reason: Why the value is NaN; empty for a number.
    """

    quantity: str
    layer: str
    value: float
    num_points: int | None = None
    metric: str = ""
    reason: str = ""


def plain_points(points: Iterable[Point]) -> list[Point]:
    """Return the points with plain Python numbers, for history, table and loggers.

    Args:
        points: Points; values may be one-element tensors, numpy numbers, booleans or integers.

    Raises:
        ValueError: If a value is not a real number.
    """
    return [
        point._replace(
            value=_plain(float, point, "value"),
            num_points=None if point.num_points is None else _plain(int, point, "num_points"),
        )
        for point in points
    ]


def _plain(kind: Callable[[Any], _Number], point: Point, field: str) -> _Number:
    number = getattr(point, field)
    if isinstance(number, Tensor):
        number = number.detach()
    try:
        return kind(number)
    except (TypeError, ValueError, RuntimeError) as error:
        tag = "/".join(part for part in (point.quantity, point.layer) if part)
        raise ValueError(
            f"{field}: expected one number for {tag}, got {shown(number)}; return one point for "
            "each number"
        ) from error


def num_nonfinite(*tensors: Tensor) -> int:
    """Return how many values are NaN or infinite."""
    return sum(int((~torch.isfinite(tensor)).sum()) for tensor in tensors)


def measurement_rows(points: Iterable[Point], common: Mapping[str, Any]) -> list[MeasurementRow]:
    """Return the points, each with its metric, as rows of the table.

    A reason is added to the row's conditions, as ``reason``.

    Args:
        points: The measured numbers.
        common: The fields of `MeasurementRow` that all rows share.
    """
    return [_row(point, common) for point in points]


def _row(point: Point, common: Mapping[str, Any]) -> MeasurementRow:
    fields = {**common, **point._asdict()}
    reason = fields.pop("reason")
    if reason:
        fields["conditions"] = {**common["conditions"], "reason": reason}
    return MeasurementRow(**fields)


def values_by_layer(values: Mapping[str, float], prefix: str) -> dict[str, float]:
    """Return the values whose tags are ``prefix/<layer>``, by layer."""
    start = f"{prefix}/"
    return {tag.removeprefix(start): v for tag, v in values.items() if tag.startswith(start)}
