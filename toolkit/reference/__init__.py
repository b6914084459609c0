"""Published tables of arXiv 2606.02765, shipped as package data."""

import csv
from importlib import resources
from typing import NamedTuple


class ModelCapacity(NamedTuple):
    """Published embedding deviation and capacity of a model.

    Attributes:
        model: Name of the model.
        dim: Dimension of its embeddings.
        epsilon: Embedding deviation.
        capacity: Number of directions; None where the paper calls it indeterminate.
    """

    model: str
    dim: int
    epsilon: float
    capacity: float | None


class PackingPoint(NamedTuple):
    """Largest |cosine| of a packing of unit vectors.

    Attributes:
        num_vectors: Number of vectors k.
        dim: Dimension d.
        max_abs_cosine: Largest absolute cosine similarity between two of them.
    """

    num_vectors: int
    dim: int
    max_abs_cosine: float


def model_capacities() -> list[ModelCapacity]:
    """The 45 published models."""
    return [
        ModelCapacity(
            row["model"],
            int(row["d_model"]),
            float(row["epsilon"]),
            float(row["capacity"]) if row["capacity"] else None,
        )
        for row in _rows("model_capacity_table.csv")
    ]


def optimised_packing() -> list[PackingPoint]:
    """Packings after minimising the Gram penalty, 166 points."""
    return _packing("optimised_packing.csv")


def random_packing() -> list[PackingPoint]:
    """The best of 1000 random draws each, 256 points."""
    return _packing("random_packing.csv")


def _packing(name: str) -> list[PackingPoint]:
    return [
        PackingPoint(int(row["k"]), int(row["d"]), float(row["max_abs_cosine"]))
        for row in _rows(name)
    ]


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
