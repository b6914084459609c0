"""What does not depend on the scale keeps its value from 1e-200 to 1e300 (float64)."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from toolkit.functional import (
    alpha_req,
    average_ranks,
    component_alignment,
    condition_number,
    cosine_distances,
    cosine_histogram,
    cosine_moments,
    covariance_eigenvalues,
    deviation_stderr,
    embedding_deviation,
    feature_norms,
    fit_linear_probe,
    fit_power_law,
    gram_penalty,
    last_token,
    local_slopes,
    masked_mean,
    max_abs_cosine,
    mean_abs_cosine,
    mean_cosine,
    mean_squared_overlap,
    pairwise_agreement,
    participation_ratio,
    probe_accuracy,
    rankme,
    readout_basis,
    remove_components,
    represented_fraction,
    slope_guide,
    spearman,
    subspace_pga,
    two_nn,
)

NUM, DIM = 40, 12
# Powers of 2 round nothing; the others are those of the fault.
DOUBLE_SCALES = [2.0**-1000, 1e-200, 1e-150, 1e-30, 1e30, 1e150, 1e300, 2.0**1000]
SINGLE_SCALES = [2.0**-100, 2.0**-40, 2.0**40, 2.0**100]


def cloud(num: int = NUM) -> Tensor:
    gen = torch.Generator().manual_seed(0)
    rows = torch.randn(num, DIM, generator=gen) * torch.arange(1, DIM + 1) ** -0.5 + 0.2
    return rows.bfloat16().double()


def subspace(dtype: torch.dtype = torch.float64) -> Tensor:
    gen = torch.Generator().manual_seed(1)
    basis: Tensor = torch.linalg.qr(torch.randn(DIM, 4, generator=gen, dtype=torch.float64)).Q
    return basis.to(dtype)


def labels() -> Tensor:
    return torch.arange(NUM) % 3


def probe_parts(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    probe = fit_linear_probe(rows, labels(), tol=1e-9 if rows.dtype == torch.float64 else 1e-6)
    return probe.weight, probe.bias, probe_accuracy(probe, rows, labels())


def penalty_gradient(rows: Tensor) -> Tensor:
    """Gradient in the logarithm of the scale's own units: times the norms it is invariant."""
    leaf = rows.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(gram_penalty(leaf, 6), leaf)
    return gradient * feature_norms(rows)[:, None]


INVARIANT: dict[str, Callable[[Tensor], Any]] = {
    "alpha_req": lambda rows: alpha_req(rows, fit_range=(2, 10))[:3],
    "average_ranks": average_ranks,
    "component_alignment": lambda rows: component_alignment(
        rows, subspace(rows.dtype), num_components=3
    ),
    "condition_number": condition_number,
    "cosine_distances": cosine_distances,
    "cosine_histogram": lambda rows: cosine_histogram(rows, num_bins=8).counts,
    "cosine_moments": cosine_moments,
    "deviation_stderr": deviation_stderr,
    "embedding_deviation": lambda rows: embedding_deviation(rows)[:3],
    "gram_penalty": lambda rows: gram_penalty(rows, 6),
    "gram_penalty_gradient": penalty_gradient,
    "linear_probe": probe_parts,
    "max_abs_cosine": max_abs_cosine,
    "mean_abs_cosine": lambda rows: mean_abs_cosine(rows, num_sampled=10)[:2],
    "mean_cosine": mean_cosine,
    "pairwise_agreement": lambda rows: pairwise_agreement(
        rows, cloud().tanh(), subspace(), subspace(), num_random=3
    ),
    "participation_ratio": participation_ratio,
    "power_law": lambda rows: fit_power_law(rows[:, 0].abs(), rows[:, 1].abs())[:2],
    "local_slopes": lambda rows: local_slopes(rows[:, 0].abs(), rows[:, 1].abs()),
    "rankme": rankme,
    "rankme_of_variances": lambda rows: rankme(rows, centered=True, eigenvalues=True),
    "readout_basis": lambda rows: readout_basis(rows, 5),
    "readout_basis_centered": lambda rows: readout_basis(rows, 5, centered=True),
    "spearman": lambda rows: spearman(rows.T, rows.T.flip(0)),
    "subspace_pga": lambda rows: subspace_pga(
        rows, subspace(rows.dtype), num_null=5, remove=[0, 2]
    )[:5],
    "two_nn": lambda rows: two_nn(rows)[:4],
}
# These come with the scale.
COVARIANT: dict[str, Callable[[Tensor], Tensor]] = {
    "feature_norms": feature_norms,
    "last_token": lambda rows: last_token(rows[None], torch.ones(1, NUM)),
    "masked_mean": lambda rows: masked_mean(rows[None], torch.ones(1, NUM)),
    "probe_scale": lambda rows: fit_linear_probe(rows, labels()).scale,
    "remove_components": lambda rows: remove_components(rows, 2),
    "slope_guide": lambda rows: slope_guide(cloud()[:, 0].abs(), rows[:, 1].abs(), 1.0),
}


def assert_close(got: Any, expected: Any, error: float) -> None:
    """Compare numbers, tensors and tuples of them."""
    if isinstance(got, tuple):
        for left, right in zip(got, expected, strict=True):
            assert_close(left, right, error)
    else:
        left, right = (torch.as_tensor(value, dtype=torch.float64) for value in (got, expected))
        torch.testing.assert_close(left, right, rtol=error, atol=error, equal_nan=True)


