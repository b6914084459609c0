"""Steps with the same weights, or the same embedding matrix, as an earlier step."""

import warnings
from typing import TYPE_CHECKING

from toolkit.commands.probe.record import DUPLICATE, METRIC, WalkRecord
from toolkit.lm.architecture.search import output_embedding
from toolkit.lm.checkpoints.base import Checkpoint
from toolkit.runs.model_logger import ModelLogger
from toolkit.runs.points import Point
from toolkit.runs.provenance import matrix_hash

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def matrix_hashes(model: "PreTrainedModel") -> dict[str, str]:
    """Return the fingerprints of the embedding matrices by name; tied matrices have one."""
    named = {"input": model.get_input_embeddings(), "output": output_embedding(model)}
    weights = {name: getattr(module, "weight", None) for name, module in named.items()}
    if weights["output"] is weights["input"]:
        del weights["output"]
    return {name: matrix_hash(weight) for name, weight in weights.items() if weight is not None}


class Duplicates:
    """Marks steps that repeat an earlier step, and warns once of each kind.

    Args:
        record: The walk's record.
    """

    def __init__(self, record: WalkRecord) -> None:
        self._record = record
        self._warned: set[str] = set()

    def marks(
        self, checkpoint: Checkpoint, digest: str, matrices: dict[str, str], logger: ModelLogger
    ) -> list[Point]:
        """Return the points that mark a checkpoint; none if no earlier step has the same weights.

        Args:
            checkpoint: The checkpoint.
            digest: Fingerprint of all its weights.
            matrices: Fingerprints of its embedding matrices by name.
            logger: The logger of its model.
        """
        earlier = self._record.first_with(digest, checkpoint.name)
        if earlier is not None:
            logger.log_metrics({f"{METRIC}/{DUPLICATE}": earlier}, step=checkpoint.step)
            self._warn(
                "weights",
                f"{checkpoint.label} holds the same weights as step {earlier}: such steps are "
                f"marked by {METRIC}/{DUPLICATE}, and are no points of a curve",
            )
            return [Point(DUPLICATE, "", earlier, metric=METRIC)]
        shared = self._record.first_with_matrices(matrices, checkpoint.name)
        if shared:
            named = " and ".join(f"{name} matrix of step {step}" for name, step in shared.items())
            self._warn(
                "matrices",
                f"{checkpoint.label} holds the {named}, while other weights differ: what is "
                "measured on that matrix alone is no point of a curve; the end of the walk names "
                "all such steps",
            )
        return []

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, stacklevel=2)
