"""Intervals: what goes in is known, so that their width is known too."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from toolkit.functional import (
    IntervalResult,
    bootstrap_packing_law,
    deviation_for,
    deviation_interval,
    fit_packing_law,
    log10_capacity,
    log10_capacity_interval,
    percentile_interval,
)
from toolkit.functional.capacity import Law
from toolkit.reference import optimised_packing

DIMS = [32, 64, 128, 256, 512]
RATIOS = [2.0, 5.0, 20.0, 100.0, 500.0, 1000.0, 4000.0]


def points(law: Law, noise: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Points on a published law, each off by a normal share."""
    pairs = [(ratio * dim, dim) for dim in DIMS for ratio in RATIOS]
    exact = np.array([deviation_for(dim, count, law=law) for count, dim in pairs])
    exact *= 1 + noise * np.random.default_rng(seed).standard_normal(len(pairs))
    counts, dims = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    return counts, dims, torch.from_numpy(exact)


@pytest.mark.parametrize("law", ["full", "ratio", "jl"])
def test_exact_points_leave_no_spread(law: Law) -> None:
    for name, values in bootstrap_packing_law(*points(law, 0.0), law=law, num_resamples=4).items():
        expected = {"C": {"full": 0.45809143, "ratio": 1.293, "jl": 3.029}[law]}
        expected |= {"a": 1.0668005, "b": 1.44738666, "c": 0.97197234}
        assert values.dtype == torch.float64
        assert values.tolist() == pytest.approx([expected[name]] * 4, rel=1e-5)


@pytest.mark.parametrize("law", ["full", "ratio", "jl"])
def test_each_resample_is_the_fit_of_its_draw(law: Law) -> None:
    columns = points(law, 0.05)
    resamples = bootstrap_packing_law(*columns, law=law, num_resamples=6)
    draws = torch.randint(35, (12, 35), generator=torch.Generator().manual_seed(0))
    for i in range(6):
        fit = fit_packing_law(*(column[draws[i]] for column in columns), law=law)
        constants = {name: values[i].item() for name, values in resamples.items()}
        assert constants == pytest.approx(fit.constants, rel=1e-5)


def test_spread_is_that_of_fits_to_new_points() -> None:
    """The bootstrap from one sample against the scatter over many samples."""
    fresh = [
        bootstrap_packing_law(*points("ratio", 0.03, seed), law="ratio", num_resamples=50)["C"]
        for seed in range(20)
    ]
    spread = torch.stack([values.mean() for values in fresh]).std().item()
    estimate = torch.stack([values.std() for values in fresh]).mean().item()
    assert 0.7 < estimate / spread < 1.4


def test_resamples_are_those_of_the_generator() -> None:
    columns = points("jl", 0.02)
    first = bootstrap_packing_law(*columns, law="jl", num_resamples=5)["C"]
    seeded = torch.Generator().manual_seed(0)
    again = bootstrap_packing_law(*columns, law="jl", num_resamples=5, generator=seeded)["C"]
    other = bootstrap_packing_law(*columns, law="jl", num_resamples=5, generator=seeded)["C"]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_draws_without_a_second_dimension_are_left_out() -> None:
    columns = points("full", 0.01)
    # Two of nine points have another dimension: every tenth draw misses both.
    some = [column[:9] for column in columns]
    resamples = bootstrap_packing_law(*some, law="full", num_resamples=30)
    assert all(torch.isfinite(values).all() for values in resamples.values())
    assert len(resamples["c"]) == 30


def misfit_angle(constants: Tensor, columns: list[Tensor]) -> float:
    """Largest |cos| between the full law's residual and its slopes: 0 at the least squares."""
    counts, dims, observed = columns
    logs = constants.log().requires_grad_()
    factor, a, b, c = logs.exp()
    predicted = (factor * (counts**a / dims).log() ** b / dims**c).sqrt()
    slopes = torch.stack([torch.autograd.grad(p, logs, retain_graph=True)[0] for p in predicted])
    residual = (predicted - observed).detach()
    return float(torch.cosine_similarity(slopes, residual[:, None], dim=0).abs().max())


def test_draws_whose_fit_has_not_converged_are_left_out() -> None:
    # Points this far from the law: one of the first eight fits is still moving after its steps.
    columns = list(points("full", 0.12))
    resamples = bootstrap_packing_law(*columns, law="full", num_resamples=8)
    draws = torch.randint(35, (16, 35), generator=torch.Generator().manual_seed(0))
    drawn = [[column[draw] for column in columns] for draw in draws]
    fits = torch.stack(list(resamples.values()), 1)
    angles = [min(misfit_angle(constants, own) for own in drawn) for constants in fits]
    assert len(angles) == 8
    assert max(angles) < 1e-8


def test_published_constants_lie_inside_their_interval() -> None:
    columns = [
        torch.tensor(column, dtype=torch.float64)
        for column in zip(*optimised_packing(), strict=True)
    ]
    low, high = percentile_interval(
        bootstrap_packing_law(*columns, law="ratio", num_resamples=400)["C"].tolist()
    )
    assert 1.26 < low < 1.2934 < high < 1.32


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_percentiles_leave_the_same_share_on_both_sides(level: float) -> None:
    values = torch.arange(1001).tolist()
    expected = (500 - 500 * level, 500 + 500 * level)
    assert percentile_interval(reversed(values), level=level) == pytest.approx(expected)


