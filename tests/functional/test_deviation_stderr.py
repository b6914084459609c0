"""The jackknife against its definition and against the scatter of fresh samples."""

import math

import pytest
import torch
from torch import Tensor

from toolkit.functional import deviation_stderr, embedding_deviation


def sample(num: int, seed: int, *, common: float = 0.3) -> Tensor:
    """Rows of one population: unequal variances and a common direction."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num, 8, generator=generator) * torch.linspace(0.1, 3, 8) + common


def by_definition(rows: Tensor, num_blocks: int, num_sigma: float = 2.0) -> float:
    deviations = []
    for block in range(num_blocks):
        keep = torch.arange(len(rows)) % num_blocks != block
        deviation = embedding_deviation(rows[keep].double(), num_sigma=num_sigma)
        deviations.append(deviation.epsilon)
    mean = sum(deviations) / num_blocks
    squares = sum((deviation - mean) ** 2 for deviation in deviations)
    return math.sqrt((num_blocks - 1) / num_blocks * squares)


@pytest.mark.parametrize(
    ("num", "num_blocks", "num_sigma"),
    [(400, 20, 2.0), (37, 5, 2.0), (30, 30, 1.0), (12, 20, 0.0)],
    ids=["default", "uneven", "one_row_each", "fewer_rows_than_blocks"],
)
def test_definition(num: int, num_blocks: int, num_sigma: float) -> None:
    rows = sample(num, 1)
    expected = by_definition(rows, min(num, num_blocks), num_sigma)
    measured = deviation_stderr(rows, num_sigma=num_sigma, num_blocks=num_blocks)
    assert measured == pytest.approx(expected, rel=1e-6)


def test_is_the_scatter_of_fresh_samples() -> None:
    scatter = torch.tensor([embedding_deviation(sample(300, seed)).epsilon for seed in range(100)])
    errors = torch.tensor([deviation_stderr(sample(300, seed)) for seed in range(20)])
    assert errors.mean().item() == pytest.approx(scatter.std().item(), rel=0.2)


def test_nearly_parallel_rows_keep_their_digits() -> None:
    rows = sample(200, 2, common=3000.0).double()
    assert deviation_stderr(rows) == pytest.approx(by_definition(rows, 20), rel=1e-4)


def test_zero_rows_and_scale_do_not_matter() -> None:
    rows = sample(60, 3)
    scaled = rows * torch.logspace(-3, 3, 60)[:, None]
    assert deviation_stderr(scaled) == pytest.approx(deviation_stderr(rows), rel=1e-5)
    assert deviation_stderr(torch.cat([rows, torch.zeros(40, 8)])) > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_lifted(dtype: torch.dtype) -> None:
    rows = sample(100, 4).to(dtype)
    kept = rows.clone()
    assert deviation_stderr(rows) == pytest.approx(deviation_stderr(rows.float()), rel=1e-9)
    assert torch.equal(rows, kept)


@pytest.mark.parametrize(
    ("rows", "options", "match"),
    [
        (torch.ones(3), {}, "embeddings: expected 2 dimensions"),
        (torch.full((3, 2), math.nan), {}, "embeddings: expected finite values"),
        (torch.ones(2, 2), {}, "embeddings: expected at least 2 non-zero rows, got 1 of 1"),
        (torch.zeros(9, 2), {}, "embeddings: expected at least 2 non-zero rows"),
        (torch.ones(9, 2), {"num_blocks": 1}, "num_blocks: expected an integer of at least 2"),
        (torch.ones(9, 2), {"num_sigma": -1.0}, "num_sigma: expected a finite number"),
    ],
)
def test_bad_input_is_refused(rows: Tensor, options: dict[str, float], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        deviation_stderr(rows, **options)  # type: ignore[arg-type]
