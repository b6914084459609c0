"""Pair moments of cosine similarities, accumulated over batches of rows."""

import torch
from torch import Tensor
from torchmetrics import Metric
from typing_extensions import override

from toolkit import functional
from toolkit.functional._checks import integer_at_least, require_memory
from toolkit.functional.cosine import (
    PairSums,
    mean_from_sums,
    moments_from_sums,
    pair_sums,
    require_pairs,
    unit_sums,
)
from toolkit.metrics._checks import feature_rows


class CosineMoments(Metric):
    """Mean and standard deviation of the cosine similarity over all pairs of rows seen.

    `toolkit.functional.cosine_moments` over batches: the sums kept are of size d^2 for any
    number of rows. They are float64; rows that are parallel to better than 1e-6 need the function,
    which can pass over the rows twice.

    Args:
        num_features: Width d of the rows.
        **kwargs: Arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If ``num_features`` is below 1; on `update`, if the rows are not a finite real
            matrix of that width; on `compute`, if fewer than two rows were non-zero.
    """

    is_differentiable = False
    full_state_update = False

    num_rows: Tensor
    num_dropped: Tensor
    total: Tensor
    gram: Tensor
    square: Tensor
    fourth: Tensor

    def __init__(self, num_features: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.num_features = integer_at_least("num_features", num_features, 1)
        require_memory("num_features", num_features, num_features, itemsize=8)
        zero = torch.zeros((), dtype=torch.float64)
        for name in ("num_rows", "num_dropped"):
            self.add_state(name, torch.tensor(0), dist_reduce_fx="sum")
        for name in ("square", "fourth"):
            self.add_state(name, zero.clone(), dist_reduce_fx="sum")
        self.add_state("total", zero.repeat(num_features), dist_reduce_fx="sum")
        self.add_state("gram", zero.repeat(num_features, num_features), dist_reduce_fx="sum")

    @override
    def update(self, vectors: Tensor) -> None:
        """Add the rows of a (B, d) matrix."""
        rows = feature_rows("vectors", vectors, self.num_features)
        sums = pair_sums(rows, torch.zeros_like(self.total), dtype=torch.float64)
        self.num_rows += sums.num_rows
        self.num_dropped += sums.num_dropped
        self.total += sums.total
        self.gram += sums.gram
        self.square += sums.square
        self.fourth += sums.fourth

    @override
    def compute(self) -> functional.CosineMomentsResult:
        return self._moments()

    def _moments(self) -> functional.CosineMomentsResult:
        num_rows, num_dropped = int(self.num_rows), int(self.num_dropped)
        require_pairs("vectors", num_rows + num_dropped, num_dropped)
        origin = torch.zeros_like(self.total)
        sums = PairSums(
            num_rows, num_dropped, self.total, self.gram, self.square, self.fourth, origin
        )
        return moments_from_sums(sums, origin)


class MeanCosine(Metric):
    """Mean cosine similarity over all pairs of rows seen, from sums of size d.

    `toolkit.functional.mean_cosine` over batches; NaN below two rows.

    Args:
        num_features: Width d of the rows.
        **kwargs: Arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If ``num_features`` is below 1; on `update`, if the rows are not a finite real
            matrix of that width.
    """

    is_differentiable = False
    full_state_update = False

    num_rows: Tensor
    num_dropped: Tensor
    total: Tensor
    square: Tensor

    def __init__(self, num_features: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.num_features = integer_at_least("num_features", num_features, 1)
        require_memory("num_features", num_features, itemsize=8)
        zero = torch.zeros((), dtype=torch.float64)
        for name in ("num_rows", "num_dropped"):
            self.add_state(name, torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("square", zero, dist_reduce_fx="sum")
        self.add_state("total", zero.repeat(num_features), dist_reduce_fx="sum")

    @override
    def update(self, features: Tensor) -> None:
        """Add the rows of a (B, d) matrix."""
        rows = feature_rows("features", features, self.num_features)
        num_rows, total, square = unit_sums(rows)
        self.num_rows += num_rows
        self.num_dropped += len(rows) - num_rows
        self.total += total
        self.square += square

    @override
    def compute(self) -> functional.MeanCosineResult:
        value = mean_from_sums(self.total, self.square, int(self.num_rows))
        return functional.MeanCosineResult(value, self.num_dropped.clone())
