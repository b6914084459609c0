"""How evenly unit vectors can be packed into a space.

Packings minimise a Gram penalty (arXiv 2606.02765): with G the Gram matrix of the normalised
vectors, the sum of |G_ij|^p over i != j, here as a p-norm. G is only ever seen in square tiles,
each pair of rows once, so that memory stays O(k d) and all elementwise work runs in cache.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toolkit.functional._checks import (
    enough,
    finite_real,
    integer_at_least,
    lift,
    number_at_least,
    number_of_draws,
    require_memory,
    source_of_draws,
)
from toolkit.functional._gram import largest_cosine, normalised, penalty_and_gradient

# Beyond it, powers differ by the rounding of the cosines: float32 holds a cosine to about 1e-7 of
# its value, and the exponent times 1e-7 must stay well below 1.
LARGEST_EXPONENT = 1_000_000


class PenaltyWithMaxResult(NamedTuple):
    """The Gram penalty and the largest |cosine|, computed in one pass.

    Attributes:
        penalty: The p-norm, a differentiable scalar.
        max_abs_cosine: Largest |cosine| of two different vectors, a scalar without gradient.
    """

    penalty: Tensor
    max_abs_cosine: Tensor


def gram_penalty(
    vectors: Tensor, exponent: int | float, *, scale: int | float | Tensor | None = None
) -> Tensor:
    """The p-norm of the off-diagonal Gram matrix, (sum over i != j of |G_ij|^p)^(1/p).

    G holds the cosines of the rows. In units of |cos| the norm bounds the largest |cosine| from
    above and neither it nor its gradient underflows, as the plain sum of arXiv 2606.02765 does;
    the minimiser is the same. Differentiable once; the gradient is a closed form, computed
    together with the value in 3 k^2 d floating-point operations.

    Args:
        vectors: Real matrix of shape (k, d), k at least 2; rows need not have unit norm.
        exponent: p, 2 to 1,000,000. Integers cost a few multiplications, others a power per pair.
        scale: Divisor of the |cosines| before they are raised to a power: the last value,
            while training. Any scale gives the same value; a far one, or None, costs another pass.

    Returns:
        A scalar of the vectors' dtype, of float32 for half precision.

    Raises:
        TypeError: If ``vectors`` is no tensor.
        ValueError: If ``vectors`` is not a finite real matrix of at least 2 rows, a row has norm
            0, ``exponent`` is not between 2 and 1,000,000, or ``scale`` is negative or not finite.

    Example:
        >>> gram_penalty(torch.tensor([[1.0, 0.0], [3.0, 4.0]]), 2)  # cosine 0.6, twice
        tensor(0.8485)
    """
    return gram_penalty_with_max(vectors, exponent, scale=scale).penalty


def gram_penalty_with_max(
    vectors: Tensor, exponent: int | float, *, scale: int | float | Tensor | None = None
) -> PenaltyWithMaxResult:
    """The Gram penalty and, at little extra cost, the largest |cosine|; see `gram_penalty`."""
    rows = _checked(vectors)
    number_at_least("exponent", exponent, 2, most=LARGEST_EXPONENT)
    start = _checked_scale(scale)
    penalty, largest = _GramPenalty.apply(rows, float(exponent), start)  # type: ignore[no-untyped-call]
    return PenaltyWithMaxResult(penalty, largest)


def max_abs_cosine(vectors: Tensor) -> float:
    """Largest |cosine| between two different rows.

    Args:
        vectors: Real matrix of shape (k, d), k at least 2. Memory is O(k d).

    Raises:
        TypeError: If ``vectors`` is no tensor.
        ValueError: If ``vectors`` is not a finite real matrix of at least 2 non-zero rows.

    Example:
        >>> max_abs_cosine(torch.tensor([[1.0, 0.0], [-3.0, 4.0], [0.0, 0.5]]))
        0.800000011920929
    """
    units, _ = normalised(_checked(vectors).detach())
    return largest_cosine(units)


def random_max_abs_cosine(
    num_vectors: int,
    dim: int,
    *,
    num_draws: int = 1000,
    generator: torch.Generator | None = None,
) -> float:
    """Smallest of the largest |cosines| of ``num_draws`` draws of random unit vectors.

    The random baseline of arXiv 2606.02765. A draw ends as soon as it cannot be the smallest.

    Args:
        num_vectors: Number of vectors k, at least 2.
        dim: Dimension d.
        num_draws: Number of draws T, 1 to 1,000,000.
        generator: Source of the draws and their device. None: a new generator with seed 0.

    Raises:
        ValueError: If ``num_vectors`` is below 2, ``dim`` is below 1, or ``num_draws`` is out of
            range.

    Example:
        >>> random_max_abs_cosine(2, 1, num_draws=3)
        1.0
    """
    integer_at_least("num_vectors", num_vectors, 2)
    integer_at_least("dim", dim, 1)
    number_of_draws("num_draws", num_draws, 1)
    draws = source_of_draws(generator, anywhere=True)
    require_memory("num_vectors", num_vectors, dim)
    best = math.inf
    for _ in range(num_draws):
        draw = torch.randn(
            num_vectors, dim, generator=draws, device=draws.device, dtype=torch.float32
        )
        best = min(best, largest_cosine(normalised(draw)[0], stop_at=best))
    return best


def published_exponent(num_vectors: int, dim: int) -> int:
    """Exponent p = min(int(q / ln d), 20) of the public code of arXiv 2606.02765.

    q is 40 for k <= 4000. For larger k, q is 50 for d >= 3072 and 60 for smaller d.

    Args:
        num_vectors: Number of vectors k.
        dim: Dimension d, at least 2.

    Raises:
        ValueError: If ``num_vectors`` is below 1 or ``dim`` below 2.

    Example:
        >>> published_exponent(2000, 128), published_exponent(32000, 4096)
        (8, 6)
    """
    integer_at_least("num_vectors", num_vectors, 1, most=math.inf)
    integer_at_least("dim", dim, 2, most=math.inf)
    large = 50 if dim >= 3072 else 60
    return min(int((40 if num_vectors <= 4000 else large) / math.log(dim)), 20)


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
    num_vectors = integer_at_least("num_vectors", num_vectors, 1, most=math.inf)
    dim = integer_at_least("dim", dim, 1, most=math.inf)
    if num_vectors <= dim:
        return 0.0
    return math.sqrt((num_vectors - dim) / (dim * (num_vectors - 1)))


class _GramPenalty(torch.autograd.Function):
    """Penalty, largest |cosine| and the penalty's gradient in one pass."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, exponent: float, scale: float) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        units, norms = normalised(vectors)
        penalty, largest, gradient = penalty_and_gradient(units, exponent, scale)
        ctx.save_for_backward(gradient.div_(norms))
        ctx.mark_non_differentiable(largest)
        return penalty, largest

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_penalty: Tensor, _: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        (gradient,) = ctx.saved_tensors
        return gradient * grad_penalty, None, None


def _checked(vectors: Tensor) -> Tensor:
    """Check ``vectors`` and lift half precision, keeping them in the graph."""
    enough("vectors", len(finite_real("vectors", vectors)), 2, "rows", advice="pass more")
    return lift(vectors.resolve_neg())


def _checked_scale(scale: object) -> float:
    """The scale as a number, 0 for None."""
    if scale is None:
        return 0.0
    if isinstance(scale, Tensor):
        scale = float(finite_real("scale", scale, dims=(0,)))
    return float(number_at_least("scale", scale, 0))  # type: ignore[arg-type]
