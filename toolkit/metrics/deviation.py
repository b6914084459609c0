"""Embedding deviation, accumulated over batches of rows."""

from typing_extensions import override

from toolkit import functional
from toolkit.functional._checks import number_at_least
from toolkit.functional.deviation import deviation_from_moments
from toolkit.metrics.cosine import CosineMoments


class EmbeddingDeviation(CosineMoments):
    """Embedding deviation epsilon = mean + num_sigma std over all pairs of rows seen.

    `toolkit.functional.embedding_deviation` over batches, for a matrix that arrives in parts.

    Args:
        num_features: Width d of the rows.
        num_sigma: Standard deviations added to the mean.
        **kwargs: Arguments of `torchmetrics.Metric`.

    Raises:
        ValueError: As `CosineMoments`, or if ``num_sigma`` is negative or not finite.
    """

    def __init__(self, num_features: int, num_sigma: float = 2.0, **kwargs: object) -> None:
        number_at_least("num_sigma", num_sigma, 0)
        super().__init__(num_features, **kwargs)
        self.num_sigma = num_sigma

    @override
    def compute(self) -> functional.EmbeddingDeviationResult:  # type: ignore[override]
        return deviation_from_moments(self._moments(), int(self.num_rows), num_sigma=self.num_sigma)
