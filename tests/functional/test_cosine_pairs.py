"""Histogram, mean |cos| and distances against numpy and scipy over all pairs."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from torch import Tensor

from toolkit.functional import cosine_distances, cosine_histogram, mean_abs_cosine

FUNCTIONS: list[Callable[..., Any]] = [cosine_distances, cosine_histogram, mean_abs_cosine]


def structured(num: int, dim: int) -> Tensor:
    """Rows with a decaying spectrum around a common direction, norms spread over decades."""
    gen = torch.Generator().manual_seed(1)
    rows = torch.randn(num, dim, generator=gen) * torch.arange(1, dim + 1) ** -0.5 + 0.1
    return rows * torch.logspace(-2, 2, num)[:, None]


def oracle_cosines(vectors: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    rows = vectors[(vectors != 0).any(1)].double().numpy()
    return np.asarray(1 - pdist(rows, "cosine"))


@pytest.mark.parametrize("chunk_size", [1, 33, 1024])
@pytest.mark.parametrize("num_bins", [1, 2, 300])
def test_histogram_matches_numpy(num_bins: int, chunk_size: int) -> None:
    vectors = torch.cat([structured(120, 20), torch.zeros(4, 20)])
    counts, edges = np.histogram(oracle_cosines(vectors), bins=num_bins, range=(-1, 1))
    histogram = cosine_histogram(vectors, num_bins=num_bins, chunk_size=chunk_size)
    assert np.allclose(histogram.edges.numpy(), edges, atol=1e-15)
    # A float32 product may step over an edge, into the neighbouring bin.
    assert np.abs(histogram.counts.numpy() - counts).sum() <= 4
    assert histogram.num_pairs == histogram.counts.sum() == 120 * 119 // 2
    assert histogram.num_dropped == 4


def test_histogram_puts_the_ends_into_the_end_bins() -> None:
    vectors = torch.tensor([[0.1, 0.7, 0.3]] * 4 + [[-0.1, -0.7, -0.3]] * 2)
    counts = cosine_histogram(vectors, num_bins=10).counts.tolist()
    assert counts == [8, 0, 0, 0, 0, 0, 0, 0, 0, 7]


@pytest.mark.parametrize("chunk_size", [7, 1024])
def test_exact_mean_abs_matches_the_oracle(chunk_size: int) -> None:
    vectors = torch.cat([torch.zeros(2, 20), structured(120, 20)])
    result = mean_abs_cosine(vectors, chunk_size=chunk_size)
    assert result.value == pytest.approx(np.abs(oracle_cosines(vectors)).mean(), abs=1e-8)
    assert result[1:] == (0, 120 * 119 // 2, 2)


def test_mean_abs_of_random_rows_is_root_two_over_pi_d(generator: torch.Generator) -> None:
    vectors = torch.randn(1000, 256, generator=generator)
    assert mean_abs_cosine(vectors).value == pytest.approx(math.sqrt(2 / (math.pi * 256)), rel=5e-3)


def sampled(vectors: Tensor, num_sampled: int, seeds: int) -> list[Any]:
    return [
        mean_abs_cosine(
            vectors, num_sampled=num_sampled, generator=torch.Generator().manual_seed(seed)
        )
        for seed in range(seeds)
    ]


def test_estimate_is_within_its_stated_error() -> None:
    vectors = structured(400, 20)
    exact = mean_abs_cosine(vectors).value
    scores = [(r.value - exact) / r.stderr for r in sampled(vectors, 60, 100)]
    assert abs(np.mean(scores)) < 0.5
    assert 0.7 < np.std(scores) < 1.4


def test_regression_beats_the_plain_sample_mean() -> None:
    vectors = structured(400, 20)
    cosines = np.zeros((400, 400))
    cosines[np.triu_indices(400, 1)] = np.abs(oracle_cosines(vectors))
    row_means = (cosines + cosines.T).sum(1) / 399
    plain = row_means.std() / math.sqrt(60)
    exact = mean_abs_cosine(vectors).value
    errors = [r.value - exact for r in sampled(vectors, 60, 100)]
    assert np.sqrt(np.mean(np.square(errors))) < plain / 5


def test_sampling_every_row_is_exact() -> None:
    vectors = torch.cat([structured(50, 6), torch.zeros(1, 6)])
    result = mean_abs_cosine(vectors, num_sampled=50)
    assert result.value == pytest.approx(mean_abs_cosine(vectors).value, abs=1e-7)
    assert result[1:] == (0, 50 * 49, 1)


def test_sampling_is_seeded_and_leaves_the_global_generator_alone() -> None:
    vectors = structured(50, 6)
    state = torch.random.get_rng_state()
    first = mean_abs_cosine(vectors, num_sampled=10)
    assert first == mean_abs_cosine(vectors, num_sampled=10)
    assert first != sampled(vectors, 10, 3)[2]
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("chunk_size", [1, 7, 1024])
def test_distances_match_pdist(chunk_size: int) -> None:
    vectors = structured(40, 9)
    expected = pdist(vectors.double().numpy(), "cosine")
    distances = cosine_distances(vectors, chunk_size=chunk_size)
    assert distances.dtype == torch.float64
    assert np.allclose(distances.numpy(), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_other_dtypes_are_lifted_and_left_alone(
    function: Callable[..., Any], dtype: torch.dtype
) -> None:
    vectors = (10 * structured(30, 5)).abs().ceil().to(dtype)
    before = vectors.clone()
    got, expected = function(vectors), function(vectors.double())
    for left, right in zip(got, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(left), torch.as_tensor(right))
    assert torch.equal(vectors, before)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("vectors", "options", "message"),
    [
        (torch.full((2, 2), math.inf), {}, "vectors: expected finite values, got 4 non-finite"),
        (torch.ones(3), {}, "vectors: expected 2 dimensions"),
        (torch.ones(1, 3), {}, "vectors: expected at least 2 non-zero rows, got 1 of 1"),
        (torch.eye(3), {"chunk_size": 0}, "chunk_size: expected an integer of at least 1"),
    ],
    ids=["infinite", "vector", "one_row", "chunk_size"],
)
def test_bad_input_is_refused(
    function: Callable[..., Any], vectors: Tensor, options: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        function(vectors, **options)


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="num_bins: expected an integer of at least 1, got 0"):
        cosine_histogram(torch.eye(3), num_bins=0)
    with pytest.raises(ValueError, match="num_sampled: expected an integer of at least 8"):
        mean_abs_cosine(torch.eye(20), num_sampled=7)
    with pytest.raises(ValueError, match="num_sampled: expected at most the 9 non-zero rows"):
        mean_abs_cosine(torch.eye(9), num_sampled=10)
    with pytest.raises(ValueError, match="vectors: expected non-zero rows, got 1 zero rows of 3"):
        cosine_distances(torch.eye(3)[[0, 1, 2]] * torch.tensor([1.0, 0.0, 1.0]))
