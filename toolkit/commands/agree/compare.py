"""Agreement of each pair of models at each depth."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from toolkit.commands.agree.states import ModelStates
from toolkit.console.bar import with_progress
from toolkit.functional import PairwiseAgreementResult, pairwise_agreement
from toolkit.functional.pga import MIN_NULL_STD


class Agreement(NamedTuple):
    """Agreement of two models at one depth: Spearman correlations of pairwise cosine distances.

    Attributes:
        model_a: The first model.
        model_b: The second model.
        depth: Depth as the user gave it.
        layer_a: The first model's layer there.
        layer_b: The second model's layer there.
        full: In full space; NaN where a model's distances are all equal.
        readout: Inside the readout subspace of each model.
        random_mean: Mean over pairs of random subspaces of the same dimension.
        random_std: Standard deviation over these pairs (n - 1).
        z: (readout - random_mean) / random_std; NaN where the random values are all equal.
        num_texts: Number of texts compared.
        num_dropped: Number of texts with a zero vector in a model after the removal.
        num_distinct_a: Number of distinct vectors of the first model.
        num_distinct_b: Number of distinct vectors of the second model.
        num_nonfinite: Number of values of both models' states and unembeddings that are NaN or
            infinite.
        reason: Why the numbers are missing; empty otherwise.
    """

    model_a: str
    model_b: str
    depth: str
    layer_a: str
    layer_b: str
    full: float
    readout: float
    random_mean: float
    random_std: float
    z: float
    num_texts: int
    num_dropped: int
    num_distinct_a: int
    num_distinct_b: int
    num_nonfinite: int
    reason: str


class Conditions(NamedTuple):
    """Settings that the numbers depend on.

    Attributes:
        texts: Source of the texts.
        pooling: How a text's tokens become one vector.
        max_length: Largest number of tokens of a text that the model reads.
        dtype: Type of the loaded weights.
        k: Dimension of the subspaces.
        num_random: Number of pairs of random subspaces, 2 to 1,000,000.
        remove: Number of principal components removed.
        seed: Seed of the texts and of the random subspaces.
    """

    texts: str
    pooling: str
    max_length: int
    dtype: str
    k: int
    num_random: int
    remove: int
    seed: int


def compare(models: Sequence[ModelStates], conditions: Conditions) -> list[Agreement]:
    """Compare every pair of models at every depth (arXiv 2605.17084).

    Each comparison draws its own random subspaces from the same seed, so it does not depend on
    other comparisons. A comparison that is impossible has a reason instead of numbers.

    Args:
        models: Two models or more, with the same texts and depths.
        conditions: Settings; ``num_random``, ``remove`` and ``seed`` are used.
    """
    wanted = [(a, b, depth) for a, b in combinations(models, 2) for depth in models[0].layers]
    return [_compared(*one, conditions) for one in with_progress(wanted, description="pairs")]


def _compared(a: ModelStates, b: ModelStates, depth: str, conditions: Conditions) -> Agreement:
    layers = a.layers[depth], b.layers[depth]
    bad = a.num_nonfinite[layers[0]] + b.num_nonfinite[layers[1]]
    found, reason = _UNKNOWN, f"{bad} values are not finite"
    if not bad:
        found, reason = _agreement(a, b, layers, conditions)
    mean, std = found.random_mean, found.random_std
    return Agreement(
        *(a.name, b.name, depth, *layers),
        full=found.full,
        readout=found.readout,
        random_mean=mean,
        random_std=std,
        z=(found.readout - mean) / std if std >= MIN_NULL_STD else math.nan,
        num_texts=found.num_points,
        num_dropped=found.num_dropped,
        num_distinct_a=_num_distinct(a.states[layers[0]]),
        num_distinct_b=_num_distinct(b.states[layers[1]]),
        num_nonfinite=bad,
        reason=reason,
    )


def _agreement(
    a: ModelStates, b: ModelStates, layers: tuple[str, str], conditions: Conditions
) -> tuple[PairwiseAgreementResult, str]:
    """Return the agreement at these layers, or the reason why it is missing."""
    try:
        found = pairwise_agreement(
            *(a.states[layers[0]], b.states[layers[1]]),
            *(a.bases[layers[0]], b.bases[layers[1]]),
            num_random=conditions.num_random,
            remove=conditions.remove,
            generator=torch.Generator().manual_seed(conditions.seed),
        )
    except ValueError as error:
        # If the distances are all zero, only this row of the table is affected.
        return _UNKNOWN, str(error)
    if math.isnan(found.full):
        # Otherwise the subspaces would rank rounding errors.
        return _UNKNOWN, "all distances of a model are equal"
    return found, ""


def _num_distinct(states: Tensor) -> int:
    return len(torch.unique(states, dim=0))


_UNKNOWN = PairwiseAgreementResult(*(math.nan,) * 4, torch.empty(0), num_points=0, num_dropped=0)