def test_rounding_of_epsilon_alone() -> None:
    constants = {"C": torch.full((4000,), 1.293, dtype=torch.float64)}
    low, high = log10_capacity_interval(
        512, 0.08, constants, law="ratio", rounding=0.005, level=0.9
    )
    # Capacities rise with epsilon, so quantiles are those of a uniform epsilon.
    assert low == pytest.approx(log10_capacity(512, 0.0755, law="ratio"), abs=0.01)
    assert high == pytest.approx(log10_capacity(512, 0.0845, law="ratio"), abs=0.01)


def test_standard_error_of_epsilon_alone() -> None:
    constants = {"C": torch.full((4000,), 3.0, dtype=torch.float64)}
    low, high = log10_capacity_interval(256, 0.3, constants, law="jl", stderr=0.01)
    for end, epsilon in ((low, 0.3 - 0.0196), (high, 0.3 + 0.0196)):
        assert end == pytest.approx(log10_capacity(256, epsilon, law="jl", C=3.0), rel=0.01)


def test_an_error_larger_than_epsilon_still_has_an_interval() -> None:
    constants = {"C": torch.full((100,), 1.3, dtype=torch.float64)}
    low, high = log10_capacity_interval(64, 0.01, constants, law="ratio", stderr=0.05)
    assert low == pytest.approx(math.log10(64))
    assert high > low


def test_draws_beyond_1_count_as_almost_1() -> None:
    constants = {"C": torch.full((100,), 1.3, dtype=torch.float64)}
    low, high = log10_capacity_interval(64, 0.99, constants, law="ratio", stderr=0.05)
    assert low < high == pytest.approx(log10_capacity(64, 1 - 1e-12, law="ratio", C=1.3))
    with pytest.raises(ValueError, match=r"epsilon: expected a bound on \|cos\|, .*, got 1.5"):
        log10_capacity_interval(64, 1.5, constants, law="ratio")


def test_constants_alone() -> None:
    constants = {"C": torch.linspace(1.2, 1.4, 201, dtype=torch.float64)}
    low, high = log10_capacity_interval(512, 0.08, constants, law="ratio", level=0.9)
    assert low == pytest.approx(log10_capacity(512, 0.08, law="ratio", C=1.39))
    assert high == pytest.approx(log10_capacity(512, 0.08, law="ratio", C=1.21))
    low, high = deviation_interval(512, 1e5, constants, law="ratio", level=0.9)
    assert low == pytest.approx(deviation_for(512, 1e5, law="ratio", C=1.21))
    assert high == pytest.approx(deviation_for(512, 1e5, law="ratio", C=1.39))


CONSTANTS = {"C": torch.ones(3, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rounding": -1.0}, "rounding: expected a finite number of at least 0, got -1.0"),
        ({"stderr": math.nan}, "stderr: expected a finite number of at least 0, got nan"),
        ({"level": 1.0}, "level: expected a share above 0 and below 1, got 1.0"),
        ({"epsilon": 0.0}, "epsilon: expected a positive finite number"),
        ({"dim": 0}, "dim: expected an integer of at least 1"),
        ({"constants": {"q": torch.ones(2).double()}}, "constants: expected C of law"),
    ],
)
def test_bad_questions_are_refused(options: dict[str, Any], match: str) -> None:
    arguments: dict[str, Any] = {"dim": 8, "epsilon": 0.1, "constants": CONSTANTS, "law": "jl"}
    with pytest.raises(ValueError, match=match):
        log10_capacity_interval(**{**arguments, **options})


def test_bad_points_are_refused() -> None:
    columns = points("ratio", 0.01)
    with pytest.raises(ValueError, match="num_resamples: expected an integer of at least 2, got 1"):
        bootstrap_packing_law(*columns, law="ratio", num_resamples=1)
    most = "num_resamples: expected an integer from 2 to 1,000,000, got 1000001"
    with pytest.raises(ValueError, match=most):
        bootstrap_packing_law(*columns, law="ratio", num_resamples=1_000_001)
    with pytest.raises(ValueError, match="epsilons: expected at least 4 usable points"):
        bootstrap_packing_law(*(column[:3] for column in columns), law="full")
    # Nearly all draws of these five points lack one that the four constants need.
    few = [column[[0, 1, 2, 3, 7]] for column in columns]
    with pytest.raises(ValueError, match=r"only \d of 20 resamples could be fitted"):
        bootstrap_packing_law(*few, law="full", num_resamples=10)
    # Deviations that rise with d have a negative exponent c.
    backwards = (columns[0], columns[1], columns[2] * columns[1])
    with pytest.raises(ValueError, match="expected points near law 'full', got the constants"):
        bootstrap_packing_law(*backwards, law="full")
    with pytest.raises(ValueError, match="num_vectors: expected a finite number of at least 1"):
        deviation_interval(8, 0.5, CONSTANTS, law="jl")
    with pytest.raises(ValueError, match="values: expected at least one number, got"):
        percentile_interval([])


def test_inputs_stay_as_they_are() -> None:
    columns = points("ratio", 0.01)
    kept = [column.clone() for column in columns]
    bootstrap_packing_law(*columns, law="ratio", num_resamples=2)
    assert all(map(torch.equal, columns, kept))
    assert isinstance(deviation_interval(8, 9.0, CONSTANTS, law="jl"), IntervalResult)
