"""Features brought to mean 0 and standard deviation 1."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from toolkit.functional._scale import rows_near_one, times_powers

ROWS_PER_BLOCK = 512


class Standardised(NamedTuple):
    """Standardised features, with the means and scales used.

    Attributes:
        design: (feature - mean) / scale, 0 for constant features, and a last column of ones.
        mean: Mean of each feature.
        scale: Standard deviation of each feature (population); 1 for constant ones.
        constant: Whether the feature's spread is below the rounding of its mean.
    """

    design: Float[Tensor, "n e"]
    mean: Float[Tensor, " d"]
    scale: Float[Tensor, " d"]
    constant: Bool[Tensor, " d"]


def standardise(features: Float[Tensor, "n d"]) -> Standardised:
    """Standardise each column.

    Raises:
        ValueError: If a sum over a column of ``features`` overflows their dtype.
    """
    design = features.new_ones(len(features), features.shape[1] + 1)
    columns = design[:, :-1]
    mean = _column_means(features, power=1).to(features.dtype)
    torch.sub(features, mean, out=columns)
    scale, extreme = _spread(columns)
    if len(extreme):
        near_one, exponents = rows_near_one(columns[:, extreme].T)
        scale[extreme] = times_powers(_spread(near_one.T)[0], exponents)
    if not torch.isfinite(scale).all():
        raise ValueError(
            f"features: expected sums within {features.dtype}, got values up to "
            f"{float(features.abs().max()):.1e}; divide them by a constant"
        )
    constant = scale <= torch.finfo(scale.dtype).eps * mean.abs()
    columns /= scale.masked_fill(constant, torch.inf)
    return Standardised(design, mean, scale.masked_fill_(constant, 1), constant)


def _spread(columns: Float[Tensor, "n d"]) -> tuple[Float[Tensor, " d"], Int64[Tensor, " e"]]:
    """Standard deviation of each column, and the columns whose squares leave the dtype."""
    squares = _column_means(columns, power=2)
    # The mean was rounded, so the mean of the centred columns is not exactly 0.
    variance = squares - _column_means(columns, power=1).square()
    limits = torch.finfo(columns.dtype)
    smallest = limits.tiny / limits.eps**2
    extreme = (~((squares > smallest) & torch.isfinite(squares))).nonzero()[:, 0]
    return variance.clamp_(min=0).sqrt_().to(columns.dtype), extreme


def _column_means(matrix: Float[Tensor, "n d"], *, power: int) -> Float64[Tensor, " d"]:
    """Mean of each column's powers; blocks of rows are summed in float64."""
    sums = [block.pow(power).sum(0) for block in torch.split(matrix, ROWS_PER_BLOCK)]
    return torch.stack(sums).double().sum(0) / len(matrix)
