"""The packing laws against the published models, tables and constants."""

import math

import pytest
import torch
from torch import Tensor

from toolkit.functional import (
    EmbeddingDeviationResult,
    deviation_for,
    fit_packing_law,
    log10_capacity,
    log10_model_capacity,
)
from toolkit.functional.capacity import Law
from toolkit.reference import (
    ModelCapacity,
    PackingPoint,
    model_capacities,
    optimised_packing,
    random_packing,
)

PUBLISHED = [model for model in model_capacities() if model.capacity is not None]


def columns(points: list[PackingPoint]) -> tuple[Tensor, Tensor, Tensor]:
    num_vectors, dims, epsilons = zip(*points, strict=True)
    return (
        torch.tensor(num_vectors),
        torch.tensor(dims),
        torch.tensor(epsilons, dtype=torch.float64),
    )


@pytest.mark.parametrize("model", PUBLISHED, ids=lambda model: model.model)
def test_published_capacities(model: ModelCapacity) -> None:
    capacity = 10 ** log10_capacity(model.dim, model.epsilon)
    assert capacity == pytest.approx(model.capacity, rel=0.01)


@pytest.mark.parametrize(
    ("law", "constants", "capacity"),
    [("jl", {"C": 8.0}, 8.4), ("jl", {}, 277), ("full", {}, 3.99e7)],
    ids=["proved", "random", "full"],
)
def test_llama_2_7b(law: Law, constants: dict[str, float], capacity: float) -> None:
    log10 = log10_capacity(4096, 0.0645, law=law, **constants)
    assert 10**log10 == pytest.approx(capacity, rel=3e-3)


def test_ratio_law_in_closed_form() -> None:
    expected = 512 * math.exp(512 * 0.1**2 / 1.293)
    assert 10 ** log10_capacity(512, 0.1, law="ratio") == pytest.approx(expected)


@pytest.mark.parametrize("law", ["full", "ratio", "jl"])
@pytest.mark.parametrize("dim", [2, 64, 4096])
@pytest.mark.parametrize("multiple", [1.5, 20, 1e6])
def test_deviation_is_the_inverse(law: Law, dim: int, multiple: float) -> None:
    num_vectors = multiple * dim
    given: list[dict[str, float]] = [{}, {"C": 2.0}]
    for constants in given:
        epsilon = deviation_for(dim, num_vectors, law=law, **constants)
        if epsilon < 1:
            log10 = log10_capacity(dim, epsilon, law=law, **constants)
            assert log10 == pytest.approx(math.log10(num_vectors))
        else:
            # So few dimensions hold fewer directions at any deviation.
            assert num_vectors > 10 ** log10_capacity(dim, 1 - 1e-12, law=law, **constants)


@pytest.mark.parametrize(("law", "expected"), [("full", 0), ("ratio", 0), ("jl", 0.0784)])
def test_an_orthogonal_basis_deviates_under_jl_only(law: Law, expected: float) -> None:
    assert deviation_for(4096, 4096, law=law) == pytest.approx(expected, rel=0.02)
    assert deviation_for(4096, 1, law=law) == 0


def test_huge_spaces_do_not_overflow() -> None:
    log10 = log10_capacity(10**6, 0.9, law="ratio")
    assert log10 == pytest.approx(6 + 1e6 * 0.81 / 1.293 / math.log(10))
    assert math.isfinite(log10_capacity(10**9, 0.999))
    with pytest.raises(ValueError, match="dim: expected a capacity whose logarithm float64 can"):
        log10_capacity(10**400, 0.5, law="ratio")
    assert deviation_for(10**6, 10**400, law="ratio") == pytest.approx(
        math.sqrt(1.293 * 394 * math.log(10) / 1e6)
    )


