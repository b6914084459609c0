"""Embedding deviation: how far a matrix's rows are from orthogonal."""

from typing import NamedTuple

from torch import Tensor

from toolkit.functional._checks import number_at_least
from toolkit.functional.cosine import CosineMoments, finite_moments


class EmbeddingDeviation(NamedTuple):
    """Deviation epsilon = mean + num_sigma std of the cosine similarity between different rows.

    Attributes:
        epsilon: The deviation.
        mean: Mean over all pairs i < j.
        std: Standard deviation over these pairs (population).
        model_class: 1 above 0.2 (a capacity means nothing there), 2 below 0.1, None between.
        num_rows: Number of rows used.
        num_dropped: Number of zero rows, left out.
    """

    epsilon: float
    mean: float
    std: float
    model_class: int | None
    num_rows: int
    num_dropped: int


def embedding_deviation(embeddings: Tensor, *, num_sigma: float = 2.0) -> EmbeddingDeviation:
    """Embedding deviation epsilon = mu + 2 sigma of signed similarities (arXiv 2606.02765).

    Exact over all pairs in O(V d^2) time and O(d^2) memory, without a copy of the matrix.

    Args:
        embeddings: Real matrix of shape (V, d), one row per token.
        num_sigma: Standard deviations added to the mean.

    Raises:
        TypeError: If ``embeddings`` is no tensor.
        ValueError: If ``embeddings`` is not a finite real matrix with two non-zero rows, or
            ``num_sigma`` is negative or not finite.

    Example:
        >>> import torch
        >>> embedding_deviation(torch.eye(4)).model_class
        2
    """
    number_at_least("num_sigma", num_sigma, 0)
    moments = finite_moments("embeddings", embeddings)
    num_rows = len(embeddings) - moments.num_dropped
    return deviation_from_moments(moments, num_rows, num_sigma=num_sigma)


def deviation_from_moments(
    moments: CosineMoments, num_rows: int, *, num_sigma: float
) -> EmbeddingDeviation:
    """Deviation and class from the pair moments."""
    epsilon = moments.mean + num_sigma * moments.std
    model_class = 1 if epsilon > 0.2 else 2 if epsilon < 0.1 else None
    return EmbeddingDeviation(
        epsilon, moments.mean, moments.std, model_class, num_rows, moments.num_dropped
    )
