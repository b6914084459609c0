"""The identity of a model's weights, in checkpoints, moments and rows of the table."""

from typing import Any, NamedTuple


class WeightsIdentity(NamedTuple):
    """The model and the step of weights.

    Attributes:
        name: Name of the model: its name on the Hub, its folder, or its class during training.
        revision: Revision on the Hub, empty elsewhere.
        commit: Commit of that revision, empty elsewhere.
        step: Optimiser updates behind the weights, 0 if unknown.
    """

    name: str
    revision: str = ""
    commit: str = ""
    step: int = 0

    def columns(self) -> dict[str, Any]:
        """Return the identity as columns of `toolkit.runs.table.MeasurementRow`."""
        return {
            "model": self.name,
            "revision": self.revision,
            "commit": self.commit,
            "step": self.step,
        }
