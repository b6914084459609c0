"""The moment of a measurement: trainer, model, step and shared results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import lightning as L
from torch import Tensor

from toolkit.runs.identity import WeightsIdentity
from toolkit.runs.provenance import weights_hash


@dataclass(frozen=True)
class Moment:
    """The moment of a measurement.

    Attributes:
        trainer: The running trainer.
        pl_module: The model, in eval mode and without gradients.
        step: Optimiser updates behind its weights.
        shared: Costly intermediate results, kept for the other callbacks of the same step.
        source: Identity of the checkpoint with these weights; None for the weights of a run.
    """

    trainer: L.Trainer
    pl_module: L.LightningModule
    step: int
    shared: dict[Any, Any]
    source: WeightsIdentity | None = None

    def fingerprint(self, tensors: Mapping[str, Tensor]) -> str:
        """Return the weights hash of the named tensors, computed once for all callbacks."""
        # The tensors of two models in a module may have the same names.
        key = ("weights_hash", *sorted((name, t.data_ptr()) for name, t in tensors.items()))
        if key not in self.shared:
            self.shared[key] = weights_hash(tensors.items())
        digest: str = self.shared[key]
        return digest
