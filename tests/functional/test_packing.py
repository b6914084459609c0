"""The Gram penalty against float64 autograd, closed forms and published values."""

import math
import resource
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from toolkit.functional import (
    gram_penalty,
    gram_penalty_with_max,
    max_abs_cosine,
    published_exponent,
    random_max_abs_cosine,
    welch_bound,
)
from toolkit.functional._gram import _CPU_TILE
from toolkit.reference import random_packing

EXPONENTS = [2, 3, 7, 8, 20, 51, 150, 400, 2.5, 33.3]


def oracle(vectors: Tensor, exponent: float) -> tuple[Tensor, Tensor]:
    """The p-norm by its definition and its gradient by autograd, in float64."""
    rows = vectors.detach().double().requires_grad_()
    units = rows / rows.norm(dim=1, keepdim=True)
    cosines = (units @ units.T)[~torch.eye(len(rows), dtype=torch.bool)].abs()
    scale = cosines.detach().max()
    value = scale * ((cosines / scale) ** exponent).sum() ** (1 / exponent)
    (gradient,) = torch.autograd.grad(value, rows)
    return value.detach(), gradient


def ours(vectors: Tensor, exponent: float, scale: float | None = None) -> tuple[Tensor, Tensor]:
    rows = vectors.detach().clone().requires_grad_()
    value = gram_penalty(rows, exponent, scale=scale)
    (gradient,) = torch.autograd.grad(value, rows)
    return value.detach(), gradient


def error(value: Tensor, expected: Tensor) -> float:
    return float((value.double() - expected).norm() / expected.norm())


def random_rows(num: int, dim: int, generator: torch.Generator) -> Tensor:
    rows = torch.randn(num, dim, generator=generator, dtype=torch.float64)
    return rows * torch.linspace(0.5, 3, num)[:, None]


def simplex(dim: int) -> Tensor:
    """d + 1 vectors in d dimensions, all cosines -1/d."""
    centred = torch.eye(dim + 1, dtype=torch.float64) - 1 / (dim + 1)
    vectors: Tensor = centred @ torch.linalg.svd(centred).Vh[:dim].T
    return vectors


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize(
    ("num", "dim"),
    [
        pytest.param(41, 5, id="part_of_a_tile"),
        pytest.param(_CPU_TILE, 3, id="one_tile"),
        pytest.param(2 * _CPU_TILE + 7, 6, id="uneven_tiles"),
        pytest.param(9, 30, id="fewer_than_dims"),
        pytest.param(20, 1, id="line"),
    ],
)
def test_gradient_is_that_of_float64_autograd(
    num: int, dim: int, exponent: float, generator: torch.Generator
) -> None:
    rows = random_rows(num, dim, generator)
    value, gradient = oracle(rows, exponent)
    exact, closed = ours(rows, exponent)
    assert exact.item() == pytest.approx(value.item(), rel=1e-12)
    # Powers multiply the rounding of a cosine by the exponent; on a line nothing can move.
    tolerance = 1e-14 * (1 + exponent) * gradient.norm() + 1e-13
    assert (closed - gradient).norm() <= tolerance
    single = rows.float()
    value, gradient = oracle(single, exponent)
    exact, closed = ours(single, exponent)
    assert exact.item() == pytest.approx(value.item(), rel=3e-6)
    assert (closed - gradient).norm() <= 5e-7 * (1 + exponent) * gradient.norm() + 3e-6


