"""The interface of a measuring callback for summaries, walks and reports."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from lightning.pytorch.callbacks import Callback


@runtime_checkable
class Measuring(Protocol):
    """A callback that measures, such as `callbacks.MeasurementCallback`.

    Attributes:
        history: Values by step and tag.
    """

    history: dict[int, dict[str, float]]

    @property
    def prefix(self) -> str:
        """First part of every tag."""

    @property
    def latest(self) -> dict[str, float]:
        """Last entry of `history`, values by tag; empty without one or after a failure."""

    @property
    def headline_columns(self) -> Mapping[str, str]:
        """Titles, by quantity, of the columns for the table at the end of a run."""

    @property
    def heat_maps(self) -> Mapping[str, str]:
        """Labels, by quantity, of the figures by layer and step."""

    @property
    def layers(self) -> Sequence[str] | None:
        """Names of the measured layers; None for all of them."""

    def number_among(self, callbacks: Sequence[Callback]) -> None:
        """Set the prefix so that it differs from those of the run's earlier callbacks."""

    def headline_lines(self) -> list[str]:
        """Return sentences about the last measurement, for the end of a run."""

    def nonfinite_lines(self) -> list[str]:
        """Return sentences about non-finite values in the last measurement."""
