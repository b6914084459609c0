"""The identity of a model's weights: of a checkpoint, of a measured moment, of a table's row."""

from typing import Any, NamedTuple


class WeightsIdentity(NamedTuple):
    """Which weights of which model.

    Attributes:
        name: Name of the model: on the Hub, a folder, or the class of a model in training.
        revision: Revision on the Hub, empty elsewhere.
        commit: Commit of that revision, empty elsewhere.
        step: Optimiser updates behind the weights, 0 where that is not known.
    """

    name: str
    revision: str = ""
    commit: str = ""
    step: int = 0

    def columns(self) -> dict[str, Any]:
        """Return the columns of `toolkit.runs.table.MeasurementRow` that hold the identity."""
        return {
            "model": self.name,
            "revision": self.revision,
            "commit": self.commit,
            "step": self.step,
        }