@pytest.mark.parametrize("scale", [None, 0.0, 1e-300, 1e-30, 1e-3, 0.7, 40.0, 1e30, 1e300])
@pytest.mark.parametrize("exponent", [2, 9, 150, 7.5])
def test_any_scale_gives_the_same(
    scale: float | None, exponent: float, generator: torch.Generator
) -> None:
    rows = random_rows(50, 7, generator).float()
    value, gradient = oracle(rows, exponent)
    scaled, closed = ours(rows, exponent, scale)
    assert scaled.item() == pytest.approx(value.item(), rel=2e-6)
    assert error(closed, gradient) < 2e-7 * (1 + exponent)
    tensor = None if scale is None else torch.tensor(scale, dtype=torch.float64)
    assert gram_penalty(rows, exponent, scale=tensor) == scaled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_largest_exponent(dtype: torch.dtype, generator: torch.Generator) -> None:
    """Against logsumexp; float32 overflows from about 1e8 on, first for rows nearly alike."""
    apart = torch.randn(30, 12, generator=generator).to(dtype)
    alike = torch.randn(1, 700, generator=generator) + 1e-5 * torch.randn(
        40, 700, generator=generator
    )
    for rows in (apart, alike.to(dtype)):
        units = rows.double() / rows.double().norm(dim=1, keepdim=True)
        logs = (units @ units.T)[~torch.eye(len(rows), dtype=torch.bool)].abs().log()
        expected = float((torch.logsumexp(1e6 * logs, 0) / 1e6).exp())
        value, gradient = ours(rows, 1_000_000)
        assert value.item() == pytest.approx(expected, rel=3e-7 if dtype == torch.float32 else 1e-9)
        assert bool(torch.isfinite(gradient).all())
    _, exact = oracle(apart, 1e6)
    # One pair has all the weight, whatever rounding does to the others.
    assert error(ours(apart, 1e6)[1], exact) < (1e-5 if dtype == torch.float32 else 1e-8)


@pytest.mark.parametrize("exponent", [1_000_001, 1e9, 1e12, 2**63])
def test_larger_exponents_are_refused(exponent: float) -> None:
    for penalty in (gram_penalty, gram_penalty_with_max):
        with pytest.raises(ValueError, match=r"^exponent: expected a number from 2 to 1,000,000,"):
            penalty(torch.eye(3), exponent)


def test_paper_sum_is_a_power_of_the_norm(generator: torch.Generator) -> None:
    rows = random_rows(30, 4, generator)
    units = (rows / rows.norm(dim=1, keepdim=True)).numpy()
    gram = units @ units.T
    paper = (np.abs(gram - np.diag(np.diag(gram))) ** 7).sum()
    assert (gram_penalty(rows, 7) ** 7).item() == pytest.approx(paper, rel=1e-12)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("dim", [2, 9])
def test_simplex_is_a_minimum(dim: int, exponent: float) -> None:
    num_pairs = (dim + 1) * dim
    value, gradient = ours(simplex(dim), exponent)
    assert value.item() == pytest.approx(num_pairs ** (1 / exponent) / dim, rel=1e-12)
    assert gradient.norm() < 1e-11
    assert max_abs_cosine(simplex(dim)) == pytest.approx(welch_bound(dim + 1, dim), rel=1e-12)


@pytest.mark.parametrize("num", [2, 5])
def test_orthogonal_vectors_cost_nothing(num: int) -> None:
    value, gradient = ours(torch.eye(num, 5) * 3, 20, scale=0.1)
    assert value == 0
    assert torch.equal(gradient, torch.zeros(num, 5))
    assert max_abs_cosine(torch.eye(num, 5)) == 0


def test_descent_makes_few_vectors_orthogonal(generator: torch.Generator) -> None:
    rows = torch.randn(6, 8, generator=generator, dtype=torch.float64).requires_grad_()
    for _ in range(200):
        (gradient,) = torch.autograd.grad(gram_penalty(rows, 2) ** 2, rows)
        rows.data -= 0.5 * gradient
    assert gram_penalty(rows, 2).item() < 1e-8


@pytest.mark.parametrize("exponent", [2, 3, 20, 151])
def test_equal_and_opposite_rows(exponent: float, generator: torch.Generator) -> None:
    rows = random_rows(12, 4, generator)
    rows = torch.cat([rows, 2 * rows[:3], -rows[3:5]])
    value, gradient = oracle(rows, exponent)
    exact, closed = ours(rows, exponent)
    assert exact.item() == pytest.approx(value.item(), rel=1e-12)
    assert (closed - gradient).norm() <= 1e-13 * (1 + exponent)
    assert max_abs_cosine(rows.float()) == 1.0


