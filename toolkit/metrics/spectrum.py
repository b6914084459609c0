"""Spectral measures, accumulated over batches of features."""

import torch
from torch import Tensor
from torchmetrics import Metric
from typing_extensions import override

from toolkit import functional
from toolkit.functional._checks import flag, integer_at_least, require_memory
from toolkit.functional._eigenvalues import (
    alpha_from_eigenvalues,
    check_fit_range,
    condition_from_eigenvalues,
    eigenvalues_from_sums,
    participation_from_eigenvalues,
    rankme_from_eigenvalues,
)
from toolkit.functional._scale import excess_exponent
from toolkit.functional.spectrum import require_rows
from toolkit.metrics._checks import feature_rows


class _CovarianceMetric(Metric):
    """Float64 sums of the rows and of their outer products, of size d^2 for any number of rows."""

    is_differentiable = False
    full_state_update = False

    num_rows: Tensor
    total: Tensor
    gram: Tensor
    largest: Tensor

    def __init__(self, num_features: int, *, centered: bool, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.num_features = integer_at_least("num_features", num_features, 1)
        self.centered = flag("centered", centered)
        require_memory("num_features", num_features, num_features, itemsize=8)
        zero = torch.zeros((), dtype=torch.float64)
        self.add_state("num_rows", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("largest", zero.clone(), dist_reduce_fx="max")
        self.add_state("total", zero.repeat(num_features), dist_reduce_fx="sum")
        self.add_state("gram", zero.repeat(num_features, num_features), dist_reduce_fx="sum")

    @override
    def update(self, features: Tensor) -> None:
        """Add the rows of a (B, d) matrix."""
        rows = feature_rows("features", features, self.num_features).double()
        self.num_rows += len(rows)
        self.total += rows.sum(0)
        self.gram += rows.T @ rows
        if len(rows):
            self.largest = torch.maximum(self.largest, rows.abs().max())

    def _eigenvalues(self) -> Tensor:
        num_rows = require_rows(int(self.num_rows))
        # The sums of the batches share no scale that could be taken out of them.
        if excess_exponent(self.largest, torch.float64):
            raise ValueError(
                "features: expected values whose squares float64 can sum, got values up to "
                f"{float(self.largest):.1e}; multiply all batches by the same constant"
            )
        return eigenvalues_from_sums(num_rows, self.total, self.gram, centered=self.centered)


class RankMe(_CovarianceMetric):
    """RankMe of all rows seen, `toolkit.functional.rankme` over batches.

    Args:
        num_features: Width d of the rows.
        centered: Subtract the mean row first (not in the paper).
        eigenvalues: Take the covariance's eigenvalues instead of singular values.
        **kwargs: Arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: If ``num_features`` is below 1; on `update`, if the rows are not a finite real
            matrix of that width; on `compute`, if there were fewer than 3 rows, or the largest
            value was beyond 1e60 or below 1e-60, whose squares the sums cannot hold.
    """

    def __init__(
        self,
        num_features: int,
        *,
        centered: bool = False,
        eigenvalues: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(num_features, centered=centered, **kwargs)
        self.eigenvalues = flag("eigenvalues", eigenvalues)

    @override
    def compute(self) -> Tensor:
        return rankme_from_eigenvalues(self._eigenvalues(), eigenvalues=self.eigenvalues)


class ParticipationRatio(_CovarianceMetric):
    """Participation ratio of all rows seen, `toolkit.functional.participation_ratio` over batches.

    Args:
        num_features: Width d of the rows.
        centered: Subtract the mean row first.
        **kwargs: Arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: As `RankMe`.
    """

    def __init__(self, num_features: int, *, centered: bool = True, **kwargs: object) -> None:
        super().__init__(num_features, centered=centered, **kwargs)

    @override
    def compute(self) -> Tensor:
        return participation_from_eigenvalues(self._eigenvalues())


class ConditionNumber(_CovarianceMetric):
    """Condition number of all rows seen, `toolkit.functional.condition_number` over batches.

    Args:
        num_features: Width d of the rows.
        centered: Subtract the mean row first.
        **kwargs: Arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: As `RankMe`.
    """

    def __init__(self, num_features: int, *, centered: bool = True, **kwargs: object) -> None:
        super().__init__(num_features, centered=centered, **kwargs)

    @override
    def compute(self) -> Tensor:
        full_rank = min(int(self.num_rows) - self.centered, self.num_features)
        return condition_from_eigenvalues(self._eigenvalues(), full_rank)


class AlphaReQ(_CovarianceMetric):
    """Decay exponent of the spectrum of all rows seen, `toolkit.functional.alpha_req` over batches.

    Args:
        num_features: Width d of the rows.
        fit_range: First and last eigenvalue of the fit, counted from 1 and both included.
        **kwargs: Arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: As `RankMe`, or if ``fit_range`` is no range of ranks.
    """

    def __init__(
        self, num_features: int, *, fit_range: tuple[int, int] = (11, 100), **kwargs: object
    ) -> None:
        self.fit_range = check_fit_range(fit_range)
        super().__init__(num_features, centered=True, **kwargs)

    @override
    def compute(self) -> functional.AlphaReQResult:
        return alpha_from_eigenvalues(self._eigenvalues(), self.fit_range)