@pytest.mark.parametrize(
    ("law", "points", "constants", "r2", "mape", "dropped"),
    [
        pytest.param("ratio", optimised_packing(), {"C": 1.2934}, 0.9983, 0.045, 6, id="ratio"),
        pytest.param(
            "full",
            optimised_packing(),
            {"C": 0.45809143, "a": 1.0668005, "b": 1.44738666, "c": 0.97197234},
            0.9998,
            0.018,
            6,
            id="full",
        ),
        pytest.param("jl", random_packing(), {"C": 3.0295}, 0.9985, 0.013, 0, id="jl"),
    ],
)
def test_refits_of_the_published_tables(
    law: Law,
    points: list[PackingPoint],
    constants: dict[str, float],
    r2: float,
    mape: float,
    dropped: int,
) -> None:
    fit = fit_packing_law(*columns(points), law=law)
    assert fit.constants == pytest.approx(constants, rel=3e-5 if len(constants) == 1 else 5e-6)
    assert fit.r2 == pytest.approx(r2, abs=5e-5)
    assert fit.mape == pytest.approx(mape, abs=5e-4)
    assert (fit.num_points, fit.num_dropped) == (len(points) - dropped, dropped)


@pytest.mark.parametrize("law", ["full", "ratio", "jl"])
def test_points_on_a_law_give_it_back(law: Law) -> None:
    points = [
        PackingPoint(k, d, deviation_for(d, k, law=law))
        for d in (64, 256, 1024)
        for k in (2000, 4000, 8000)
    ]
    fit = fit_packing_law(*columns(points), law=law)
    for dim, num_vectors in ((128, 3000), (2048, 10**5)):
        expected = deviation_for(dim, num_vectors, law=law)
        assert deviation_for(dim, num_vectors, law=law, **fit.constants) == pytest.approx(
            expected, rel=1e-6
        )
    assert fit.r2 == pytest.approx(1)
    assert fit.mape == pytest.approx(0, abs=1e-8)
    assert fit.nrmse == pytest.approx(0, abs=1e-8)


def test_errors_are_relative_to_the_value_and_to_the_range() -> None:
    num_vectors = torch.tensor([200.0, 200.0]).double()
    dims = torch.tensor([100.0, 100.0]).double()
    fit = fit_packing_law(num_vectors, dims, torch.tensor([0.1, 0.3]).double(), law="ratio")
    # The best single prediction is 0.2.
    assert deviation_for(100, 200, law="ratio", **fit.constants) == pytest.approx(0.2)
    assert fit[1:4] == pytest.approx((0, (1 + 1 / 3) / 2, 0.5))


def test_unusable_points_are_dropped_and_counted() -> None:
    num_vectors, dims, epsilons = columns(optimised_packing())
    bad = torch.tensor([math.nan, math.inf, 0.0, -0.1])
    fit = fit_packing_law(
        torch.cat([num_vectors, torch.full((4,), 5000)]),
        torch.cat([dims, torch.full((4,), 64)]),
        torch.cat([epsilons, bad]),
        law="ratio",
    )
    clean = fit_packing_law(num_vectors, dims, epsilons, law="ratio")
    assert fit[:4] == clean[:4]
    assert (fit.num_points, fit.num_dropped) == (160, 10)


def test_equal_deviations_have_no_r2() -> None:
    ones = torch.ones(3)
    fit = fit_packing_law(200 * ones, 100 * ones, 0.2 * ones, law="ratio")
    assert math.isnan(fit.r2)
    assert math.isnan(fit.nrmse)
    assert fit.mape == pytest.approx(0, abs=1e-7)


