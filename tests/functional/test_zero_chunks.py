"""Chunks without a usable row, or with one, at every position: values against dense oracles."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.functional.test_cosine import pair_cosines
from tests.functional.test_deviation_stderr import by_definition
from toolkit.functional import (
    cosine_distances,
    cosine_histogram,
    cosine_moments,
    deviation_stderr,
    embedding_deviation,
    feature_norms,
    fit_linear_probe,
    gram_penalty,
    max_abs_cosine,
    mean_abs_cosine,
    mean_cosine,
    mean_squared_overlap,
    readout_basis,
    represented_fraction,
)
from toolkit.functional._triangles import lower_gram, lower_product

NUM, DIM = 6, 3
# Rows that the functions without the option take at a time, and one more.
STREAMED = 2048
masks = [mask for mask in product([False, True], repeat=NUM) if sum(mask) >= 2]
chunk_sizes = pytest.mark.parametrize("chunk_size", [*range(1, NUM + 2), 100])


@pytest.fixture(autouse=True)
def _blas_has_nothing_to_say(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """BLAS prints a refused operand and goes on."""
    yield
    assert "On entry to" not in "".join(capfd.readouterr())


def noise(num: int, dim: int = DIM, *, seed: int = 0) -> Tensor:
    gen = torch.Generator().manual_seed(seed)
    return torch.randn(num, dim, generator=gen, dtype=torch.float64) + 0.4


def masked(mask: tuple[bool, ...]) -> Tensor:
    return noise(len(mask)) * torch.tensor(mask)[:, None]


def pair_std(cosines: Tensor) -> float:
    return float(cosines.std(correction=0))


@chunk_sizes
def test_moments(chunk_size: int) -> None:
    for mask in masks:
        cosines = pair_cosines(masked(mask))
        found = cosine_moments(masked(mask), chunk_size=chunk_size)
        expected = (float(cosines.mean()), pair_std(cosines), len(cosines), NUM - sum(mask))
        # The root of the rounding of a variance, which is 0 for two rows.
        assert tuple(found) == pytest.approx(expected, abs=1e-13 if sum(mask) > 2 else 1e-7), mask


@chunk_sizes
def test_pairs(chunk_size: int) -> None:
    for mask in masks:
        rows, cosines = masked(mask), pair_cosines(masked(mask))
        histogram = cosine_histogram(rows, num_bins=8, chunk_size=chunk_size)
        counts, _ = np.histogram(cosines.numpy(), 8, (-1, 1))
        assert histogram.counts.tolist() == counts.tolist(), mask
        found = mean_abs_cosine(rows, chunk_size=chunk_size)
        assert found.value == pytest.approx(float(cosines.abs().mean()), abs=1e-6), mask
        assert found[1:] == (0, len(cosines), NUM - sum(mask)), mask


@chunk_sizes
@pytest.mark.parametrize("num", range(2, NUM + 1))
def test_distances(chunk_size: int, num: int) -> None:
    found = cosine_distances(noise(num), chunk_size=chunk_size)
    torch.testing.assert_close(found, 1 - pair_cosines(noise(num)), rtol=0, atol=1e-14)


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 4, 5, 11, 12, 13])
@pytest.mark.parametrize("num_zeros", [1, 4])
def test_sampled_mean_absolute_cosine(chunk_size: int, num_zeros: int) -> None:
    for position in range(13):
        rows = torch.cat([noise(position), torch.zeros(num_zeros, 3), noise(12 - position, seed=1)])
        # All usable rows are drawn, which leaves nothing to estimate.
        found = mean_abs_cosine(rows, num_sampled=12, chunk_size=chunk_size)
        expected = float(pair_cosines(rows).abs().mean())
        assert tuple(found) == pytest.approx((expected, 0, 12 * 11, num_zeros), abs=1e-6)


def streamed(filled: tuple[int, ...], last: int) -> Tensor:
    """A chunk with so many usable rows for each of ``filled``, and one chunk of ``last`` rows."""
    chunks = [torch.cat([noise(n, seed=n), torch.zeros(STREAMED - n, DIM)]) for n in filled]
    return torch.cat([*chunks, noise(last, seed=99)])


@pytest.mark.parametrize("last", [0, 1, 2])
@pytest.mark.parametrize("filled", [(0, 9), (9, 0), (0, 1, 7), (8, 0, 0), (8, 0, 1), (0, 0, 9)])
def test_chunks_of_fixed_size(filled: tuple[int, ...], last: int) -> None:
    rows = streamed(filled, last)
    cosines = pair_cosines(rows)
    mean, std, square = float(cosines.mean()), pair_std(cosines), float(cosines.square().mean())
    num = sum(filled) + last
    assert embedding_deviation(rows).epsilon == pytest.approx(mean + 2 * std, abs=1e-13)
    assert mean_squared_overlap(rows) == pytest.approx((square, num, len(rows) - num), abs=1e-13)
    found = mean_cosine(rows)
    assert (float(found.value), int(found.num_dropped)) == pytest.approx((mean, len(rows) - num))
    norms = torch.linalg.vector_norm(rows, dim=1)
    torch.testing.assert_close(feature_norms(rows), norms)
    assert represented_fraction(rows, 0.0) == num / len(rows)
    assert mean_abs_cosine(rows, num_sampled=num).value == pytest.approx(
        float(cosines.abs().mean()), abs=1e-6
    )


@pytest.mark.parametrize("before", [1, STREAMED])
def test_zero_chunks_before_float32_products(before: int) -> None:
    """Larger matrices are summed in float32."""
    rows = noise(4200, 1024).float()
    expected = embedding_deviation(rows)
    found = embedding_deviation(torch.cat([torch.zeros(before, 1024), rows, rows[:0]]))
    assert found[:3] == pytest.approx(expected[:3], rel=1e-7)
    assert found[4:] == (4200, before)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("filled", [(0, 9), (9, 0), (0, 1, 7), (8, 0, 0)])
@pytest.mark.parametrize("last", [0, 1])
def test_readout_basis(
    filled: tuple[int, ...], last: int, dtype: torch.dtype, centered: bool
) -> None:
    rows = streamed(filled, last)
    shifted = rows - rows.mean(0) if centered else rows
    _, _, right = torch.linalg.svd(shifted, full_matrices=False)
    basis = readout_basis(rows.to(dtype), 2, centered=centered).double()
    # Float32 products blur neighbouring directions.
    error = 1e-4 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(basis @ basis.T, right[:2].T @ right[:2], rtol=0, atol=error)


@pytest.mark.parametrize("num_blocks", [3, 5, 20])
def test_jackknife_with_a_block_of_zeros(num_blocks: int) -> None:
    for block in range(num_blocks):
        rows = noise(3 * num_blocks + 1)
        rows[block::num_blocks] = 0
        expected = by_definition(rows, num_blocks)
        assert deviation_stderr(rows, num_blocks=num_blocks) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("num", [2, 383, 384, 385, 769])
def test_tiles_of_one_row(num: int) -> None:
    rows = noise(num, 8)
    cosines = pair_cosines(rows).abs()
    assert max_abs_cosine(rows) == pytest.approx(float(cosines.max()), abs=1e-14)
    expected = float(2 * cosines.pow(6).sum()) ** (1 / 6)
    assert float(gram_penalty(rows, 6)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("zeros", [(0, 1), (0, 512), (1, 513), (512, 513), (512, 1024)])
@pytest.mark.parametrize("num", [513, 1025])
def test_probe_standardises_blocks_of_zeros(num: int, zeros: tuple[int, int]) -> None:
    features = noise(num)
    features[slice(*zeros)] = 0
    probe = fit_linear_probe(features, torch.arange(num) % 2)
    torch.testing.assert_close(probe.mean, features.mean(0))
    torch.testing.assert_close(probe.scale, features.std(0, correction=0))


@pytest.mark.parametrize("out", [False, True], ids=["fresh", "out"])
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)], ids=str)
def test_empty_products_are_zeros(shape: tuple[int, int], out: bool) -> None:
    target = torch.full((shape[0], shape[0]), 7.0) if out else None
    product_ = lower_gram(torch.empty(shape), out=target)
    assert torch.equal(product_, torch.zeros(shape[0], shape[0]))
    assert torch.equal(lower_gram(torch.empty(shape).T.contiguous().T), product_)
    assert lower_product(torch.eye(shape[0]), torch.empty(shape)).shape == shape
