"""Prefixes of tags: a trainer's second callback of a metric has another prefix."""

from collections.abc import Iterable

from toolkit.runs.points import Point
from toolkit.runs.table import MeasurementRow


class Numbering:
    """The number that follows the metric in a callback's prefix."""

    def __init__(self) -> None:
        self._suffix = ""

    def settle(self, metric: str, earlier: Iterable[str]) -> None:
        """Set the number from the earlier callbacks of the run."""
        number = list(earlier).count(metric)
        self._suffix = f"_{number + 1}" if number else ""

    def prefixed(self, metric: str) -> str:
        """Return the first part of the tags of a metric."""
        return f"{metric}{self._suffix}"

    def named(self, point: Point, metric: str) -> Point:
        """Return a point with the complete first part of its tag."""
        return point._replace(metric=self.prefixed(point.metric or metric))

    def point(self, row: MeasurementRow, metric: str) -> Point:
        """Return the point of a row, as the measurement of ``metric`` had returned it."""
        own = row.metric == self.prefixed(metric)
        other = "" if own else row.metric.removesuffix(self._suffix)
        return Point(row.quantity, row.layer, row.value, row.num_points, other)
