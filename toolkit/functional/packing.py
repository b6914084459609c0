"""How evenly vectors can be packed into a space."""

import math

from toolkit.functional._checks import integer_at_least


def welch_bound(num_vectors: int, dim: int) -> float:
    """Smallest possible largest |cosine| among unit vectors, sqrt((k - d) / (d (k - 1))).

    Reached by equiangular tight frames only; 0 for k <= d (Welch 1974, arXiv 2606.02765).

    Args:
        num_vectors: Number of vectors k.
        dim: Dimension d.

    Raises:
        ValueError: If ``num_vectors`` or ``dim`` is below 1.

    Example:
        >>> welch_bound(4, 3)
        0.3333333333333333
    """
    num_vectors = integer_at_least("num_vectors", num_vectors, 1)
    dim = integer_at_least("dim", dim, 1)
    if num_vectors <= dim:
        return 0.0
    return math.sqrt((num_vectors - dim) / (dim * (num_vectors - 1)))