def test_invariances(generator: torch.Generator) -> None:
    rows = random_rows(25, 6, generator)
    value, gradient = ours(rows, 15)
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64)).Q
    order = torch.randperm(25, generator=generator)
    signs = torch.randint(2, (25, 1), generator=generator) * 2 - 1
    for changed, expected in (
        (rows @ rotation, gradient @ rotation),
        (rows[order], gradient[order]),
        (rows * signs, gradient * signs),
        (rows * 1e100, gradient * 1e-100),
    ):
        same, moved = ours(changed, 15)
        assert same.item() == pytest.approx(value.item(), rel=1e-12)
        torch.testing.assert_close(moved, expected, rtol=1e-10, atol=0)
    # Moving a vector along itself changes nothing.
    assert (gradient * rows).sum(1).abs().max() < 1e-15


def test_bounds_the_largest_cosine_more_tightly_with_the_exponent(
    generator: torch.Generator,
) -> None:
    rows = random_rows(60, 8, generator)
    units = rows / rows.norm(dim=1, keepdim=True)
    largest = (units @ units.T).fill_diagonal_(0).abs().max().item()
    penalties = [gram_penalty_with_max(rows, exponent) for exponent in (2, 8, 40, 400)]
    norms = [penalty.item() for penalty, _ in penalties]
    assert norms == sorted(norms, reverse=True)
    assert largest <= norms[-1] < 1.02 * largest
    for _, measured in penalties:
        assert measured.item() == pytest.approx(largest, rel=1e-12)
        assert not measured.requires_grad
    assert max_abs_cosine(rows) == pytest.approx(largest, rel=1e-12)
    assert max_abs_cosine(rows.float()) == pytest.approx(largest, rel=1e-6)


