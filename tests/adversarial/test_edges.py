"""Right calls at the edge of what is accepted, by values known in closed form."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from callbacks import SubspacePGA
from tests.adversarial.bad_values import BEYOND
from toolkit import functional as F
from toolkit.data import ExponentialFrequencies, LinearFrequencies, PowerFrequencies
from toolkit.models import VectorPacking

MOST = 2**53 - 1  # the largest integer that is accepted where an array could depend on it
ONE_HOT = torch.eye(4)
LINE = torch.tensor([[1.0, 0.0], [2.0, 0.0], [-3.0, 0.0]])
NO_CELLS = torch.zeros(0, dtype=torch.int64)
ROWS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
PAIR = torch.tensor([[3.0, 4.0], [4.0, 3.0]])  # cosine 24/25

# Name: call, value, tolerance.
EDGES: dict[str, tuple[Callable[[], Any], Any]] = {
    "welch, as many vectors as dimensions": (lambda: F.welch_bound(3, 3), 0.0),
    "welch, one vector": (lambda: F.welch_bound(1, 1), 0.0),
    "welch, a line": (lambda: F.welch_bound(2, 1), 1.0),
    "welch, numbers beyond float64": (lambda: F.welch_bound(10**400, 3), math.sqrt(1 / 3)),
    "exponent, smallest dimension": (lambda: F.published_exponent(1, 2), 20),
    "capacity, one dimension": (
        lambda: F.log10_capacity(1, 0.5, law="ratio", C=1.0),
        0.25 / math.log(10),
    ),
    "capacity, numpy's numbers": (
        lambda: F.log10_capacity(100, np.float32(0.5), law="jl", C=np.int64(1)),  # type: ignore[arg-type]
        25 / math.log(10),
    ),
    "capacity, a fraction": (
        lambda: F.log10_capacity(100, Fraction(1, 2), law="jl", C=1.0),  # type: ignore[arg-type]
        25 / math.log(10),
    ),
    "deviation, one vector": (lambda: F.deviation_for(1, 1, law="jl"), 0.0),
    "deviation, k = d": (lambda: F.deviation_for(64, 64), 0.0),
    "deviation, whole numbers beyond float64": (
        lambda: F.deviation_for(100, 10**400, law="jl", C=1.0),
        math.sqrt(4 * math.log(10)),
    ),
    "interval of one value": (lambda: F.percentile_interval([2]), F.IntervalResult(2.0, 2.0)),
    "interval of a range": (lambda: F.percentile_interval(range(5), level=0.5).low, 1.0),
    "interval of an array": (lambda: F.percentile_interval(np.arange(5), level=0.5).high, 3.0),
    "ranks of one value": (lambda: F.average_ranks(torch.tensor([7])).tolist(), [1.0]),
    "ranks of zeros of both signs": (
        lambda: F.average_ranks(torch.tensor([0.0, -0.0])).tolist(),
        [1.5, 1.5],
    ),
    "rank correlation of two": (lambda: float(F.spearman(ONE_HOT[0, :2], PAIR[0])), -1.0),
    "rank correlation of a constant": (
        lambda: float(F.spearman(PAIR[0], ONE_HOT[0, 2:])),
        math.nan,
    ),
    "moments of two rows": (
        lambda: F.cosine_moments(PAIR.long()),
        F.CosineMomentsResult(0.96, 0.0, 1, 0),
    ),
    "moments, one dimension": (
        lambda: F.cosine_moments(torch.tensor([[1.0], [1.0], [-2.0]])).mean,
        -1 / 3,
    ),
    "moments, chunks of one row": (lambda: F.cosine_moments(ONE_HOT, chunk_size=1).mean, 0.0),
    "moments, one chunk": (lambda: F.cosine_moments(ONE_HOT, chunk_size=MOST).mean, 0.0),
    "histogram, one chunk": (
        lambda: list(F.cosine_histogram(ONE_HOT, num_bins=4, chunk_size=MOST).counts),
        [0, 0, 6, 0],
    ),
    "mean |cos|, one chunk": (lambda: F.mean_abs_cosine(PAIR, chunk_size=MOST).value, 0.96),
    "distances, one chunk": (lambda: F.cosine_distances(PAIR, chunk_size=MOST).tolist(), [0.04]),
    "jackknife, more blocks than rows": (
        lambda: F.deviation_stderr(ROWS, num_blocks=MOST) / F.deviation_stderr(ROWS, num_blocks=7),
        1.0,
    ),
    "loss, a huge batch": (
        # One cell of 2 in 2^53 - 1 samples, without weights: 4 / (2^53 - 1).
        lambda: (
            MOST
            * float(
                F.reconstruction_loss(
                    torch.zeros(3, 1),
                    torch.zeros(3),
                    F.cell_layout(
                        torch.tensor([MOST - 1]), torch.tensor([1]), torch.ones(1) * 2, MOST
                    ),
                )
            )
        ),
        4.0,
    ),
    "histogram, one bin": (lambda: list(F.cosine_histogram(PAIR, num_bins=1).counts), [1]),
    "histogram of opposite rows": (
        lambda: list(F.cosine_histogram(torch.tensor([[1.0], [-1.0]]), num_bins=2).counts),
        [1, 0],
    ),
    "epsilon without sigma": (lambda: F.embedding_deviation(PAIR, num_sigma=0).epsilon, 0.96),
    "distances of two rows": (lambda: F.cosine_distances(PAIR).tolist(), [0.04]),
    "largest cosine of parallel rows": (lambda: F.max_abs_cosine(LINE), 1.0),
    "penalty of orthogonal rows": (lambda: float(F.gram_penalty(ONE_HOT, 2)), 0.0),
    "penalty with a scale far off": (
        lambda: float(F.gram_penalty(PAIR.double(), 2, scale=1e300)),
        0.96 * math.sqrt(2),
    ),
    "penalty with scale 0": (
        lambda: float(F.gram_penalty(PAIR.double(), 2, scale=torch.tensor(0.0))),
        0.96 * math.sqrt(2),
    ),
    "basis of the whole space": (lambda: abs(float(F.readout_basis(ONE_HOT, 4).det())), 1.0),
    "random basis of a line": (
        lambda: float(F.haar_bases(1, 1, 1, generator=torch.Generator()).abs()),
        1.0,
    ),
    "nothing removed": (lambda: F.remove_components(PAIR, 0).sum(0).tolist(), [0.0, 0.0]),
    "no distance to orthonormal rows": (lambda: F.mean_squared_overlap(ONE_HOT).value, 0.0),
    "overlap of a single feature": (lambda: F.mean_squared_overlap(ONE_HOT[:1]).value, math.nan),
    "threshold 0": (lambda: F.represented_fraction(LINE * 0, 0), 0.0),
    "threshold just met": (lambda: F.represented_fraction(ONE_HOT, 1), 0.0),
    "rank of a line": (lambda: float(F.rankme(LINE)), math.exp(1e-7 * (math.log(1e7) - 1))),
    "participation of a line": (lambda: float(F.participation_ratio(LINE)), 1.0),
    "rank of nothing": (lambda: float(F.rankme(LINE * 0)), math.nan),
    "condition without full rank": (lambda: float(F.condition_number(LINE)), math.inf),
    "last token of one": (
        lambda: list(F.last_token(PAIR[None], torch.tensor([[1, 0]]))[0]),
        [3.0, 4.0],
    ),
    "mean of one token": (
        lambda: list(F.masked_mean(PAIR[None], torch.tensor([[0, 1]]))[0]),
        [4.0, 3.0],
    ),
    "loss of doing nothing": (
        lambda: F.weak_superposition_loss(torch.tensor([1.0]), [0, 1, 9]).tolist(),
        [4 / 3, 0.0, 0.0],
    ),
    "strong exponent, even": (lambda: F.strong_superposition_exponent(None), 1.0),
    "strong exponent, zero": (lambda: F.strong_superposition_exponent(0), 1.0),
    "power law through two points": (
        lambda: F.fit_power_law(torch.tensor([1, 2]), torch.tensor([4, 1])).exponent,
        2.0,
    ),
    "slopes of one point": (lambda: F.local_slopes(torch.ones(1), torch.ones(1)).tolist(), []),
    "guide through one point": (
        lambda: F.slope_guide(torch.ones(1), torch.full((1,), 5.0), 100).tolist(),
        [5.0],
    ),
    "batch without an active cell": (
        lambda: float(
            F.reconstruction_loss(
                torch.ones(2, 1),
                torch.tensor([3.0, -1.0]),
                F.cell_layout(NO_CELLS, NO_CELLS, torch.zeros(0), 5),
            )
        ),
        9.0,
    ),
    "random packing, a line": (lambda: F.random_max_abs_cosine(2, 1, num_draws=1), 1.0),
    "frequency of a single feature": (lambda: PowerFrequencies(0).probabilities(1).tolist(), [1.0]),
    "density of one for each": (
        lambda: PowerFrequencies(0).probabilities(3, density=3).tolist(),
        [1.0, 1.0, 1.0],
    ),
    "steep frequencies": (
        lambda: ExponentialFrequencies(1e-6).probabilities(3).tolist(),
        [1.0, 0.0, 0.0],
    ),
    "linear, two features": (lambda: LinearFrequencies().probabilities(2).tolist(), [1.0, 0.0]),
    "packing, constant exponent": (
        lambda: VectorPacking(2, 1, exponent=(6, 6)).exponents,
        (6.0, 6.0),
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_edge(name: str) -> None:
    call, value = EDGES[name]
    assert call() == pytest.approx(value, rel=1e-6, abs=1e-7, nan_ok=True)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_any_integers_are_taken(dtype: torch.dtype) -> None:
    rows = torch.tensor([[3, 4], [4, 3], [5, 0]], dtype=dtype)
    assert F.cosine_moments(rows).mean == pytest.approx((0.96 + 0.6 + 0.8) / 3)
    assert F.feature_norms(rows).tolist() == [5, 5, 5]


@pytest.mark.parametrize("value", [-1.0, 0.0, 2.0, float("nan")])
def test_the_same_generator_gives_the_same_refusal_and_is_left_alone(value: float) -> None:
    generator = torch.Generator().manual_seed(3)
    before = generator.get_state()
    with pytest.raises(ValueError, match=r"^level: expected a share above 0 and below 1"):
        F.log10_capacity_interval(
            64,
            0.1,
            {"C": torch.ones(3)},
            law="jl",
            level=value,
            generator=generator,
        )
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("scalar", [torch.tensor(2.0), np.array(2.0), np.float64(2.0)], ids=repr)
def test_interval_of_a_single_number_is_refused(scalar: Any) -> None:
    with pytest.raises(ValueError, match=r"^values: expected at least one number, got "):
        F.percentile_interval(scalar)


@pytest.mark.parametrize("number", BEYOND.values(), ids=BEYOND)
def test_integers_that_arrays_cannot_hold(number: int) -> None:
    limit = r"expected an integer from \d to 9,007,199,254,740,991, got "
    with pytest.raises(ValueError, match=f"^chunk_size: {limit}"):
        F.mean_abs_cosine(PAIR, chunk_size=number)
    with pytest.raises(ValueError, match=f"^num_blocks: {limit}"):
        F.deviation_stderr(ROWS, num_blocks=number)
    with pytest.raises(ValueError, match=f"^k: {limit}"):
        SubspacePGA(k=number)


def test_numbers_of_draws_have_a_limit() -> None:
    assert SubspacePGA(num_null=1_000_000).options.num_null == 1_000_000
    with pytest.raises(ValueError, match=r"^num_null: expected an integer from 2 to 1,000,000, "):
        SubspacePGA(num_null=1_000_001)
