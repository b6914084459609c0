"""Spectral measures against numpy's singular values, closed forms and invariances."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from toolkit.functional import (
    alpha_req,
    component_alignment,
    condition_number,
    cosine_moments,
    covariance_eigenvalues,
    mean_cosine,
    participation_ratio,
    rankme,
)

SCALARS: list[Callable[..., Any]] = [
    rankme,
    participation_ratio,
    condition_number,
    covariance_eigenvalues,
    mean_cosine,
]


def cloud(num: int, dim: int, *, seed: int = 0) -> Tensor:
    """Features with a decaying spectrum and a large mean."""
    gen = torch.Generator().manual_seed(seed)
    scales = torch.arange(1, dim + 1).double() ** -0.75
    return torch.randn(num, dim, generator=gen).double() * scales + 0.3


def diagonal_spectrum(eigenvalues: Tensor, num: int) -> Tensor:
    """Features whose centred covariance has exactly these eigenvalues."""
    dim = len(eigenvalues)
    gen = torch.Generator().manual_seed(3)
    noise = torch.randn(num, dim, generator=gen).double()
    scores = torch.linalg.qr(noise - noise.mean(0)).Q * math.sqrt(num)
    features: Tensor = scores * eigenvalues.double().sqrt()
    return features


def singular_values(features: Tensor, *, centered: bool) -> Any:
    rows = features.double().numpy()
    return np.linalg.svd(rows - rows.mean(0) if centered else rows, compute_uv=False)


@pytest.mark.parametrize("shape", [(60, 20), (20, 60), (30, 30)], ids=str)
@pytest.mark.parametrize("centered", [False, True])
def test_everything_matches_the_svd(shape: tuple[int, int], centered: bool) -> None:
    features = cloud(*shape)
    sigma = singular_values(features, centered=centered)
    shares = sigma / sigma.sum() + 1e-7
    variances = sigma**2
    rank = min(shape[0] - centered, shape[1])
    got = covariance_eigenvalues(features, centered=centered).numpy()
    assert got == pytest.approx(variances / shape[0], rel=1e-9, abs=1e-12)
    assert rankme(features, centered=centered).item() == pytest.approx(
        math.exp(-(shares * np.log(shares)).sum()), rel=1e-6
    )
    assert participation_ratio(features, centered=centered).item() == pytest.approx(
        variances.sum() ** 2 / (variances**2).sum()
    )
    assert condition_number(features, centered=centered).item() == pytest.approx(
        sigma[0] / sigma[rank - 1]
    )


def test_rankme_of_the_worked_example() -> None:
    features = torch.diag(1 / torch.arange(1, 65))
    assert rankme(features).item() == pytest.approx(29.118, abs=1e-3)


@pytest.mark.parametrize("eigenvalues", [False, True])
def test_rankme_of_orthonormal_and_of_parallel_rows(eigenvalues: bool) -> None:
    assert rankme(torch.eye(10), eigenvalues=eigenvalues).item() == pytest.approx(10, rel=1e-4)
    parallel = torch.outer(torch.arange(1.0, 6), torch.tensor([1.0, 2.0, 3.0]))
    assert rankme(parallel, eigenvalues=eigenvalues).item() == pytest.approx(1, rel=1e-4)


def test_rankme_of_eigenvalues_is_the_effective_rank_of_the_variance() -> None:
    values = torch.tensor([0.5, 0.25, 0.125, 0.125])
    features = diagonal_spectrum(values, 50)
    got = rankme(features, centered=True, eigenvalues=True).item()
    assert got == pytest.approx(2**1.75, rel=1e-4)


def test_participation_ratio_of_flat_and_single_spectra() -> None:
    assert participation_ratio(diagonal_spectrum(torch.ones(7), 50)).item() == pytest.approx(7)
    single = diagonal_spectrum(torch.tensor([1.0, 0.0, 0.0]), 50)
    assert participation_ratio(single).item() == pytest.approx(1)


def test_alpha_of_an_exact_power_law() -> None:
    fit = alpha_req(diagonal_spectrum(torch.arange(1, 121).double() ** -1.5, 300))
    assert fit.alpha == pytest.approx(1.5, abs=1e-9)
    assert fit.r2 == pytest.approx(1)
    assert fit[2:] == (90, "")


def test_alpha_of_a_broken_power_law_depends_on_the_range() -> None:
    ranks = torch.arange(1, 61).double()
    features = diagonal_spectrum(torch.where(ranks <= 20, ranks**-0.5, 20 * ranks**-1.5), 200)
    assert alpha_req(features, fit_range=(1, 20)).alpha == pytest.approx(0.5)
    assert alpha_req(features, fit_range=(21, 60)).alpha == pytest.approx(1.5)


def test_alpha_is_fitted_inside_the_rank_only() -> None:
    values = torch.arange(1, 41).double() ** -2
    values[18:] = 0
    fit = alpha_req(diagonal_spectrum(values, 80))
    assert fit.alpha == pytest.approx(2)
    assert fit.num_points == 8
    # 15 centred points span 14 directions, 4 of them from the 11th on.
    fit = alpha_req(cloud(15, 40))
    assert math.isnan(fit.alpha)
    assert math.isnan(fit.r2)
    assert fit.reason == "4 eigenvalues in the fit range (11, 100) of rank 14, 5 are needed"


def test_mean_cosine_is_the_mean_over_pairs() -> None:
    features = torch.cat([cloud(40, 7), torch.zeros(3, 7)])
    result = mean_cosine(features)
    assert result.value.item() == pytest.approx(cosine_moments(features).mean, rel=1e-12)
    assert result.num_dropped == 3
    assert math.isnan(mean_cosine(torch.eye(3) * torch.tensor([1.0, 0, 0])).value)


@pytest.mark.parametrize("num", [5, 50])
def test_constant_features_have_no_spectrum(num: int) -> None:
    features = torch.full((num, 6), 0.1).double()
    assert (covariance_eigenvalues(features) == 0).all()
    for function in (participation_ratio, condition_number):
        assert math.isnan(function(features))
    assert alpha_req(features).reason.startswith("0 eigenvalues")
    assert rankme(features).item() == pytest.approx(1, abs=1e-4)
    assert math.isnan(rankme(torch.zeros(num, 6)))


def test_rank_deficient_features_have_an_infinite_condition_number() -> None:
    features = cloud(50, 4)
    twice = torch.cat([features, features], 1)
    assert condition_number(twice).item() == math.inf
    assert condition_number(cloud(3, 40)).item() < math.inf


def test_low_rank_float32_features_keep_their_rank(generator: torch.Generator) -> None:
    factors = torch.randn(300, 20, generator=generator), torch.randn(20, 100, generator=generator)
    exact = factors[0].double() @ factors[1].double()
    assert (covariance_eigenvalues(exact) > 0).sum() == 20


@pytest.mark.parametrize("function", SCALARS, ids=lambda f: f.__name__)
def test_layers_are_measured_one_by_one(function: Callable[..., Any]) -> None:
    layers = torch.stack([cloud(30, 12, seed=seed) for seed in range(3)])
    batch = function(layers)
    single = [function(layer) for layer in layers]
    if function is mean_cosine:
        batch, single = batch.value, [result.value for result in single]
    assert torch.equal(batch, torch.stack(single))


@pytest.mark.parametrize("function", [*SCALARS, alpha_req], ids=lambda f: f.__name__)
def test_rotation_scale_and_order_do_not_matter(function: Callable[..., Any]) -> None:
    features = cloud(60, 30)
    gen = torch.Generator().manual_seed(1)
    rotation = torch.linalg.qr(torch.randn(30, 30, generator=gen).double()).Q
    order = torch.randperm(60, generator=gen)
    scale = 1 if function is covariance_eigenvalues else 7
    before, after = function(features), function(scale * features[order] @ rotation)
    if function in {alpha_req, mean_cosine}:
        before, after = before[0], after[0]
    torch.testing.assert_close(torch.as_tensor(after), torch.as_tensor(before))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("function", [*SCALARS, alpha_req], ids=lambda f: f.__name__)
def test_other_dtypes_are_lifted_and_left_alone(
    function: Callable[..., Any], dtype: torch.dtype
) -> None:
    features = (10 * cloud(40, 20)).to(dtype)
    before = features.clone()
    got, expected = function(features), function(features.double())
    if function in {alpha_req, mean_cosine}:
        got, expected = got[0], expected[0]
    torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(expected))
    assert torch.equal(features, before)


@pytest.mark.parametrize("shape", [(50, 8), (6, 20)], ids=str)
def test_alignment_matches_numpy(shape: tuple[int, int]) -> None:
    features = cloud(*shape)
    gen = torch.Generator().manual_seed(1)
    basis = torch.linalg.qr(torch.randn(shape[1], 3, generator=gen).double()).Q
    rows = features.numpy()
    components = np.linalg.svd(rows - rows.mean(0), full_matrices=False)[2][:4]
    expected = ((components @ basis.numpy()) ** 2).sum(1)
    got = component_alignment(features, basis, num_components=4)
    assert got.numpy() == pytest.approx(expected, abs=1e-9)


def test_alignment_is_one_inside_and_zero_outside() -> None:
    features = diagonal_spectrum(torch.tensor([4.0, 3.0, 2.0, 0.0]), 30)
    basis = torch.eye(4)[:, [0, 2]]
    shares = component_alignment(features, basis, num_components=4)
    assert shares[:3].tolist() == pytest.approx([1, 0, 1], abs=1e-12)
    assert math.isnan(shares[3])


@pytest.mark.parametrize("function", [*SCALARS, alpha_req], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.full((3, 2), math.nan), "features: expected finite values, got 6 non-finite of 6"),
        (torch.ones(5), "features: expected 2"),
        (torch.ones(2, 5), "features: expected at least 3 rows, got 2"),
        (torch.ones(0, 5), "features: expected at least one value"),
    ],
    ids=["nan", "vector", "two_rows", "empty"],
)
def test_bad_features_are_refused(
    function: Callable[..., Any], features: Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        function(features)


@pytest.mark.parametrize("fit_range", [(0, 10), (5, 5), (10, 2)])
def test_bad_fit_ranges_are_refused(fit_range: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="fit_range: expected two integers, 1 <= first < last"):
        alpha_req(cloud(20, 5), fit_range=fit_range)


@pytest.mark.parametrize(
    ("basis", "num_components", "message"),
    [
        (torch.eye(4), 1, "basis: expected 5 rows"),
        (2 * torch.eye(5), 1, "basis: expected orthonormal columns"),
        (torch.eye(5), 6, "num_components: expected at most 5, got 6"),
        (torch.eye(5), 0, "num_components: expected an integer of at least 1"),
    ],
    ids=["rows", "norms", "many", "none"],
)
def test_bad_alignments_are_refused(basis: Tensor, num_components: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        component_alignment(cloud(20, 5), basis, num_components=num_components)