def test_backward_scales_and_goes_on_from_earlier_layers(generator: torch.Generator) -> None:
    rows = random_rows(10, 3, generator).requires_grad_()
    torch.autograd.backward(3 * gram_penalty(2 * rows, 6))
    # In units of |cos| the doubled rows have half the gradient.
    torch.testing.assert_close(rows.grad, 3 * ours(rows, 6)[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_lifted(dtype: torch.dtype, generator: torch.Generator) -> None:
    rows = random_rows(40, 5, generator).to(dtype).requires_grad_()
    value = gram_penalty(rows, 20)
    assert value.dtype == torch.float32
    torch.autograd.backward(value)
    assert rows.grad is not None
    assert rows.grad.dtype == dtype
    lifted, gradient = ours(rows.float(), 20)
    assert value == lifted
    assert torch.equal(rows.grad, gradient.to(dtype))
    assert max_abs_cosine(rows) == max_abs_cosine(rows.float())


def test_autocast_changes_nothing(generator: torch.Generator) -> None:
    rows = random_rows(40, 5, generator).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = ours(rows, 20)
    assert all(map(torch.equal, inside, ours(rows, 20)))


def test_inputs_stay_as_they_are(generator: torch.Generator) -> None:
    rows = random_rows(30, 4, generator)
    kept = rows.clone()
    ours(rows, 21)
    max_abs_cosine(rows)
    assert torch.equal(rows, kept)


def test_memory_does_not_hold_the_gram_matrix() -> None:
    rows = torch.randn(8_000, 2, generator=torch.Generator().manual_seed(0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours(rows, 3, scale=1.0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    # The Gram matrix alone would be 244 MiB.
    assert grown < 60


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (torch.ones(1, 3), "vectors: expected at least 2 rows, got 1"),
        (torch.ones(4), "vectors: expected 2 dimensions"),
        (torch.eye(3) * torch.tensor([[1.0], [0.0], [0.0]]), "got 2 of 3 with norm 0"),
        (torch.tensor([[1.0], [math.nan]]), "vectors: expected finite values, got 1 non-finite"),
        (torch.ones(2, 2, dtype=torch.complex64), "vectors: expected real numbers"),
        (
            torch.tensor([[1.5e308, 1.5e308], [1.0, 1.0]], dtype=torch.float64),
            "got 1 of 2 with norm 0 or beyond",
        ),
    ],
)
def test_bad_vectors_are_refused(rows: Tensor, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        gram_penalty(rows, 8)
    with pytest.raises(ValueError, match=match):
        max_abs_cosine(rows)


def test_other_bad_arguments_are_refused() -> None:
    rows = torch.eye(3)
    for exponent in (1, 1.99, -3, math.inf, math.nan, True):
        with pytest.raises(ValueError, match="exponent: expected a finite number of at least 2"):
            gram_penalty(rows, exponent)
    for scale in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="scale: expected a finite number of at least 0"):
            gram_penalty(rows, 8, scale=scale)


def test_random_baseline_is_the_smallest_of_the_draws() -> None:
    num, dim = 500, 12
    generator = torch.Generator().manual_seed(3)
    largest = [max_abs_cosine(torch.randn(num, dim, generator=generator)) for _ in range(8)]
    for num_draws in (1, 3, 8):
        generator = torch.Generator().manual_seed(3)
        best = random_max_abs_cosine(num, dim, num_draws=num_draws, generator=generator)
        assert best == min(largest[:num_draws])
    assert random_max_abs_cosine(9, 4) == random_max_abs_cosine(9, 4)


@pytest.mark.slow
def test_random_baseline_reaches_the_published_table() -> None:
    point = random_packing()[0]
    best = random_max_abs_cosine(point.num_vectors, point.dim, num_draws=1000)
    assert best == pytest.approx(point.max_abs_cosine, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"num_vectors": 1}, "num_vectors: expected an integer of at least 2, got 1"),
        ({"dim": 0}, "dim: expected an integer of at least 1, got 0"),
        ({"num_draws": 0}, "num_draws: expected an integer of at least 1, got 0"),
        (
            {"num_draws": 1_000_001},
            "num_draws: expected an integer from 1 to 1,000,000, got 1000001",
        ),
    ],
)
def test_bad_random_baselines_are_refused(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        random_max_abs_cosine(**{"num_vectors": 3, "dim": 2, **arguments})


@pytest.mark.parametrize(
    ("num_vectors", "dim", "expected"),
    [(2000, 32, 11), (4000, 64, 9), (4000, 2, 20), (32000, 32, 17), (32000, 3072, 6)],
)
def test_published_exponent(num_vectors: int, dim: int, expected: int) -> None:
    assert published_exponent(num_vectors, dim) == expected


@pytest.mark.parametrize(("num_vectors", "dim", "name"), [(0, 3, "num_vectors"), (3, 1, "dim")])
def test_published_exponent_needs_a_logarithm(num_vectors: int, dim: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected an integer"):
        published_exponent(num_vectors, dim)


@pytest.mark.parametrize(
    ("num_vectors", "dim", "expected"),
    [
        pytest.param(3, 2, 0.5, id="hexagon"),
        pytest.param(4, 3, 1 / 3, id="simplex"),
        pytest.param(28, 7, 1 / 3, id="equiangular_lines"),
        pytest.param(2000, 32, 0.1754, id="published_table"),
        pytest.param(7, 7, 0.0, id="basis"),
        pytest.param(1, 1, 0.0, id="one_vector"),
        pytest.param(10**9, 1, 1.0, id="line"),
    ],
)
def test_bound(num_vectors: int, dim: int, expected: float) -> None:
    assert welch_bound(num_vectors, dim) == pytest.approx(expected, abs=5e-5)


def test_bound_tends_to_one_over_root_d() -> None:
    assert welch_bound(10**12, 64) == pytest.approx(1 / math.sqrt(64), rel=1e-9)


@pytest.mark.parametrize(
    ("num_vectors", "dim", "name"), [(0, 3, "num_vectors"), (3, 0, "dim"), (3, -1, "dim")]
)
def test_bad_counts_are_refused(num_vectors: int, dim: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected an integer of at least 1"):
        welch_bound(num_vectors, dim)
