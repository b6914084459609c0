"""Subspaces of the residual stream: readout, random, and the complement of leading PCs."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Real
from scipy.special import gammaincinv
from torch import Tensor

from toolkit.functional._checks import (
    at_most,
    fewer_than,
    finite_float,
    finite_real,
    flag,
    instance,
    integer_at_least,
    lift,
    require_memory,
)
from toolkit.functional._precision import full_precision
from toolkit.functional._principal import center, principal_axes, project_out, top_eigenpairs
from toolkit.functional._scale import excess_exponent, times_power
from toolkit.functional._triangles import lower_gram

# Rows lifted at a time: longer float32 sums lose digits.
CHUNK_SIZE = 1024
# Float32 products blur directions whose eigenvalue is below this share of the largest.
RESOLVED = 1e-4
# An eigenvalue below this share is the rounding of float32 entries.
RANK_TOLERANCE = 1e-13
# A basis rounded to bfloat16 differs from an orthonormal one by up to this much.
MAX_BASIS_ERROR = 1e-2


class ReadoutSubspace(NamedTuple):
    """Orthonormal columns, strongest first, and how many of them the matrix determines."""

    basis: Tensor
    rank: int


def readout_basis(unembedding: Tensor, k: int, *, centered: bool = False) -> Tensor:
    """Top ``k`` right singular vectors of the unembedding matrix (arXiv 2605.17084, readout V_k).

    Eigenvectors of the Gram matrix, whose products are summed over row chunks in float64, so the
    matrix is never lifted or factorised whole. Each vector's largest entry is positive.

    Args:
        unembedding: Real matrix W_U of shape (V, d). Zero rows change nothing.
        k: Dimension of the subspace, at most min(V, d).
        centered: Subtract the mean row first: it can be the strongest direction by itself.

    Returns:
        Orthonormal columns, strongest first, of shape (d, k), float32 (float64 for float64 or
        integers). If the rank is below ``k`` a warning names it, and the columns beyond it are
        arbitrary.

    Raises:
        TypeError: If ``unembedding`` is no tensor.
        ValueError: If it is not a finite real matrix, or ``k`` is not in 1 ... min(V, d).

    Example:
        >>> readout_basis(torch.diag(torch.tensor([1.0, -3.0, 2.0])), 2)
        tensor([[0., 0.],
                [1., 0.],
                [0., 1.]])
    """
    basis, rank = readout_subspace(unembedding, k, centered=centered)
    if rank < k:
        warnings.warn(
            f"unembedding: rank {rank} is below k = {k}; the last {k - rank} columns are arbitrary",
            stacklevel=2,
        )
    return basis


def readout_subspace(unembedding: Tensor, k: int, *, centered: bool) -> ReadoutSubspace:
    """`readout_basis` with the number of its columns that are not arbitrary, without a warning."""
    rows = finite_real("unembedding", unembedding)
    integer_at_least("k", k, 1)
    flag("centered", centered)
    most = min(rows.shape)
    at_most("k", k, most, limit=f"min(V, d) = {most}", advice="choose a smaller subspace")
    return _readout_subspace(rows, k, centered=centered)


@full_precision
def haar_bases(dim: int, k: int, num: int, *, generator: torch.Generator) -> Tensor:
    """Orthonormal bases of ``num`` independent uniformly distributed subspaces.

    Uniform (Haar) on the Stiefel manifold, hence their spans on the Grassmannian: the factor Q
    of a Gaussian matrix whose triangular factor has a positive diagonal.

    Args:
        dim: Dimension d of the space.
        k: Dimension of the subspaces, at most ``dim``.
        num: Number of subspaces.
        generator: Source of the draws; its device is the result's.

    Returns:
        Float32 tensor of shape (num, dim, k).

    Raises:
        ValueError: If a number is below 1 or ``k`` is above ``dim``.
    """
    integer_at_least("dim", dim, 1)
    integer_at_least("num", num, 1)
    require_subspace("k", integer_at_least("k", k, 1), dim)
    instance("generator", generator, torch.Generator)
    require_memory("dim, k, num", num, dim, k)
    frames = (gaussian_frame(dim, k, generator) for _ in range(num))
    return torch.stack([gaussian @ whitening for gaussian, whitening in frames])


def remove_components(hidden: Tensor, num_components: int) -> Tensor:
    """Subtract the mean and project out the first principal components (CCR-r, arXiv 2605.17084).

    Args:
        hidden: Real tensor of shape (N, d), or (L, N, d) for L layers, each by itself.
        num_components: Number r of components, below min(N, d). 0 subtracts the mean only.

    Returns:
        Tensor of the same shape, float32 (float64 for float64 or integers).

    Raises:
        TypeError: If ``hidden`` is no tensor.
        ValueError: If it is not finite and real, or ``num_components`` is out of range.

    Example:
        >>> remove_components(torch.tensor([[3.0, 1.0], [-3.0, 1.0], [0.0, 4.0]]), 1)
        tensor([[ 0., -1.],
                [ 0., -1.],
                [ 0.,  2.]])
    """
    values = finite_float("hidden", hidden, dims=(2, 3))
    integer_at_least("num_components", num_components, 0)
    require_components("num_components", num_components, values)
    layers = values if values.ndim == 3 else values[None]
    residuals = [_rescaled_residual(layer, num_components) for layer in layers]
    return torch.stack(residuals).reshape(values.shape)


def require_subspace(name: str, k: int, dim: int) -> None:
    """Raise a ValueError if a k-dimensional subspace does not fit."""
    limit, given = f"d = {dim} dimensions", f"k = {k}"
    at_most(name, k, dim, limit=limit, given=given, advice="choose a smaller subspace")


def orthonormal_basis(name: str, basis: Tensor, dim: int) -> Tensor:
    """Return a checked basis, or raise an error if it is no basis of a subspace of R^dim."""
    columns = finite_float(name, basis)
    if len(columns) != dim:
        raise ValueError(
            f"{name}: expected {dim} rows, the width of the hidden states, "
            f"got shape {tuple(columns.shape)}; pass the basis of the same model"
        )
    require_subspace(name, columns.shape[1], dim)
    gram = columns.double().mT @ columns.double()
    error = float((gram - torch.eye(len(gram), device=gram.device)).abs().max())
    if error > MAX_BASIS_ERROR:
        raise ValueError(
            f"{name}: expected orthonormal columns, got B^T B that differs from I by {error:.1e}; "
            "use readout_basis"
        )
    return columns


def require_components(name: str, num: int, hidden: Float[Tensor, "*layers n d"]) -> None:
    """Raise a ValueError unless something can remain after ``num`` components are removed."""
    limit = min(hidden.shape[-2:])
    label = f"min(N, d) = {limit} components"
    fewer_than(name, num, limit, limit=label, advice="remove fewer")


def gaussian_frame(
    dim: int, k: int, generator: torch.Generator, *, rows: int | None = None
) -> tuple[Float32[Tensor, "rows k"], Float32[Tensor, "k k"]]:
    """Matrices A and W whose product A W is a uniformly distributed orthonormal basis.

    Where ``rows`` is well below ``dim``, only the first ``rows`` coordinates are those of the
    whole space: a rotation of the others has gathered their part in k more.
    """
    options: dict[str, Any] = {"dtype": torch.float32, "device": generator.device}
    rest = 0 if rows is None else dim - rows
    if rest <= k or dim < 2 * k:
        rest = 0
    gaussian = torch.randn(dim - rest, k, generator=generator, **options)
    if dim < 2 * k:
        # Here A^T A, which squares the condition number, would cost digits.
        orthonormal, triangle = torch.linalg.qr(gaussian)
        signs = torch.where(triangle.diagonal() < 0, -1.0, 1.0)
        return orthonormal, torch.diag(signs.to(gaussian))
    if rest:
        gaussian = torch.cat([gaussian, _gaussian_triangle(rest, k, generator)])
    lower = torch.linalg.cholesky(lower_gram(gaussian.mT))
    identity = torch.eye(k, **options)
    return gaussian, torch.linalg.solve_triangular(lower, identity, upper=False).mT


def _gaussian_triangle(num_rows: int, k: int, generator: torch.Generator) -> Float32[Tensor, "k k"]:
    """Triangular factor R of a Gaussian matrix of ``num_rows`` >= k rows (Bartlett 1933)."""
    device = generator.device
    triangle = torch.randn(k, k, generator=generator, device=device, dtype=torch.float32).triu(1)
    uniform = torch.rand(k, generator=generator, device=device, dtype=torch.float64)
    freedom = np.arange(num_rows, num_rows - k, -1)
    squares = 2 * gammaincinv(freedom / 2, uniform.cpu().numpy())
    triangle.diagonal().copy_(torch.from_numpy(np.sqrt(squares)))
    return triangle


def residual(hidden: Float[Tensor, "n d"], num_components: int) -> Float64[Tensor, "n d"]:
    """One balanced layer without its mean and its first principal components."""
    centered = center(hidden)
    return project_out(centered, principal_axes(centered, num_components))


def _rescaled_residual(hidden: Float[Tensor, "n d"], num_components: int) -> Float[Tensor, "n d"]:
    """`residual` of a layer of any scale, in its dtype."""
    values = hidden.double()
    exponent = excess_exponent(values, torch.float64)
    rest = residual(times_power(values, -exponent), num_components)
    return times_power(rest, exponent).to(hidden.dtype)


def _readout_subspace(rows: Real[Tensor, "v d"], k: int, *, centered: bool) -> ReadoutSubspace:
    """`readout_subspace` of checked input."""
    dtype = lift(rows[:0]).dtype
    values, vectors = top_eigenpairs(_row_gram(rows, dtype, centered=centered), k)
    if dtype == torch.float32 and values[-1] < RESOLVED * values[0]:
        gram = _row_gram(rows, torch.float64, centered=centered)
        values, vectors = top_eigenpairs(gram, k)
    rank = int((values > RANK_TOLERANCE * values[0]).sum())
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    return ReadoutSubspace((vectors * torch.where(largest < 0, -1.0, 1.0)).to(dtype), rank)


@full_precision
def _row_gram(
    rows: Real[Tensor, "v d"], dtype: torch.dtype, *, centered: bool
) -> Float64[Tensor, "d d"]:
    """Sum of x^T x over the rows near 1: products in ``dtype``, chunks summed in float64."""
    exponent = excess_exponent(rows, dtype)
    chunks = torch.split(rows, CHUNK_SIZE)
    gram = rows.new_zeros(rows.shape[1], rows.shape[1], dtype=torch.float64)
    mean = torch.zeros_like(gram[0])
    for chunk in chunks if centered else ():
        mean += times_power(chunk.to(dtype), -exponent).sum(0, dtype=torch.float64) / len(rows)
    for chunk in chunks:
        lifted = times_power(chunk.to(dtype), -exponent)
        gram += lower_gram((lifted - mean.to(dtype) if centered else lifted).mT)
    return gram
