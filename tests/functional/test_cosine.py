"""Pair statistics of cosine similarities against a dense float64 oracle."""

import pytest
import torch
from torch import Tensor

from toolkit.functional import cosine_moments


def pair_cosines(vectors: Tensor) -> Tensor:
    """All cosines i < j in float64, zero rows left out."""
    rows: Tensor = vectors.double()
    rows = rows[rows.norm(dim=1) > 0]
    units = rows / rows.norm(dim=1, keepdim=True)
    first, second = torch.triu_indices(len(units), len(units), 1)
    cosines: Tensor = (units @ units.T)[first, second]
    return cosines


def spectrum_rows(num: int, dim: int, *, mean: float = 0.0, seed: int = 0) -> Tensor:
    """Rows with a decaying spectrum around a common direction."""
    gen = torch.Generator().manual_seed(seed)
    scales = torch.arange(1, dim + 1) ** -0.5
    return torch.randn(num, dim, generator=gen) * scales + mean


INPUTS = {
    "random": spectrum_rows(200, 30),
    "shared_mean": spectrum_rows(200, 30, mean=1.0),
    "with_zero_rows": torch.cat([torch.zeros(3, 8), spectrum_rows(50, 8), torch.zeros(2, 8)]),
    "float32_products": spectrum_rows(4200, 1024, mean=0.05),
    "wide": spectrum_rows(5, 600),
    "norms_apart": spectrum_rows(40, 6) * torch.logspace(-30, 30, 40)[:, None],
}


@pytest.mark.parametrize("vectors", INPUTS.values(), ids=INPUTS.keys())
def test_moments_match_the_dense_oracle(vectors: Tensor) -> None:
    expected = pair_cosines(vectors)
    moments = cosine_moments(vectors)
    assert moments.mean == pytest.approx(expected.mean().item(), rel=1e-8, abs=1e-9)
    # A steep spectrum rests on few float32 sums, here to 2e-8.
    assert moments.std == pytest.approx(expected.std(correction=0).item(), rel=5e-8, abs=1e-9)
    assert moments.num_pairs == len(expected)
    assert moments.num_dropped == int((vectors == 0).all(1).sum())


@pytest.mark.parametrize("spread", [1e-1, 1e-5])
@pytest.mark.parametrize(("num", "dim"), [(300, 20), (4200, 1024)], ids=["float64", "float32"])
def test_nearly_parallel_rows_keep_their_spread(spread: float, num: int, dim: int) -> None:
    vectors = 1 + spread * spectrum_rows(num, dim)
    expected = pair_cosines(vectors)
    moments = cosine_moments(vectors)
    # cos itself has 1e-16 in float64, its distance from 1 is about spread^2.
    assert moments.std == pytest.approx(expected.std(correction=0).item(), rel=1e-4)
    assert moments.mean == pytest.approx(expected.mean().item(), abs=1e-12)


def test_two_rows_have_one_similarity() -> None:
    moments = cosine_moments(torch.tensor([[2.0, 0.0], [3.0, 4.0]]))
    assert moments.mean == pytest.approx(0.6, abs=1e-15)
    # The root of the rounding of a variance of 0.
    assert moments.std == pytest.approx(0, abs=1e-7)
    assert moments[2:] == (1, 0)


def test_identical_rows_have_mean_one_and_no_spread() -> None:
    moments = cosine_moments(torch.full((50, 7), 3.0))
    assert moments.mean == pytest.approx(1, abs=1e-14)
    assert moments.std == pytest.approx(0, abs=1e-14)


def test_simplex_has_mean_minus_one_over_n_minus_one() -> None:
    moments = cosine_moments(torch.eye(5) - 0.2)
    assert moments.mean == pytest.approx(-0.25, abs=1e-6)
    assert moments.std == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("chunk_size", [70, 512, 4999, 10**6])
@pytest.mark.parametrize("name", ["random", "with_zero_rows", "float32_products"])
def test_moments_do_not_depend_on_the_chunks(name: str, chunk_size: int) -> None:
    whole = cosine_moments(INPUTS[name])
    chunked = cosine_moments(INPUTS[name], chunk_size=chunk_size)
    assert chunked.mean == pytest.approx(whole.mean, abs=1e-9)
    # Sums of float32 products differ by a few 1e-9.
    assert chunked.std == pytest.approx(whole.std, abs=1e-8 if "float32" in name else 1e-12)
    assert chunked[2:] == whole[2:]


def test_moments_ignore_row_scale_order_and_rotation(generator: torch.Generator) -> None:
    vectors = INPUTS["shared_mean"].double()
    scales = torch.rand(len(vectors), 1, generator=generator).double() + 0.1
    order = torch.randperm(len(vectors), generator=generator)
    rotation = torch.linalg.qr(torch.randn(30, 30, generator=generator).double()).Q
    changed = cosine_moments((scales * vectors)[order] @ rotation)
    assert changed == pytest.approx(cosine_moments(vectors), rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32], ids=str)
def test_moments_lift_other_dtypes(dtype: torch.dtype) -> None:
    vectors = (10 * INPUTS["shared_mean"]).to(dtype)
    before = vectors.clone()
    expected = pair_cosines(vectors)
    moments = cosine_moments(vectors)
    assert moments.mean == pytest.approx(expected.mean().item(), abs=1e-9)
    assert moments.std == pytest.approx(expected.std(correction=0).item(), abs=1e-9)
    assert torch.equal(vectors, before)


BAD_MATRICES = {
    "nan": (torch.tensor([[1.0, float("nan")], [float("inf"), 1.0]]), "vectors: .*2 non-finite"),
    "vector": (torch.ones(3), "vectors: expected 2 dimensions"),
    "empty": (torch.ones(0, 3), "vectors: expected at least one value"),
    "complex": (torch.ones(2, 2, dtype=torch.complex64), "vectors: expected real numbers"),
    "one_row": (torch.tensor([[1.0], [0.0]]), "vectors: expected at least 2 non-zero rows, got 1"),
}


@pytest.mark.parametrize(("vectors", "message"), BAD_MATRICES.values(), ids=BAD_MATRICES.keys())
def test_moments_refuse(vectors: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cosine_moments(vectors)


def test_moments_refuse_chunks_below_one() -> None:
    with pytest.raises(ValueError, match="chunk_size: expected an integer of at least 1"):
        cosine_moments(torch.eye(3), chunk_size=0)
