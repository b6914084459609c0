"""Principal directions of centred points."""

import contextlib

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Float, Float64
from scipy.linalg.blas import dsymv
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from torch import Tensor

from toolkit.functional._triangles import lower_gram

# For smaller matrices a decomposition is faster than an iteration.
LANCZOS_SIZE = 256
# After so many iterations a decomposition takes less time.
LANCZOS_RESTARTS = 30


def center(hidden: Float[Tensor, "n d"]) -> Float64[Tensor, "n d"]:
    """Rows minus their mean, in float64."""
    values = hidden.to(torch.float64, copy=True)
    return values.sub_(values.mean(0))


def principal_axes(centered: Float64[Tensor, "n d"], num: int) -> Float64[Tensor, "d num"]:
    """First principal directions, strongest first; zero where there is no variance left."""
    num_rows, dim = centered.shape
    if num_rows > dim:
        return top_eigenpairs(lower_gram(centered.mT), num)[1]
    values, scores = top_eigenpairs(lower_gram(centered), num)
    exists = values > num_rows * torch.finfo(torch.float64).eps * values[:1]
    axes = centered.mT @ scores
    unit: Tensor = axes / torch.linalg.vector_norm(axes, dim=0).where(exists, torch.inf)
    return unit


def share_inside(
    axes: Float64[Tensor, "d p"], basis: Float64[Tensor, "d k"]
) -> Float64[Tensor, " p"]:
    """Share of each axis' squared length inside the span of ``basis``; NaN for a zero axis."""
    share: Tensor = (basis.mT @ axes).square().sum(0) / axes.square().sum(0)
    return share


def project_out(
    rows: Float64[Tensor, "n d"], axes: Float64[Tensor, "d r"]
) -> Float64[Tensor, "n d"]:
    """Rows without their part along orthonormal ``axes``."""
    return torch.addmm(rows, rows @ axes, axes.mT, alpha=-1)


def top_eigenpairs(
    matrix: Float64[Tensor, "n n"], num: int
) -> tuple[Float64[Tensor, " num"], Float64[Tensor, "n num"]]:
    """Largest eigenvalues, descending, and eigenvectors; only the lower triangle is read."""
    size = len(matrix)
    if num == 0:
        return matrix.new_empty(0), matrix.new_empty(size, 0)
    if matrix.device.type == "cpu":
        found = _top_eigenpairs(matrix.numpy(), num)
        values, vectors = torch.from_numpy(found[0]), torch.from_numpy(found[1])
    else:
        values, vectors = torch.linalg.eigh(matrix, UPLO="L")
        values, vectors = values[-num:], vectors[:, -num:]
    return values.flip(0), vectors.flip(1)


def _top_eigenpairs(matrix: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Largest eigenvalues, ascending, and eigenvectors; only the lower triangle is read."""
    size = len(matrix)
    # An iteration from a single vector cannot find several eigenvectors of an eigenvalue.
    if num == 1 and size >= LANCZOS_SIZE and np.trace(matrix) > 0:
        product = LinearOperator(
            matrix.shape, lambda vector: dsymv(1.0, matrix.T, vector), dtype=matrix.dtype
        )
        start = np.random.default_rng(0).standard_normal(size)
        # Accept only full working precision; otherwise use the decomposition below.
        with contextlib.suppress(ArpackError):
            values, vectors = eigsh(product, 1, which="LA", v0=start, maxiter=LANCZOS_RESTARTS)
            return values, vectors
    # LAPACK by way of scipy computes the wanted pairs only.
    wanted = (size - num, size - 1)
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=wanted, check_finite=False)
    return values, vectors
