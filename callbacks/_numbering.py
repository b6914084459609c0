"""Tags of a callback: a trainer's second callback of a metric has a prefix of its own."""

from collections.abc import Iterable

from toolkit.runs.points import Point
from toolkit.runs.table import MeasurementRow


class Numbering:
    """The number behind the metrics of one callback."""

    def __init__(self) -> None:
        self._suffix = ""

    def settle(self, metric: str, earlier: Iterable[str]) -> None:
        """Number the metric behind those of the earlier callbacks of a run."""
        number = list(earlier).count(metric)
        self._suffix = f"_{number + 1}" if number else ""

    def prefixed(self, metric: str) -> str:
        """Return the first part of the tags of a metric."""
        return f"{metric}{self._suffix}"

    def named(self, point: Point, metric: str) -> Point:
        """Return the point of a measurement of ``metric`` with the first part of its own tag."""
        return point._replace(metric=self.prefixed(point.metric or metric))

    def point(self, row: MeasurementRow, metric: str) -> Point:
        """Return the point that has become a row, as a measurement of ``metric`` returns it."""
        own = row.metric == self.prefixed(metric)
        other = "" if own else row.metric.removesuffix(self._suffix)
        return Point(row.quantity, row.layer, row.value, row.num_points, other)
