"""Agreement between models against a float64 oracle, and what it has to be blind to."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from scipy.stats import kstest, spearmanr
from torch import Tensor

from toolkit.functional import PairwiseAgreementResult, haar_bases, pairwise_agreement


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def basis_of(dim: int, k: int, seed: int = 1) -> Tensor:
    return haar_bases(dim, k, 1, generator=torch.Generator().manual_seed(seed))[0]


def two_models(num: int = 40) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two widths that share a five-dimensional signal."""
    shared = gaussian(num, 5)
    first = shared @ gaussian(5, 12, seed=2) + gaussian(num, 12, seed=3)
    second = shared @ gaussian(5, 60, seed=4) + gaussian(num, 60, seed=5)
    return first, second, basis_of(12, 3), basis_of(60, 7)


def ccr(hidden: Tensor, remove: int) -> np.ndarray:
    points = hidden.double().numpy()
    points = points - points.mean(0)
    left, values, right = np.linalg.svd(points, full_matrices=False)
    residual: np.ndarray = (left[:, remove:] * values[remove:]) @ right[remove:]
    return residual


def oracle(first: np.ndarray, second: np.ndarray) -> float:
    return float(spearmanr(pdist(first, "cosine"), pdist(second, "cosine")).statistic)


@pytest.mark.parametrize("remove", [0, 1, 4])
def test_matches_scipy(remove: int) -> None:
    first, second, basis_a, basis_b = two_models()
    result = pairwise_agreement(first, second, basis_a, basis_b, num_random=3, remove=remove)
    points_a, points_b = ccr(first, remove), ccr(second, remove)
    assert result.full == pytest.approx(oracle(points_a, points_b), abs=1e-9)
    inside_a, inside_b = points_a @ basis_a.double().numpy(), points_b @ basis_b.double().numpy()
    assert result.readout == pytest.approx(oracle(inside_a, inside_b), abs=1e-4)
    assert (result.num_points, result.num_dropped) == (40, 0)
    assert result.random_mean == pytest.approx(float(result.random.mean()))
    assert result.random_std == pytest.approx(float(result.random.std()))


@pytest.mark.parametrize("strength", [1e3, 1e4, 1e5])
def test_similarities_that_float32_cannot_tell_apart(strength: float) -> None:
    first, second, basis_a, basis_b = (tensor.double() for tensor in two_models())
    first = first + strength * gaussian(40, 1, seed=6) * basis_a[:, 0]
    result = pairwise_agreement(first, second, basis_a, basis_b, num_random=20, remove=0)
    points_a, points_b = ccr(first, 0), ccr(second, 0)
    inside_a, inside_b = points_a @ basis_a.numpy(), points_b @ basis_b.numpy()
    assert result.readout == pytest.approx(oracle(inside_a, inside_b), abs=1e-5)


def test_random_values_follow_the_law_of_plain_qr_draws() -> None:
    models = two_models(25)
    random = pairwise_agreement(*models, num_random=300).random
    rng, points = np.random.default_rng(0), [ccr(hidden, 1) for hidden in models[:2]]
    draws = [np.linalg.qr(rng.standard_normal((300, *basis.shape)))[0] for basis in models[2:]]
    expected = [oracle(points[0] @ a, points[1] @ b) for a, b in zip(*draws, strict=True)]
    assert kstest(random.numpy(), expected).pvalue > 0.01


def test_a_model_agrees_with_itself_turned_and_scaled() -> None:
    hidden, basis = gaussian(30, 10), basis_of(10, 3)
    rotation = torch.linalg.qr(gaussian(10, 10, seed=2).double()).Q
    turned = 7 * hidden.double() @ rotation + 1
    result = pairwise_agreement(hidden, turned, basis, rotation.T @ basis.double(), num_random=20)
    assert result.full == pytest.approx(1, abs=1e-7)
    assert result.readout == pytest.approx(1, abs=1e-4)
    assert result.random_mean < 0.9


def test_order_of_models_and_of_texts_is_irrelevant() -> None:
    first, second, basis_a, basis_b = two_models()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(6))
    expected = pairwise_agreement(first, second, basis_a, basis_b, num_random=2)
    swapped = pairwise_agreement(second, first, basis_b, basis_a, num_random=2)
    shuffled = pairwise_agreement(first[order], second[order], basis_a, basis_b, num_random=2)
    for other in (swapped, shuffled):
        assert other.full == pytest.approx(expected.full, abs=1e-9)
        assert other.readout == pytest.approx(expected.readout, abs=1e-4)


def test_readouts_on_the_shared_signal_agree_most() -> None:
    shared, axes_a, axes_b = gaussian(60, 4), basis_of(30, 30), basis_of(50, 50, seed=2)
    first = shared @ axes_a[:, :4].T + gaussian(60, 26, seed=3) @ axes_a[:, 4:].T
    second = shared @ axes_b[:, :4].T + gaussian(60, 46, seed=4) @ axes_b[:, 4:].T
    result = pairwise_agreement(
        first, second, axes_a[:, :4], axes_b[:, :4], num_random=20, remove=0
    )
    assert result.readout == pytest.approx(1, abs=1e-3)
    assert result.readout > result.full > result.random_mean


