"""What a measurement sees, and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import lightning as L
import torch
from torch import Tensor

from toolkit.provenance import weights_hash


class Point(NamedTuple):
    """One measured number.

    Attributes:
        quantity: Second part of the tag.
        layer: Third part of the tag; empty for a number that belongs to no layer.
        value: The number, NaN where it could not be computed.
        num_points: Rows, texts or widths that entered it, None where that means nothing.
    """

    quantity: str
    layer: str
    value: float
    num_points: int | None = None


@dataclass(frozen=True)
class Moment:
    """What a measurement sees.

    Attributes:
        trainer: The running trainer.
        pl_module: The model, in eval mode and without gradients.
        step: Optimiser updates behind its weights.
        shared: Costly intermediate results, kept for the other callbacks of the same step.
    """

    trainer: L.Trainer
    pl_module: L.LightningModule
    step: int
    shared: dict[Any, Any]

    def fingerprint(self, tensors: Mapping[str, Tensor]) -> str:
        """Return the weights hash of the named tensors, computed once for all callbacks."""
        key = ("weights_hash", *sorted(tensors))
        if key not in self.shared:
            self.shared[key] = weights_hash(tensors.items())
        digest: str = self.shared[key]
        return digest


def num_nonfinite(*tensors: Tensor) -> int:
    """Return how many values are NaN or infinite."""
    return sum(int((~torch.isfinite(tensor)).sum()) for tensor in tensors)
