"""Represented features and their overlaps."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from toolkit.functional import (
    cosine_moments,
    feature_norms,
    mean_squared_overlap,
    norm_percentiles,
    represented_fraction,
    welch_bound,
)


def hexagon() -> Tensor:
    """Three lines at 60 degrees: the equiangular tight frame of 3 vectors in the plane."""
    angles = torch.arange(3) * math.pi / 3
    return torch.stack([angles.cos(), angles.sin()], 1)


def test_norms_are_the_row_norms() -> None:
    weight = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]])
    assert feature_norms(weight).tolist() == [5, 0, 2]
    assert feature_norms(weight.half()).dtype == torch.float32
    assert feature_norms(weight.double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("threshold", "expected"), [(0.5, 0.5), (0.0, 0.75), (1.0, 0.25), (2.0, 0.0)]
)
def test_fraction_counts_norms_above_the_threshold(threshold: float, expected: float) -> None:
    weight = torch.diag(torch.tensor([2.0, 1.0, 0.5, 0.0]))
    assert represented_fraction(weight, threshold) == expected


@pytest.mark.parametrize("num_rows", [1, 2, 3, 20, 21, 1000])
def test_percentiles_are_those_of_numpy(num_rows: int, generator: torch.Generator) -> None:
    weight = torch.randn(num_rows, 3, generator=generator, dtype=torch.float64)
    percents = [50, 0, 5, 33, 95, 100]
    expected = np.percentile(weight.norm(dim=1).numpy(), percents)
    assert norm_percentiles(weight, percents) == pytest.approx(expected, rel=1e-14)


def test_percentiles_lie_between_neighbouring_norms() -> None:
    # The nearest of the ranks 0 to 10 gives 1.0 at 5 percent.
    weight = torch.arange(1.0, 12.0)[:, None]
    assert norm_percentiles(weight, (5, 50, 98)) == pytest.approx([1.5, 6.0, 10.8], rel=1e-15)


@pytest.mark.slow
def test_percentiles_of_more_values_than_torch_ranks() -> None:
    num_rows = 2**24 + 5
    weight = torch.arange(num_rows, dtype=torch.int32)[:, None]
    with pytest.raises(RuntimeError, match="too large"):
        weight[:, 0].double().quantile(0.05)
    last = num_rows - 1
    assert norm_percentiles(weight, [5, 50]) == pytest.approx([0.05 * last, last / 2], rel=1e-15)


@pytest.mark.parametrize(
    ("weight", "percents", "match"),
    [
        (torch.ones(3), [5], "weight: expected 2 dimensions"),
        (torch.full((2, 2), math.nan), [5], "weight: expected finite values"),
        (torch.full((2, 2), 3e38), [5], "weight: expected row norms within torch.float32"),
        (torch.ones(3, 2), [], "percents: expected one or more integers"),
        (torch.ones(3, 2), [-1], "percents: expected an integer of at least 0, got -1"),
        (torch.ones(3, 2), [101], "percents: expected an integer from 0 to 100, got 101"),
    ],
)
def test_bad_percentiles_are_refused(weight: Tensor, percents: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        norm_percentiles(weight, percents)


def test_overlap_of_a_tight_frame_is_the_squared_welch_bound() -> None:
    overlap = mean_squared_overlap(hexagon() * torch.tensor([[1.0], [5.0], [0.1]]))
    assert overlap.value == pytest.approx(welch_bound(3, 2) ** 2, abs=1e-7)
    assert overlap[1:] == (3, 0)


def test_overlap_of_random_rows_is_one_over_m(generator: torch.Generator) -> None:
    weight = torch.randn(2000, 20, generator=generator)
    assert mean_squared_overlap(weight).value == pytest.approx(1 / 20, rel=0.01)


def test_overlap_is_the_mean_square_over_pairs(generator: torch.Generator) -> None:
    weight = torch.randn(40, 6, generator=generator) + 0.5
    units = torch.nn.functional.normalize(weight.double(), dim=1)
    first, second = torch.triu_indices(40, 40, 1)
    expected = (units @ units.T)[first, second].square().mean().item()
    assert mean_squared_overlap(weight).value == pytest.approx(expected, rel=1e-12)


def test_overlap_drops_and_counts_short_rows() -> None:
    weight = torch.cat([hexagon(), 0.9e-6 * hexagon(), torch.zeros(2, 2)])
    assert mean_squared_overlap(weight).num_dropped == 5
    assert mean_squared_overlap(weight).num_rows == 3
    assert mean_squared_overlap(weight).value == pytest.approx(0.25, abs=1e-7)
    assert cosine_moments(weight).num_dropped == 2


@pytest.mark.parametrize("num_rows", [0, 1])
def test_overlap_of_fewer_than_two_rows_is_nan(num_rows: int) -> None:
    weight = torch.zeros(4, 3)
    weight[:num_rows] = 1.0
    overlap = mean_squared_overlap(weight)
    assert math.isnan(overlap.value)
    assert overlap[1:] == (num_rows, 4 - num_rows)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_lifted_and_left_alone(
    dtype: torch.dtype, generator: torch.Generator
) -> None:
    weight = torch.randn(50, 6, generator=generator).to(dtype)
    before = weight.clone()
    assert mean_squared_overlap(weight) == mean_squared_overlap(weight.float())
    assert represented_fraction(weight, 2.0) == represented_fraction(weight.float(), 2.0)
    assert norm_percentiles(weight, [5]) == norm_percentiles(weight.float(), [5])
    assert torch.equal(feature_norms(weight), feature_norms(weight.float()))
    assert torch.equal(weight, before)


@pytest.mark.parametrize("function", [feature_norms, represented_fraction, mean_squared_overlap])
def test_bad_weights_are_refused(function: object) -> None:
    assert callable(function)
    with pytest.raises(ValueError, match="weight: expected finite values, got 1 non-finite of 2"):
        function(torch.tensor([[1.0, math.nan]]))
    with pytest.raises(ValueError, match="weight: expected 2 dimensions"):
        function(torch.ones(3))


@pytest.mark.parametrize("threshold", [-0.1, math.nan])
def test_bad_thresholds_are_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold: expected a finite number of at least 0"):
        represented_fraction(torch.eye(2), threshold)
