"""Symmetric matrix products, computed for a single triangle only."""

from typing import Any

import torch
from jaxtyping import Float
from scipy.linalg import get_blas_funcs
from torch import Tensor

# Few enough rows at a time to skip nearly all of the other triangle.
BLOCK_ROWS = 128


def lower_gram(
    rows: Float[Tensor, "n k"], *, out: Float[Tensor, "n n"] | None = None
) -> Float[Tensor, "n n"]:
    """Inner products of the rows, on and below the diagonal; entries above it are undefined.

    They are written to ``out`` where it is given.
    """
    if rows.device.type != "cpu":
        return torch.mm(rows, rows.mT, out=out)
    if rows.numel() == 0:
        # BLAS refuses an empty operand and leaves ``out`` as it was.
        return rows.new_zeros(len(rows), len(rows)) if out is None else out.zero_()
    # Half the work of a general product; torch has no such function.
    values = rows.numpy()
    (syrk,) = get_blas_funcs(("syrk",), (values,))
    options: dict[str, Any] = {"trans": 1} if values.flags.c_contiguous else {}
    if out is not None:
        # Fortran's order, in which it is the triangle on the other side.
        options |= {"c": out.numpy().T, "overwrite_c": 1}
    product = syrk(1.0, values.T if values.flags.c_contiguous else values, **options).T
    return torch.from_numpy(product) if out is None else out


def add_lower(total: Float[Tensor, "n n"], matrix: Float[Tensor, "n n"]) -> None:
    """Add the entries on and below the diagonal, in place; entries above it become undefined."""
    for start in range(0, len(total), BLOCK_ROWS):
        stop = start + BLOCK_ROWS
        total[start:stop, :stop] += matrix[start:stop, :stop]


def mirror_lower(matrix: Float[Tensor, "n n"]) -> None:
    """Copy the entries below the diagonal to above it, in place."""
    for start in range(0, len(matrix), BLOCK_ROWS):
        stop = start + BLOCK_ROWS
        corner = matrix[start:stop, start:stop]
        corner.copy_(corner.tril() + corner.tril(-1).mT)
        matrix[start:stop, stop:] = matrix[stop:, start:stop].mT


def lower_product(
    lower: Float[Tensor, "n n"], columns: Float[Tensor, "n k"]
) -> Float[Tensor, "n k"]:
    """Product of a lower triangular matrix with ``columns``."""
    if lower.device.type != "cpu" or columns.numel() == 0:
        return lower @ columns
    values = columns.numpy()
    (trmm,) = get_blas_funcs(("trmm",), (values,))
    # In Fortran's order both are transposed, and the product is from the right.
    return torch.from_numpy(trmm(1.0, lower.numpy().T, values.T, side=1).T)