@pytest.mark.parametrize("scale", DOUBLE_SCALES)
@pytest.mark.parametrize("name", INVARIANT)
def test_double_precision_has_the_value_of_scale_one(name: str, scale: float) -> None:
    assert_close(INVARIANT[name](scale * cloud()), INVARIANT[name](cloud()), 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", SINGLE_SCALES)
@pytest.mark.parametrize("name", INVARIANT)
def test_single_precision_has_the_value_of_scale_one(
    name: str, scale: float, dtype: torch.dtype
) -> None:
    rows = cloud().to(dtype)
    if name == "gram_penalty_gradient":
        rows = rows.float()
    assert_close(INVARIANT[name](scale * rows), INVARIANT[name](rows), 1e-6)


@pytest.mark.parametrize("scale", DOUBLE_SCALES)
@pytest.mark.parametrize("name", COVARIANT)
def test_double_precision_comes_with_the_scale(name: str, scale: float) -> None:
    assert_close(COVARIANT[name](scale * cloud()) / scale, COVARIANT[name](cloud()), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", SINGLE_SCALES)
@pytest.mark.parametrize("name", COVARIANT)
def test_single_precision_comes_with_the_scale(name: str, scale: float, dtype: torch.dtype) -> None:
    rows = cloud().to(dtype)
    assert_close(COVARIANT[name](scale * rows).double() / scale, COVARIANT[name](rows), 1e-6)


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e100, 1e150])
def test_covariance_comes_with_the_square_of_the_scale(scale: float) -> None:
    found = covariance_eigenvalues(scale * cloud()) / scale / scale
    torch.testing.assert_close(found, covariance_eigenvalues(cloud()), rtol=1e-9, atol=0)


@pytest.mark.parametrize("scale", [1e-200, 1e160, 1e300])
def test_covariance_beyond_float64_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="features: expected a covariance within float64, got"):
        covariance_eigenvalues(torch.stack([cloud(), scale * cloud()]))


def test_covariance_of_zeros_is_zero() -> None:
    assert covariance_eigenvalues(torch.zeros(2, 5, 3)).tolist() == [[0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_norms_beyond_the_dtype_are_refused(dtype: torch.dtype) -> None:
    weight = torch.full((2, 4), torch.finfo(dtype).max, dtype=dtype)
    with pytest.raises(ValueError, match=f"weight: expected row norms within {dtype}"):
        feature_norms(weight)
    assert represented_fraction(weight) == 1


@pytest.mark.parametrize("scale", [*DOUBLE_SCALES, 1.0])
def test_represented_rows_are_those_above_the_threshold(scale: float) -> None:
    weight = scale * torch.diag(torch.tensor([3.0, 2.0, 1.0, 0.0], dtype=torch.float64))
    assert represented_fraction(weight, 1.5 * scale) == 0.5
    assert represented_fraction(weight, 0.0) == 0.75
    assert represented_fraction(weight) == (0 if scale < 1e-9 else 0.75)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_smallest_number_counts(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    smallest = torch.tensor(info.tiny, dtype=dtype) * info.eps
    weight = smallest * torch.tensor([[3.0, 4.0], [0.0, 1.0]], dtype=dtype)
    assert (feature_norms(weight) / smallest).tolist() == [5, 1]
    assert represented_fraction(weight, 0.0) == 1
    assert cosine_moments(weight).mean == pytest.approx(0.8, abs=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("num_tokens", [2, 3, 128, 1000])
def test_means_exist_where_sums_do_not(num_tokens: int, dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    hidden = torch.full((2, num_tokens, 2), largest, dtype=dtype)
    hidden[0, -1, 1] = -largest
    hidden[1] = 1e-20
    means = masked_mean(hidden, torch.ones(2, num_tokens)) / largest
    assert means[0].tolist() == pytest.approx([1, 1 - 2 / num_tokens], rel=1e-5)
    tiny = masked_mean(hidden, torch.ones(2, num_tokens))[1]
    assert tiny.tolist() == pytest.approx([1e-20, 1e-20], rel=1e-5)


def test_overlap_keeps_its_cut() -> None:
    norms = torch.tensor([1, 1e300, 1e-5, 1e-7], dtype=torch.float64)
    rows = norms[:, None] * torch.eye(3, dtype=torch.float64)[[0, 0, 1, 2]]
    overlap = mean_squared_overlap(rows)
    assert overlap == pytest.approx((1 / 3, 3, 1))
    assert mean_squared_overlap(1e-200 * cloud())[1:] == (0, NUM)
    assert math.isnan(mean_squared_overlap(1e-200 * cloud()).value)
    assert_close(mean_squared_overlap(1e300 * cloud()), mean_squared_overlap(cloud()), 1e-12)


def test_rows_of_all_scales_have_the_same_cosines() -> None:
    scales = torch.logspace(-300, 300, NUM, dtype=torch.float64)[:, None]
    for name in ("cosine_moments", "cosine_distances", "mean_cosine", "max_abs_cosine"):
        assert_close(INVARIANT[name](scales * cloud()), INVARIANT[name](cloud()), 1e-12)


def test_columns_of_all_scales_have_the_same_probe() -> None:
    scales = torch.logspace(-300, 300, DIM, dtype=torch.float64)
    assert_close(probe_parts(scales * cloud()), probe_parts(cloud()), 1e-9)
    singles = torch.logspace(-100, 100, DIM, base=2)
    assert_close(probe_parts(singles * cloud().float()), probe_parts(cloud().float()), 1e-5)
