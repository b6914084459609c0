"""No function and no metric follows torch's default dtype or autocast."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric

from toolkit import functional, metrics
from toolkit.functional import (
    alpha_req,
    average_ranks,
    bootstrap_packing_law,
    cell_layout,
    component_alignment,
    condition_number,
    cosine_distances,
    cosine_histogram,
    cosine_moments,
    covariance_eigenvalues,
    dense_reconstruction_loss,
    deviation_for,
    deviation_interval,
    deviation_stderr,
    embedding_deviation,
    feature_norms,
    fit_linear_probe,
    fit_packing_law,
    fit_power_law,
    gram_penalty,
    gram_penalty_with_max,
    haar_bases,
    last_token,
    local_slopes,
    log10_capacity,
    log10_capacity_interval,
    log10_model_capacity,
    masked_mean,
    max_abs_cosine,
    mean_abs_cosine,
    mean_cosine,
    mean_squared_overlap,
    norm_percentiles,
    pairwise_agreement,
    participation_ratio,
    percentile_interval,
    probe_accuracy,
    published_exponent,
    random_max_abs_cosine,
    rankme,
    readout_basis,
    reconstruct,
    reconstruction_loss,
    remove_components,
    represented_fraction,
    slope_guide,
    spearman,
    strong_superposition_exponent,
    subspace_pga,
    two_nn,
    weak_superposition_loss,
    welch_bound,
)

NUM, DIM = 60, 16


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float32) + 0.2


ROWS, OTHER = noise(NUM, DIM), noise(NUM, 24, seed=1)
# Float32 products are taken only where float64 ones would cost more than this.
LARGE = noise(4200, 1024)
BASIS, WIDE_BASIS, ALMOST_ALL = (torch.linalg.qr(noise(DIM, k, seed=2)).Q for k in (4, 8, DIM - 1))
LABELS = torch.arange(NUM) % 3
MASK = torch.ones(4, 15, dtype=torch.int64)
WEIGHT, BIAS = noise(30, 5), noise(30, seed=3)
ROW, FEATURE = torch.arange(24) // 2, torch.arange(24) % 30
VALUE, INPUTS = noise(24).abs(), noise(7, 30).relu()
COUNTS = torch.tensor([40, 80, 160, 40, 80, 160])
DIMS = torch.tensor([8, 8, 8, 16, 16, 16])
EPSILONS = torch.tensor([0.45, 0.53, 0.61, 0.25, 0.34, 0.41])
X, Y = torch.tensor([10, 20, 40]), torch.tensor([1.0, 0.6, 0.25])
CONSTANTS = {"C": torch.tensor([1.2, 1.3, 1.4])}


def gradients(function: Callable[..., Tensor], *leaves: Tensor) -> tuple[Tensor, ...]:
    copies = [leaf.clone().requires_grad_() for leaf in leaves]
    value = function(*copies)
    # What torch differentiates is its own affair; Lightning does so outside autocast.
    with torch.autocast("cpu", enabled=False):
        return (value.detach(), *torch.autograd.grad(value, copies))


def sparse_loss(weight: Tensor, bias: Tensor) -> Tensor:
    return reconstruction_loss(weight, bias, cell_layout(ROW, FEATURE, VALUE, 15))


def fitted_probe() -> Any:
    probe = fit_linear_probe(ROWS, LABELS, l2=[0.1, 1.0])
    return (*probe, probe_accuracy(probe, ROWS, LABELS))


CALLS: dict[Callable[..., Any], Callable[[], Any]] = {
    alpha_req: lambda: alpha_req(ROWS, fit_range=(2, 12)),
    average_ranks: lambda: average_ranks(ROWS),
    bootstrap_packing_law: lambda: bootstrap_packing_law(
        COUNTS, DIMS, EPSILONS, law="ratio", num_resamples=20
    )["C"],
    cell_layout: lambda: cell_layout(ROW, FEATURE, VALUE, 15)[:-1],
    component_alignment: lambda: component_alignment(ROWS, BASIS, num_components=3),
    condition_number: lambda: condition_number(ROWS),
    cosine_distances: lambda: cosine_distances(ROWS),
    cosine_histogram: lambda: cosine_histogram(ROWS)[:2],
    cosine_moments: lambda: (*cosine_moments(ROWS), *cosine_moments(LARGE)),
    covariance_eigenvalues: lambda: covariance_eigenvalues(ROWS),
    dense_reconstruction_loss: lambda: gradients(
        lambda w, b: dense_reconstruction_loss(w, b, INPUTS), WEIGHT, BIAS
    ),
    deviation_for: lambda: deviation_for(64, 1000),
    deviation_interval: lambda: deviation_interval(64, 1000, CONSTANTS, law="ratio"),
    deviation_stderr: lambda: deviation_stderr(ROWS),
    embedding_deviation: lambda: embedding_deviation(ROWS)[:3],
    feature_norms: lambda: feature_norms(ROWS),
    fit_linear_probe: fitted_probe,
    fit_packing_law: lambda: fit_packing_law(COUNTS, DIMS, EPSILONS, law="ratio")[1:],
    fit_power_law: lambda: fit_power_law(X, Y),
    gram_penalty: lambda: gradients(lambda rows: gram_penalty(rows, 7), ROWS),
    gram_penalty_with_max: lambda: gram_penalty_with_max(ROWS, 2.5),
    haar_bases: lambda: (
        haar_bases(40, 5, 2, generator=seeded()),
        haar_bases(9, 5, 2, generator=seeded()),
    ),
    last_token: lambda: last_token(ROWS.view(4, 15, DIM), MASK),
    local_slopes: lambda: local_slopes(X, Y),
    log10_capacity: lambda: log10_capacity(64, 0.2),
    log10_capacity_interval: lambda: log10_capacity_interval(
        64, 0.2, CONSTANTS, law="ratio", rounding=0.01, stderr=0.01
    ),
    log10_model_capacity: lambda: log10_model_capacity(embedding_deviation(torch.eye(4)), 4),
    masked_mean: lambda: masked_mean(ROWS.view(4, 15, DIM), MASK),
    max_abs_cosine: lambda: max_abs_cosine(ROWS),
    mean_abs_cosine: lambda: (*mean_abs_cosine(ROWS), *mean_abs_cosine(ROWS, num_sampled=20)),
    mean_cosine: lambda: mean_cosine(ROWS),
    mean_squared_overlap: lambda: mean_squared_overlap(ROWS),
    norm_percentiles: lambda: norm_percentiles(ROWS, [5, 50]),
    pairwise_agreement: lambda: pairwise_agreement(
        ROWS, OTHER, BASIS, torch.eye(24, dtype=torch.float32)[:, :5], num_random=4
    ),
    participation_ratio: lambda: participation_ratio(ROWS),
    percentile_interval: lambda: percentile_interval(range(101), level=0.5),
    probe_accuracy: fitted_probe,
    published_exponent: lambda: published_exponent(2000, 128),
    random_max_abs_cosine: lambda: random_max_abs_cosine(20, 5, num_draws=4),
    rankme: lambda: rankme(ROWS),
    readout_basis: lambda: (readout_basis(ROWS, 5), readout_basis(ROWS, 5, centered=True)),
    reconstruct: lambda: reconstruct(WEIGHT, BIAS, INPUTS),
    reconstruction_loss: lambda: gradients(sparse_loss, WEIGHT, BIAS),
    remove_components: lambda: remove_components(ROWS, 2),
    represented_fraction: lambda: represented_fraction(ROWS, 4.0),
    slope_guide: lambda: slope_guide(X, Y, 1.0),
    spearman: lambda: spearman(ROWS.T, ROWS.T.flip(0)),
    strong_superposition_exponent: lambda: strong_superposition_exponent(1.8),
    subspace_pga: lambda: tuple(
        subspace_pga(hidden, basis, num_null=4, remove=[0, 2], exact=exact)[:11]
        for hidden in (ROWS, ROWS[:10])
        for basis in (BASIS, WIDE_BASIS, ALMOST_ALL)
        for exact in (True, False)
    ),
    two_nn: lambda: two_nn(ROWS),
    weak_superposition_loss: lambda: weak_superposition_loss(VALUE / 10, [0, 3, 9]),
    welch_bound: lambda: welch_bound(2000, 64),
}
METRICS: dict[str, Callable[[], Metric]] = {
    "AlphaReQ": lambda: metrics.AlphaReQ(DIM, fit_range=(2, 12)),
    "ConditionNumber": lambda: metrics.ConditionNumber(DIM),
    "CosineMoments": lambda: metrics.CosineMoments(DIM),
    "EmbeddingDeviation": lambda: metrics.EmbeddingDeviation(DIM),
    "MeanCosine": lambda: metrics.MeanCosine(DIM),
    "ParticipationRatio": lambda: metrics.ParticipationRatio(DIM),
    "RankMe": lambda: metrics.RankMe(DIM),
}


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


SETTINGS: dict[str, Callable[[], Any]] = {
    "default float64": lambda: default_dtype(torch.float64),
    "default bfloat16": lambda: default_dtype(torch.bfloat16),
    "autocast bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast float16": lambda: torch.autocast("cpu", torch.float16),
}
each_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())


def assert_equal(got: Any, expected: Any) -> None:
    """Equal to the bit, NaN included, tensors also in their dtype."""
    if isinstance(got, tuple):
        assert len(got) == len(expected)
        for left, right in zip(got, expected, strict=True):
            assert_equal(left, right)
    elif isinstance(got, Tensor):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    else:
        assert repr(got) == repr(expected)


@each_setting
@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
def test_function(function: Callable[..., Any], setting: Callable[[], Any]) -> None:
    expected = CALLS[function]()
    with setting():
        assert_equal(CALLS[function](), expected)


@each_setting
@pytest.mark.parametrize("name", METRICS)
def test_metric(name: str, setting: Callable[[], Any]) -> None:
    def values() -> Any:
        metric = METRICS[name]()
        for batch in torch.split(ROWS, 25):
            metric.update(batch)
        return metric.compute()

    expected = values()
    with setting():
        assert_equal(values(), expected)


def test_all_of_them_are_here() -> None:
    public = {getattr(functional, name) for name in functional.__all__}
    assert {value for value in public if inspect.isfunction(value)} == set(CALLS)
    assert set(metrics.__all__) == set(METRICS)
