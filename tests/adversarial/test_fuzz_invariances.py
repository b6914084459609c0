"""What must not change a result, and what every result must satisfy, for drawn inputs.

`tests.adversarial.test_fuzz_functions` says how to try many examples.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.adversarial.trials import equal
from toolkit import functional as F

SEEDS = st.integers(0, 2**32 - 1)


def gaussian(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@st.composite
def matrices(draw: Any) -> Any:
    """Gaussian rows, a third of them with a mean far from 0."""
    rows = gaussian(draw(SEEDS), draw(st.integers(3, 40)), draw(st.integers(2, 12)))
    return rows + draw(st.sampled_from([0.0, 0.0, 5.0]))


ROW_ORDER: dict[str, Callable[[Tensor], Any]] = {
    "cosine_moments": F.cosine_moments,
    "embedding_deviation": F.embedding_deviation,
    "max_abs_cosine": F.max_abs_cosine,
    "mean_abs_cosine": lambda rows: F.mean_abs_cosine(rows).value,
    "mean_cosine": F.mean_cosine,
    "mean_squared_overlap": F.mean_squared_overlap,
    "gram_penalty": lambda rows: F.gram_penalty(rows, 6),
    "rankme": F.rankme,
    "participation_ratio": F.participation_ratio,
    "condition_number": F.condition_number,
    "covariance_eigenvalues": F.covariance_eigenvalues,
    "two_nn": lambda rows: F.two_nn(rows).dimension,
}
# Float32 products of unit rows.
_ROUNDING = {"mean_abs_cosine": 1e-6, "condition_number": 1e-5}
SCALE_FREE = ROW_ORDER.keys() - {"covariance_eigenvalues"}


def tolerance(name: str) -> float:
    return _ROUNDING.get(name, 1e-8)


@pytest.mark.parametrize("name", ROW_ORDER)
@given(rows=matrices(), seed=SEEDS)
def test_order_of_rows(name: str, rows: Tensor, seed: int) -> None:
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    function = ROW_ORDER[name]
    assert equal(function(rows[order]), function(rows), tolerance(name))


@pytest.mark.parametrize("name", ROW_ORDER)
@given(rows=matrices(), seed=SEEDS)
def test_rotation(name: str, rows: Tensor, seed: int) -> None:
    dim = rows.shape[1]
    rotation = torch.linalg.qr(gaussian(seed, dim, dim)).Q
    function = ROW_ORDER[name]
    assert equal(function(rows @ rotation), function(rows), tolerance(name))


@pytest.mark.parametrize("name", sorted(SCALE_FREE))
@given(rows=matrices(), power=st.integers(-60, 60))
def test_scale(name: str, rows: Tensor, power: int) -> None:
    # mean_squared_overlap leaves out rows below 1e-6, as documented.
    power = max(power, -10) if name == "mean_squared_overlap" else power
    function = ROW_ORDER[name]
    assert equal(function(rows * 2.0**power), function(rows), tolerance(name))


@given(rows=matrices(), chunk_size=st.integers(1, 50))
def test_chunk_size(rows: Tensor, chunk_size: int) -> None:
    assert equal(F.cosine_moments(rows, chunk_size=chunk_size), F.cosine_moments(rows), 1e-9)
    assert equal(F.cosine_distances(rows, chunk_size=chunk_size), F.cosine_distances(rows), 1e-12)
    bins = F.cosine_histogram(rows, num_bins=7, chunk_size=chunk_size)
    assert int(bins.counts.sum()) == math.comb(len(rows), 2)


@given(rows=matrices())
def test_moments_are_those_of_the_distances(rows: Tensor) -> None:
    cosines = 1 - F.cosine_distances(rows)
    moments = F.cosine_moments(rows)
    assert moments.mean == pytest.approx(float(cosines.mean()), abs=1e-9)
    assert moments.std == pytest.approx(float(cosines.std(correction=0)), abs=1e-7)
    assert F.max_abs_cosine(rows) == pytest.approx(float(cosines.abs().max()), abs=1e-9)


@given(values=st.lists(st.sampled_from([-2.0, -0.0, 0.0, 0.5, 3.0, 1e300]), min_size=1))
def test_ranks_are_scipys(values: list[float]) -> None:
    ranks = F.average_ranks(torch.tensor(values, dtype=torch.float64))
    assert np.array_equal(ranks.numpy(), scipy.stats.rankdata(values))


@given(seed=SEEDS, size=st.integers(3, 30))
def test_spearman_is_symmetric_and_takes_any_rising_function(seed: int, size: int) -> None:
    x, y = gaussian(seed, 2, size)
    rho = F.spearman(x, y)
    assert equal(F.spearman(y, x), rho, 1e-12)
    assert equal(F.spearman(x.exp(), y**3), rho, 1e-12)
    assert float(rho) == pytest.approx(scipy.stats.spearmanr(x, y).statistic, abs=1e-12)


@given(
    exponent=st.floats(-3, 3),
    prefactor=st.floats(1e-6, 1e6),
    sizes=st.lists(st.integers(1, 10**6), min_size=2, max_size=9, unique=True),
)
def test_a_power_law_is_found(exponent: float, prefactor: float, sizes: list[int]) -> None:
    x = torch.tensor(sizes).double()
    fit = F.fit_power_law(x, prefactor * x**-exponent)
    assert fit.exponent == pytest.approx(exponent, abs=1e-5)
    assert torch.allclose(
        F.local_slopes(x, prefactor * x**-exponent).double(),
        torch.full((len(sizes) - 1,), exponent).double(),
        atol=1e-5 if len(sizes) == 2 else 1e-3,
        rtol=1e-3,
    )


@given(dim=st.integers(2, 5000), epsilon=st.floats(0.01, 0.3), law=st.sampled_from(["ratio", "jl"]))
def test_capacity_and_deviation_are_inverse(dim: int, epsilon: float, law: Any) -> None:
    log10 = F.log10_capacity(dim, epsilon, law=law)
    if log10 < 300:
        assert F.deviation_for(dim, 10**log10, law=law) == pytest.approx(epsilon, rel=1e-6)


@given(rows=matrices())
def test_no_packing_beats_welch(rows: Tensor) -> None:
    largest = F.max_abs_cosine(rows)
    assert F.welch_bound(*rows.shape) <= largest * (1 + 1e-9) <= 1 + 1e-9
    penalty = float(F.gram_penalty(rows, 20))
    assert largest * (1 - 1e-9) <= penalty <= largest * (len(rows) ** 2) ** (1 / 20)


@given(seed=SEEDS, dim=st.integers(1, 12), data=st.data())
def test_random_bases_are_orthonormal(seed: int, dim: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, dim))
    bases = F.haar_bases(dim, k, 3, generator=torch.Generator().manual_seed(seed))
    assert torch.allclose(bases.mT @ bases, torch.eye(k).expand(3, k, k), atol=1e-4)


@given(rows=matrices(), data=st.data())
def test_removed_components_stay_away(rows: Tensor, data: st.DataObject) -> None:
    removed = data.draw(st.integers(0, min(rows.shape) - 1))
    rest = F.remove_components(rows, removed)
    assert torch.allclose(rest.mean(0), torch.zeros(rows.shape[1]).double(), atol=1e-9)
    assert int(torch.linalg.matrix_rank(rest, atol=1e-9)) <= min(rows.shape) - removed
    assert torch.allclose(F.remove_components(rest, 0), rest, atol=1e-9)


@given(seed=SEEDS, lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), left=st.booleans())
def test_padding_never_matters(seed: int, lengths: list[int], left: bool) -> None:
    texts = [gaussian(seed + index, length, 3) for index, length in enumerate(lengths)]
    padded = torch.full((len(texts), 6, 3), math.nan, dtype=torch.float64)
    mask = torch.zeros(len(texts), 6, dtype=torch.bool)
    for row, text in enumerate(texts):
        place = slice(6 - len(text), 6) if left else slice(0, len(text))
        padded[row, place], mask[row, place] = text, True
    assert equal(F.last_token(padded, mask), torch.stack([text[-1] for text in texts]))
    means = torch.stack([text.mean(0) for text in texts])
    assert equal(F.masked_mean(padded, mask), means, 1e-12)


@given(seed=SEEDS, sizes=st.tuples(*[st.integers(1, 9)] * 3), density=st.floats(0, 1))
def test_sparse_loss_is_the_dense_one(
    seed: int, sizes: tuple[int, int, int], density: float
) -> None:
    num_rows, num_features, width = sizes
    generator = torch.Generator().manual_seed(seed)
    active = torch.rand(num_rows, num_features, generator=generator) < density
    inputs = gaussian(seed, num_rows, num_features).abs() * active
    weight = gaussian(seed + 1, num_features, width).requires_grad_()
    bias = gaussian(seed + 2, num_features).requires_grad_()
    row, feature = torch.nonzero(inputs, as_tuple=True)
    cells = F.cell_layout(row, feature, inputs[row, feature], num_rows)
    sparse, dense = (
        F.reconstruction_loss(weight, bias, cells),
        F.dense_reconstruction_loss(weight, bias, inputs),
    )
    assert equal(sparse, dense, 1e-9)
    for ours, theirs in zip(
        torch.autograd.grad(sparse, (weight, bias)),
        torch.autograd.grad(dense, (weight, bias)),
        strict=True,
    ):
        assert equal(ours, theirs, 1e-9)


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1), level=st.floats(0.01, 0.99))
def test_interval_lies_inside(values: list[float], level: float) -> None:
    low, high = F.percentile_interval(values, level=level)
    assert min(values) <= low <= high <= max(values)


@given(seed=SEEDS, num_texts=st.integers(8, 20), removed=st.integers(0, 2))
def test_subspace_pga_is_the_same_in_every_basis(seed: int, num_texts: int, removed: int) -> None:
    hidden = gaussian(seed, num_texts, 6)
    basis, turn = (
        torch.linalg.qr(gaussian(seed + 1, 6, 2)).Q,
        torch.linalg.qr(gaussian(seed, 2, 2)).Q,
    )
    first = F.subspace_pga(hidden, basis, num_null=4, remove=removed)
    turned = F.subspace_pga(hidden * 8, basis @ turn, num_null=4, remove=removed)
    assert equal(turned.rho, first.rho, 1e-3)
    assert equal(turned.variance_share, first.variance_share, 1e-5)
    assert -1 - 1e-9 <= float(first.rho) <= 1 + 1e-9


@given(seed=SEEDS, num_classes=st.integers(2, 4))
def test_probe_accuracy_is_a_share_and_no_feature_scale_matters(
    seed: int, num_classes: int
) -> None:
    features = gaussian(seed, 24, 5)
    labels = torch.arange(24) % num_classes
    accuracies = []
    for scale in (1.0, 1024.0):
        probe = F.fit_linear_probe(features * scale, labels, tol=1e-9)
        accuracies.append(float(F.probe_accuracy(probe, features * scale, labels)))
    assert 1 / num_classes <= accuracies[0] + 1e-9 <= 1 + 1e-9
    assert accuracies[0] == pytest.approx(accuracies[1], abs=1 / 24 + 1e-9)
