"""Measured numbers, and how they become rows of the long table."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toolkit.runs.table import MeasurementRow


class Point(NamedTuple):
    """One measured number.

    Attributes:
        quantity: Second part of the tag.
        layer: Third part of the tag; empty for a number that belongs to no layer.
        value: The number, NaN where it could not be computed.
        num_points: Rows, texts or widths that entered it, None where that means nothing.
        metric: First part of the tag; empty for that of the measurement which it comes from.
        reason: Why the value is NaN; empty for a number.
    """

    quantity: str
    layer: str
    value: float
    num_points: int | None = None
    metric: str = ""
    reason: str = ""


def num_nonfinite(*tensors: Tensor) -> int:
    """Return how many values are NaN or infinite."""
    return sum(int((~torch.isfinite(tensor)).sum()) for tensor in tensors)


def measurement_rows(points: Iterable[Point], common: Mapping[str, Any]) -> list[MeasurementRow]:
    """Return the points, each with its metric, as rows of the table.

    A reason is added to the row's conditions, as ``reason``.

    Args:
        points: What was measured.
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
