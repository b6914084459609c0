"""Batches of sparse samples, stored as their active cells."""

from typing import NamedTuple

import torch
from torch import Tensor


class ActiveCells(NamedTuple):
    """The nonzero entries of a batch ``x`` of shape ``(num_rows, num_features)``, sorted by row.

    Attributes:
        row: Sample of each active cell, shape ``(T,)``, int64, non-decreasing.
        feature: Feature of each active cell, shape ``(T,)``, int64; no cell occurs twice.
        value: Value of each active cell, shape ``(T,)``, float32.
        num_rows: Number of samples, including samples without active cells.
        num_features: Number of features n.
    """

    row: Tensor
    feature: Tensor
    value: Tensor
    num_rows: int
    num_features: int

    def dense(self) -> Tensor:
        """Return the batch with its zeros, shape ``(num_rows, num_features)``."""
        inputs = self.value.new_zeros(self.num_rows, self.num_features)
        inputs[self.row, self.feature] = self.value
        return inputs

    @classmethod
    def from_dense(cls, inputs: Tensor) -> "ActiveCells":
        """Return the active cells of ``inputs``, shape ``(num_rows, num_features)``."""
        row, feature = torch.nonzero(inputs, as_tuple=True)
        return cls(row, feature, inputs[row, feature], inputs.shape[0], inputs.shape[1])
