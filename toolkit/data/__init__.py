"""LightningDataModules of the toolkit."""

from toolkit.data.active_cells import ActiveCells
from toolkit.data.frequencies import (
    ExponentialFrequencies,
    Frequencies,
    LinearFrequencies,
    PowerFrequencies,
    UniformFrequencies,
)
from toolkit.data.sparse_features import SparseFeatures

__all__ = [
    "ActiveCells",
    "ExponentialFrequencies",
    "Frequencies",
    "LinearFrequencies",
    "PowerFrequencies",
    "SparseFeatures",
    "UniformFrequencies",
]
