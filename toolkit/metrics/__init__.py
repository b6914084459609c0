"""torchmetrics classes for measurements that accumulate over batches."""

from toolkit.metrics.cosine import CosineMoments, MeanCosine
from toolkit.metrics.deviation import EmbeddingDeviation
from toolkit.metrics.spectrum import AlphaReQ, ConditionNumber, ParticipationRatio, RankMe

__all__ = [
    "AlphaReQ",
    "ConditionNumber",
    "CosineMoments",
    "EmbeddingDeviation",
    "MeanCosine",
    "ParticipationRatio",
    "RankMe",
]
