"""Agreement of two models' text distances in full space, readout and random subspaces."""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from toolkit.functional._checks import (
    enough,
    finite_float,
    integer_at_least,
    number_of_draws,
    source_of_draws,
)
from toolkit.functional._pairs import (
    View,
    distinct_points,
    first_twins,
    has_direction,
    pair_index,
    pair_ranks,
    require_points,
    subspace_ranks,
)
from toolkit.functional._precision import full_precision
from toolkit.functional._scale import balanced
from toolkit.functional.correlation import pearson
from toolkit.functional.subspace import (
    gaussian_frame,
    orthonormal_basis,
    require_components,
    residual,
)


class PairwiseAgreementResult(NamedTuple):
    """Spearman correlations between two models' pairwise cosine distances over the same texts.

    Attributes:
        full: In full space; NaN where a model's distances are all equal.
        readout: Each model inside its own readout subspace.
        random_mean: Mean over random subspaces of the same dimensions.
        random_std: Standard deviation over them (n - 1).
        random: The sample, float64 of shape (num_random,).
        num_points: Number of texts compared.
        num_dropped: Number of texts left out, because one model keeps nothing of them after the
            removal.
    """

    full: float
    readout: float
    random_mean: float
    random_std: float
    random: Tensor
    num_points: int
    num_dropped: int


def pairwise_agreement(
    hidden_a: Tensor,
    hidden_b: Tensor,
    basis_a: Tensor,
    basis_b: Tensor,
    *,
    num_random: int = 100,
    remove: int = 1,
    generator: torch.Generator | None = None,
) -> PairwiseAgreementResult:
    """Spearman correlation of two models' pairwise cosine distances (arXiv 2605.17084).

    Of all pairs of texts, ties at their average rank, after each model's mean and first ``remove``
    principal components are taken out: in full space, inside the readout subspaces, and inside
    random subspaces, one for each model and drawn independently.

    Args:
        hidden_a: Hidden states of the first model, shape (N, d_a), N >= 3.
        hidden_b: States of the second model over the same texts, shape (N, d_b).
        basis_a: Orthonormal readout basis of the first model, shape (d_a, k_a).
        basis_b: That of the second model, shape (d_b, k_b).
        num_random: Number of pairs of random subspaces, 2 to 1,000,000.
        remove: Number of principal components to remove, below min(N, d_a, d_b).
        generator: Source of the random subspaces; None: a new generator with seed 0.

    Raises:
        TypeError: If an argument is no tensor.
        ValueError: If a tensor is not finite and real, shapes do not fit, a basis is not
            orthonormal, a number is out of range, or fewer than 3 texts are left in both models.
    """
    first = finite_float("hidden_a", hidden_a)
    second = finite_float("hidden_b", hidden_b)
    if len(first) != len(second):
        raise ValueError(
            f"hidden_b: expected the {len(first)} texts of hidden_a, got {len(second)}; "
            "pass both models' states of the same texts"
        )
    require_points("hidden_a", first)
    bases = (
        orthonormal_basis("basis_a", basis_a, first.shape[1]),
        orthonormal_basis("basis_b", basis_b, second.shape[1]),
    )
    number_of_draws("num_random", num_random, 2)
    for states in (first, second):
        require_components("remove", integer_at_least("remove", remove, 0), states)
    draws = source_of_draws(generator, device=first.device, anywhere=True)
    return _agreement((first, second), bases, num_random, remove, draws)


class _Model(NamedTuple):
    """Unit rows of one model's distinct texts, its basis, and where its pairs of texts are."""

    units: Tensor
    basis: Tensor
    pairs: Tensor


@full_precision
def _agreement(
    hidden: tuple[Tensor, Tensor],
    bases: tuple[Tensor, Tensor],
    num_random: int,
    remove: int,
    generator: torch.Generator,
) -> PairwiseAgreementResult:
    """`pairwise_agreement` of checked input."""
    hidden = balanced(hidden[0]), balanced(hidden[1])
    residuals = [residual(states, remove) for states in hidden]
    usable = [has_direction(rest, states) for rest, states in zip(residuals, hidden, strict=True)]
    keep = usable[0] & usable[1]
    num_points = int(keep.sum())
    enough(
        "hidden_a, hidden_b",
        num_points,
        3,
        "texts with a direction left in both models",
        given=f"{num_points} of {len(keep)} with remove = {remove}",
        advice="remove fewer components",
    )
    models = []
    for rest, states, basis in zip(residuals, hidden, bases, strict=True):
        points = distinct_points(rest, keep, first_twins(states))
        models.append(_Model(points.units, basis.float(), pair_index(points.members)))
    sample = torch.tensor(
        [
            _correlation(models, [_at_random(model, generator) for model in models])
            for _ in range(num_random)
        ],
        dtype=torch.float64,
    )
    return PairwiseAgreementResult(
        full=float(pearson(*(pair_ranks(model.units, model.pairs) for model in models))),
        readout=_correlation(models, [partial(_inside, model) for model in models]),
        random_mean=float(sample.mean()),
        random_std=float(sample.std()),
        random=sample,
        num_points=num_points,
        num_dropped=len(keep) - num_points,
    )


def _inside(model: _Model, dtype: torch.dtype) -> Float[Tensor, "n k"]:
    """The texts inside the readout subspace."""
    return model.units.to(dtype) @ model.basis.to(dtype)


def _at_random(model: _Model, generator: torch.Generator) -> View:
    """The texts inside a random subspace."""
    dim, k = model.basis.shape
    frame = gaussian_frame(dim, k, generator)

    def inside(dtype: torch.dtype) -> Tensor:
        gaussian, whitening = (factor.to(model.basis.device, dtype) for factor in frame)
        return model.units.to(dtype) @ gaussian @ whitening

    return inside


def _correlation(models: list[_Model], views: list[View]) -> float:
    """Spearman correlation of the similarities in the models' ``views``; NaN for constant ones."""
    first, second = (
        subspace_ranks(view, model.pairs) for model, view in zip(models, views, strict=True)
    )
    return float(pearson(first, second))