def test_equal_texts_tie_exactly_and_erased_ones_are_dropped() -> None:
    first, second, basis_a, basis_b = two_models(12)
    repeated = torch.arange(36) % 12
    result = pairwise_agreement(
        first[repeated], second[repeated], basis_a, basis_b, num_random=2, remove=0
    )
    cosines = []
    for hidden in (first, second):
        points = ccr(hidden, 0)
        units = points / np.linalg.norm(points, axis=1, keepdims=True)
        rows, columns = (index % 12 for index in np.triu_indices(36, 1))
        low, high = np.minimum(rows, columns), np.maximum(rows, columns)
        cosines.append(np.where(low == high, 1, (units @ units.T)[low, high]))
    assert result.full == pytest.approx(spearmanr(*cosines).statistic, abs=1e-12)

    balanced = first - first.mean(0)
    balanced[0] = -balanced[1:].sum(0)
    extended = torch.cat([balanced, torch.zeros(2, 12)])
    dropped = pairwise_agreement(
        extended, gaussian(14, 60, seed=7), basis_a, basis_b, num_random=2, remove=0
    )
    assert (dropped.num_points, dropped.num_dropped) == (12, 2)


def test_one_dimensional_readouts_know_two_similarities() -> None:
    first, second, _, _ = two_models()
    basis_a, basis_b = basis_of(12, 1), basis_of(60, 1)
    result = pairwise_agreement(first, second, basis_a, basis_b, num_random=2)
    upper = np.triu_indices(40, 1)
    sides = [
        np.sign(ccr(hidden, 1) @ basis.double().numpy())
        for hidden, basis in ((first, basis_a), (second, basis_b))
    ]
    expected = spearmanr(*[(side @ side.T)[upper] for side in sides]).statistic
    assert result.readout == pytest.approx(expected, abs=1e-12)


def test_a_model_without_distances_to_compare_gives_nan() -> None:
    simplex = torch.eye(6) - 1 / 6
    result = pairwise_agreement(
        simplex, gaussian(6, 5), basis_of(6, 2), basis_of(5, 2), num_random=2, remove=0
    )
    assert math.isnan(result.full)


def test_the_generator_alone_decides() -> None:
    models = two_models(20)
    state = torch.get_rng_state()
    default = pairwise_agreement(*models, num_random=3)
    assert torch.equal(torch.get_rng_state(), state)
    seeded = pairwise_agreement(*models, num_random=3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(default.random, seeded.random)
    assert isinstance(default, PairwiseAgreementResult)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype: torch.dtype) -> None:
    first, second, basis_a, basis_b = (tensor.to(dtype) for tensor in two_models())
    result = pairwise_agreement(first, second, basis_a, basis_b, num_random=2)
    assert result.full == pytest.approx(oracle(ccr(first, 1), ccr(second, 1)), abs=1e-9)


def test_inputs_are_left_alone() -> None:
    models = two_models(10)
    before = [tensor.clone() for tensor in models]
    pairwise_agreement(*models, num_random=2)
    assert all(torch.equal(a, b) for a, b in zip(models, before, strict=True))


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no tensor": ({"hidden_b": None}, TypeError, "hidden_b"),
    "not finite": (
        {"hidden_a": torch.full((9, 6), math.nan)},
        ValueError,
        "hidden_a: expected finite values, got 54",
    ),
    "other texts": ({"hidden_b": gaussian(8, 4)}, ValueError, "hidden_b: expected the 9 texts"),
    "two texts": (
        {"hidden_a": gaussian(2, 6), "hidden_b": gaussian(2, 4)},
        ValueError,
        "hidden_a: expected at least 3 points",
    ),
    "other model's basis": (
        {"basis_b": torch.eye(6)[:, :2]},
        ValueError,
        "basis_b: expected 4 rows, the width of the hidden states",
    ),
    "not orthonormal": ({"basis_a": torch.ones(6, 2)}, ValueError, "basis_a: expected orthonormal"),
    "k > d": ({"basis_b": torch.ones(4, 5)}, ValueError, "basis_b: expected at most d = 4"),
    "one draw": ({"num_random": 1}, ValueError, "num_random: expected an integer of at least 2"),
    "remove too many": ({"remove": 4}, ValueError, r"remove: expected fewer than min\(N, d\) = 4"),
    "nothing left": (
        {"hidden_a": torch.ones(9, 6)},
        ValueError,
        "expected at least 3 texts with a direction left in both models, got 0 of 9",
    ),
}


@pytest.mark.parametrize(("changes", "error", "message"), BAD.values(), ids=BAD)
def test_bad_input(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    good = {
        "hidden_a": gaussian(9, 6),
        "hidden_b": gaussian(9, 4),
        "basis_a": torch.eye(6)[:, :2],
        "basis_b": torch.eye(4)[:, :2],
    }
    with pytest.raises(error, match=message):
        pairwise_agreement(**(good | changes))