def test_as_many_points_as_constants_have_no_r2() -> None:
    num_vectors, dims = torch.tensor([200, 900, 4000, 2500]), torch.tensor([16, 32, 64, 48])
    pairs = zip(dims.tolist(), num_vectors.tolist(), strict=True)
    epsilons = torch.tensor([deviation_for(d, k) for d, k in pairs], dtype=torch.float64)
    fit = fit_packing_law(num_vectors, dims, epsilons, law="full")
    assert math.isnan(fit.r2)
    assert fit.mape == pytest.approx(0, abs=1e-6)
    more = fit_packing_law(num_vectors, dims, epsilons, law="ratio")
    assert math.isfinite(more.r2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_lifted_and_left_alone(dtype: torch.dtype) -> None:
    num_vectors, dims, epsilons = columns(optimised_packing())
    half = epsilons.to(dtype)
    before = half.clone()
    fit = fit_packing_law(num_vectors, dims, half, law="ratio")
    assert fit == fit_packing_law(num_vectors, dims, half.double(), law="ratio")
    assert torch.equal(half, before)


@pytest.mark.parametrize(
    ("dim", "epsilon", "constants", "message"),
    [
        (0, 0.1, {}, "dim: expected an integer of at least 1, got 0"),
        (64, 0.0, {}, "epsilon: expected a positive finite number, got 0.0"),
        (64, -0.1, {}, "epsilon: expected a positive finite number"),
        (64, 1.0, {}, r"epsilon: expected a bound on \|cos\|, which is below 1, got 1.0"),
        (64, 1.5, {}, r"epsilon: expected a bound on \|cos\|, which is below 1, got 1.5"),
        (64, math.nan, {}, "epsilon: expected a positive finite number"),
        (64, 0.1, {"C": 0.0}, "C: expected a positive finite number, got 0.0"),
        (64, 0.1, {"e": 1.0}, "e: law 'full' has the constants C, a, b, c"),
    ],
)
def test_capacity_refuses(
    dim: int, epsilon: float, constants: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        log10_capacity(dim, epsilon, law="full", **constants)


def test_deviation_refuses() -> None:
    with pytest.raises(ValueError, match="num_vectors: expected a finite number of at least 1"):
        deviation_for(64, 0.5)
    with pytest.raises(ValueError, match="dim: expected an integer"):
        deviation_for(0, 5)
    with pytest.raises(ValueError, match="a: law 'jl' has the constants C"):
        deviation_for(64, 100, law="jl", a=1.0)


@pytest.mark.parametrize(
    ("points", "law", "message"),
    [
        pytest.param(
            [PackingPoint(100, 10, 0.3)] * 3,
            "full",
            "epsilons: expected at least 4 usable points for law 'full', got 3 of 3",
            id="few",
        ),
        pytest.param(
            [PackingPoint(5, 10, 0.3)],
            "ratio",
            "epsilons: expected at least 1 usable points",
            id="k_below_d",
        ),
        pytest.param(
            [PackingPoint(100, 10, 0.3)] * 5,
            "full",
            "dims: expected at least 2 different dimensions",
            id="one_dimension",
        ),
    ],
)
def test_fit_refuses(points: list[PackingPoint], law: Law, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_packing_law(*columns(points), law=law)


def test_fit_refuses_columns_of_other_lengths() -> None:
    with pytest.raises(ValueError, match="epsilons: expected columns of one length"):
        fit_packing_law(torch.ones(2), torch.ones(2), torch.ones(3), law="ratio")
    with pytest.raises(ValueError, match="dims: expected 1 dimensions"):
        fit_packing_law(torch.ones(2), torch.ones(2, 2), torch.ones(2), law="ratio")


def test_a_models_capacity_is_the_full_laws_where_it_means_something() -> None:
    deviation = EmbeddingDeviationResult(0.0645, 0.0, 0.03225, 2, 32000, 0)
    assert log10_model_capacity(deviation, 4096) == log10_capacity(4096, 0.0645)
    between = deviation._replace(epsilon=0.15, model_class=None)
    assert log10_model_capacity(between, 4096) == log10_capacity(4096, 0.15)
    for unknown in (
        deviation._replace(epsilon=0.3, model_class=1),
        deviation._replace(epsilon=0.0),
        deviation._replace(epsilon=1.0, model_class=None),
        deviation._replace(epsilon=math.nan, model_class=None),
    ):
        assert math.isnan(log10_model_capacity(unknown, 4096))
