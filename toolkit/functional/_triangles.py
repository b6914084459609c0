"""Inner products of all rows, computed once for each pair."""

import torch
from jaxtyping import Float
from torch import Tensor

# Few enough rows at a time to skip nearly all of the other triangle.
BLOCK_ROWS = 128


def lower_gram(rows: Float[Tensor, "n k"]) -> Float[Tensor, "n n"]:
    """Inner products on and below the diagonal; what lies above is undefined."""
    gram = rows.new_empty(len(rows), len(rows))
    for start in range(0, len(rows), BLOCK_ROWS):
        stop = start + BLOCK_ROWS
        torch.mm(rows[start:stop], rows[:stop].mT, out=gram[start:stop, :stop])
    return gram


def lower_product(
    lower: Float[Tensor, "n n"], columns: Float[Tensor, "n k"]
) -> Float[Tensor, "n k"]:
    """Product of a lower triangular matrix with ``columns``."""
    product = columns.new_empty(len(lower), columns.shape[1])
    for start in range(0, len(lower), BLOCK_ROWS):
        stop = start + BLOCK_ROWS
        torch.mm(lower[start:stop, :stop], columns[:stop], out=product[start:stop])
    return product
