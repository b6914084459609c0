"""Embedding deviation epsilon and its classes."""

import math

import pytest
import torch
from torch import Tensor

from toolkit.functional import cosine_moments, embedding_deviation


def rows_with_mean(cosine: float) -> Tensor:
    """Rows whose pairwise cosines all equal ``cosine``: a regular simplex, lifted."""
    simplex = torch.eye(12).double() - 1 / 12
    simplex = simplex / simplex.norm(dim=1, keepdim=True)
    # The simplex itself has cosines of -1/11.
    lift = math.sqrt((cosine + 1 / 11) / (1 - cosine))
    return torch.cat([simplex, torch.full((12, 1), lift).double()], 1)


def test_epsilon_is_mean_plus_two_sigma(generator: torch.Generator) -> None:
    embeddings = torch.randn(500, 40, generator=generator)
    moments = cosine_moments(embeddings)
    deviation = embedding_deviation(embeddings)
    assert deviation.epsilon == moments.mean + 2 * moments.std
    assert deviation[1:3] == moments[:2]
    assert embedding_deviation(embeddings, num_sigma=0.0).epsilon == moments.mean
    # Random directions have a mean of 0 and a variance of 1/d.
    assert deviation.epsilon == pytest.approx(2 / math.sqrt(40), rel=0.02)


@pytest.mark.parametrize(
    ("cosine", "model_class"),
    [(0.0, 2), (0.0999, 2), (0.1001, None), (0.1999, None), (0.2001, 1), (0.9, 1)],
)
def test_classes_split_at_a_tenth_and_a_fifth(cosine: float, model_class: int | None) -> None:
    deviation = embedding_deviation(rows_with_mean(cosine))
    assert deviation.epsilon == pytest.approx(cosine, abs=2e-6)
    assert deviation.model_class == model_class


def test_opposite_rows_count_with_their_sign() -> None:
    deviation = embedding_deviation(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]]))
    assert deviation.mean == pytest.approx(-1 / 3)
    assert deviation.std == pytest.approx(math.sqrt(8) / 3)


def test_row_scale_does_not_matter_and_zero_rows_are_counted(generator: torch.Generator) -> None:
    embeddings = torch.randn(60, 8, generator=generator).double()
    scaled = torch.cat([embeddings * torch.logspace(-6, 6, 60)[:, None], torch.zeros(5, 8)])
    plain, other = embedding_deviation(embeddings), embedding_deviation(scaled)
    assert other.epsilon == pytest.approx(plain.epsilon, rel=1e-12)
    assert (other.num_rows, other.num_dropped) == (60, 5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_lifted_and_left_alone(
    dtype: torch.dtype, generator: torch.Generator
) -> None:
    embeddings = torch.randn(60, 8, generator=generator).to(dtype)
    before = embeddings.clone()
    assert embedding_deviation(embeddings) == embedding_deviation(embeddings.float())
    assert torch.equal(embeddings, before)


@pytest.mark.parametrize(
    ("embeddings", "num_sigma", "message"),
    [
        (torch.tensor([[1.0, math.nan]]), 2.0, "embeddings: expected finite values, got 1"),
        (torch.ones(2, 2, 2), 2.0, "embeddings: expected 2 dimensions"),
        (torch.zeros(3, 2), 2.0, "embeddings: expected at least 2 non-zero rows, got 0 of 3"),
        (torch.eye(3), -1.0, "num_sigma: expected a finite number of at least 0, got -1.0"),
        (torch.eye(3), math.nan, "num_sigma: expected a finite number"),
    ],
    ids=["nan", "batch", "zeros", "negative_sigma", "nan_sigma"],
)
def test_bad_input_is_refused(embeddings: Tensor, num_sigma: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        embedding_deviation(embeddings, num_sigma=num_sigma)
