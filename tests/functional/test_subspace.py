"""Readout bases, random bases and CCR-r against float64 decompositions, and their statistics."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import beta, kstest
from torch import Tensor
from torch.overrides import TorchFunctionMode

from toolkit.functional import haar_bases, readout_basis, remove_components
from toolkit.functional.subspace import gaussian_frame


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def reference_basis(matrix: Tensor, k: int) -> np.ndarray:
    """Top right singular vectors in float64."""
    return np.linalg.svd(matrix.double().numpy(), full_matrices=False)[2][:k].T


def distance(basis: Tensor, reference: np.ndarray) -> float:
    """Sine of the largest angle between two subspaces."""
    columns = basis.double().numpy()
    return float(np.linalg.norm(columns - reference @ (reference.T @ columns), 2))


def decaying(rows: int, dim: int) -> Tensor:
    return torch.randn(rows, dim, generator=generator()) * torch.arange(1, dim + 1) ** -0.5


@pytest.mark.parametrize("shape", [(3000, 40), (40, 60), (1500, 300)], ids=str)
@pytest.mark.parametrize("centered", [False, True], ids=["raw", "centred"])
def test_readout_basis_spans_the_top_singular_vectors(
    shape: tuple[int, int], centered: bool
) -> None:
    matrix = decaying(*shape) + 0.1
    basis = readout_basis(matrix, 5, centered=centered)
    expected = matrix - matrix.mean(0) if centered else matrix
    assert basis.dtype == torch.float32
    assert distance(basis, reference_basis(expected, 5)) < 2e-5
    torch.testing.assert_close(basis.T @ basis, torch.eye(5), rtol=0, atol=1e-6)


def test_readout_basis_resolves_directions_far_below_the_strongest() -> None:
    matrix = torch.randn(2000, 50, generator=generator())
    matrix[:, 0] *= 1e4
    assert distance(readout_basis(matrix, 3), reference_basis(matrix, 3)) < 1e-5


def test_readout_basis_keeps_order_and_sign() -> None:
    matrix = torch.diag(torch.tensor([1.0, -5.0, 3.0]))
    expected = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    torch.testing.assert_close(readout_basis(matrix, 2), expected)
    torch.testing.assert_close(readout_basis(-matrix.flip(0), 2), expected)


def test_readout_basis_ignores_zero_rows() -> None:
    matrix = decaying(100, 12)
    padded = torch.cat([matrix, torch.zeros(30, 12)])
    torch.testing.assert_close(readout_basis(padded, 4), readout_basis(matrix, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_readout_basis_of_other_dtypes(dtype: torch.dtype) -> None:
    matrix = (decaying(500, 16) * 8).to(dtype)
    basis = readout_basis(matrix, 4)
    wide = torch.float64 if dtype in {torch.float64, torch.int32} else torch.float32
    assert basis.dtype == wide
    assert distance(basis, reference_basis(matrix, 4)) < 1e-4


def test_a_rank_below_k_warns_with_the_rank() -> None:
    left = torch.randint(-3, 4, (200, 3), generator=generator())
    right = torch.randint(-3, 4, (3, 10), generator=generator())
    matrix = (left @ right).float()
    with pytest.warns(UserWarning, match="unembedding: rank 3 is below k = 5; the last 2 columns"):
        basis = readout_basis(matrix, 5)
    torch.testing.assert_close(basis.T @ basis, torch.eye(5), rtol=0, atol=1e-6)
    assert distance(basis[:, :3], reference_basis(matrix, 3)) < 1e-6
    with pytest.warns(UserWarning, match="rank 0 is below k = 1"):
        readout_basis(torch.zeros(4, 3), 1)


def test_a_rank_of_k_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        readout_basis(torch.eye(4)[:3], 3)


class LargestLifted(TorchFunctionMode):
    """Bytes of the largest float32 or float64 tensor that any operation makes."""

    num_bytes = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.dtype in {torch.float32, torch.float64}:
            self.num_bytes = max(self.num_bytes, result.nbytes)
        return result


@pytest.mark.parametrize("centered", [False, True], ids=["raw", "centred"])
def test_readout_basis_never_lifts_the_whole_matrix(centered: bool) -> None:
    matrix = torch.randn(8192, 64, generator=generator()).bfloat16()
    with LargestLifted() as largest:
        readout_basis(matrix, 4, centered=centered)
    assert largest.num_bytes == 1024 * 64 * 4


def test_haar_bases_are_orthonormal_and_reproducible() -> None:
    for dim, k in [(50, 5), (50, 25), (8, 7), (8, 8), (1, 1), (6, 1)]:
        bases = haar_bases(dim, k, 3, generator=generator(1))
        assert bases.shape == (3, dim, k)
        gram = bases.mT @ bases
        torch.testing.assert_close(gram, torch.eye(k).expand(3, k, k), rtol=0, atol=2e-5)
        longer = haar_bases(dim, k, 5, generator=generator(1))
        assert torch.equal(longer[:3], bases)


@pytest.mark.parametrize(("dim", "k"), [(12, 3), (5, 4)], ids=["Cholesky", "QR"])
def test_haar_projections_average_to_a_multiple_of_the_identity(dim: int, k: int) -> None:
    bases = haar_bases(dim, k, 4000, generator=generator(2)).double()
    mean = (bases @ bases.mT).mean(0)
    torch.testing.assert_close(
        mean, torch.eye(dim, dtype=torch.float64) * k / dim, rtol=0, atol=0.03
    )
    # Uniform on the Stiefel manifold, not only the Grassmannian: no column has a preferred sign.
    assert float(bases.mean(0).abs().max()) < 0.05


@pytest.mark.parametrize(("dim", "k"), [(12, 3), (5, 4)], ids=["Cholesky", "QR"])
def test_haar_lengths_follow_the_beta_law(dim: int, k: int) -> None:
    bases = haar_bases(dim, k, 2000, generator=generator(3)).double()
    direction = torch.randn(dim, generator=generator(4)).double()
    inside = (direction @ bases).square().sum(-1) / direction.square().sum()
    assert kstest(inside.numpy(), beta(k / 2, (dim - k) / 2).cdf).pvalue > 0.01
    entries = bases[:, 0, 0].square()
    assert kstest(entries.numpy(), beta(0.5, (dim - 1) / 2).cdf).pvalue > 0.01


@pytest.mark.parametrize(("dim", "k"), [(9, 3), (60, 8)], ids=["few left", "many left"])
def test_frames_of_few_coordinates_follow_the_beta_law(dim: int, k: int) -> None:
    draws, rows = generator(7), 5
    direction = torch.randn(rows, generator=generator(4))
    inside = []
    for _ in range(2000):
        gaussian, whitening = gaussian_frame(dim, k, draws, rows=rows)
        assert len(gaussian) == rows + k
        coordinates = direction @ gaussian[:rows] @ whitening
        inside.append(float(coordinates.square().sum() / direction.square().sum()))
    assert kstest(inside, beta(k / 2, (dim - k) / 2).cdf).pvalue > 0.01


def test_haar_principal_angles_match_those_of_qr() -> None:
    dim, k, num = 10, 3, 1500
    fixed = np.eye(dim)[:, :k]
    rng = np.random.default_rng(5)
    by_qr = np.linalg.qr(rng.standard_normal((num, dim, k)))[0]
    ours = haar_bases(dim, k, num, generator=generator(6)).double().numpy()
    cosines = [np.linalg.svd(fixed.T @ bases, compute_uv=False) for bases in (ours, by_qr)]
    for angle in range(k):
        assert kstest(cosines[0][:, angle], cosines[1][:, angle]).pvalue > 0.01


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (20, 20), (300, 400), (400, 300)], ids=str)
@pytest.mark.parametrize("num", [0, 1, 3])
def test_remove_components_matches_the_svd(shape: tuple[int, int], num: int) -> None:
    hidden = torch.randn(shape, generator=generator()) + 3
    points = hidden.double().numpy()
    points = points - points.mean(0)
    left, values, right = np.linalg.svd(points, full_matrices=False)
    expected = left[:, num:] * values[num:] @ right[num:]
    np.testing.assert_allclose(remove_components(hidden, num).numpy(), expected, atol=2e-6)
    exact = remove_components(hidden.double(), num)
    assert exact.dtype == torch.float64
    np.testing.assert_allclose(exact.numpy(), expected, atol=1e-12)


def test_points_without_variance_have_no_component_to_remove() -> None:
    assert not remove_components(torch.ones(300, 300), 1).any()


def test_remove_components_takes_layers_one_by_one() -> None:
    layers = torch.randn(3, 15, 6, generator=generator())
    each = torch.stack([remove_components(layer, 2) for layer in layers])
    assert torch.equal(remove_components(layers, 2), each)


def test_remove_components_survives_missing_ones() -> None:
    line = torch.arange(6.0)[:, None] * torch.ones(1, 9)
    torch.testing.assert_close(remove_components(line, 3), torch.zeros(6, 9), rtol=0, atol=1e-6)
    assert torch.equal(remove_components(torch.ones(5, 4), 2), torch.zeros(5, 4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_remove_components_of_half_precision(dtype: torch.dtype) -> None:
    hidden = torch.randn(20, 6, generator=generator()).to(dtype)
    result = remove_components(hidden, 1)
    assert result.dtype == torch.float32
    assert torch.equal(result, remove_components(hidden.float(), 1))


def test_inputs_are_left_alone() -> None:
    matrix = torch.randn(30, 8, generator=generator())
    before = matrix.clone()
    readout_basis(matrix, 3, centered=True)
    remove_components(matrix, 2)
    assert torch.equal(matrix, before)


@pytest.mark.parametrize(
    ("matrix", "k", "error", "message"),
    [
        ([[1.0]], 1, TypeError, "unembedding"),
        (torch.ones(3), 1, ValueError, "unembedding: expected 2 dimensions"),
        (torch.full((3, 2), math.nan), 1, ValueError, "unembedding: .* got 6 non-finite of 6"),
        (torch.ones(9, 4), 5, ValueError, r"k: expected at most min\(V, d\) = 4, got 5"),
        (torch.ones(4, 9), 5, ValueError, r"k: expected at most min\(V, d\) = 4, got 5"),
        (torch.ones(4, 4), 0, ValueError, "k: expected an integer of at least 1, got 0"),
    ],
    ids=["list", "vector", "nan", "k > d", "k > V", "k = 0"],
)
def test_bad_readouts(matrix: Tensor, k: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        readout_basis(matrix, k)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 1, 1), "dim: expected an integer of at least 1"),
        ((4, 5, 1), "k: expected at most d = 4 dimensions, got k = 5"),
        ((4, 0, 1), "k: expected an integer of at least 1"),
        ((4, 2, 0), "num: expected an integer of at least 1"),
    ],
    ids=["dim", "k > dim", "k", "num"],
)
def test_bad_sizes(sizes: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        haar_bases(*sizes, generator=generator())


@pytest.mark.parametrize(
    ("hidden", "num", "error", "message"),
    [
        (None, 1, TypeError, "hidden"),
        (torch.ones(4), 1, ValueError, "hidden: expected 2 or 3 dimensions"),
        (torch.tensor([[math.inf, 1.0]]), 0, ValueError, "hidden: .* got 1 non-finite of 2"),
        (torch.ones(5, 3), 3, ValueError, r"num_components: expected fewer than min\(N, d\) = 3"),
        (torch.ones(2, 7, 9), 7, ValueError, r"num_components: .* min\(N, d\) = 7 components"),
        (torch.ones(5, 3), -1, ValueError, "num_components: expected an integer of at least 0"),
    ],
    ids=["none", "vector", "inf", "r = d", "r = N", "negative"],
)
def test_bad_removals(hidden: Tensor, num: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        remove_components(hidden, num)
