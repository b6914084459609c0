"""The Gram matrix of unit rows in tiles: its largest entry, its powers and their products."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from toolkit.functional._precision import full_precision
from toolkit.functional._scale import row_norms, unit_rows

# On a CPU two float32 tiles fit into the second-level cache; elsewhere launches cost more.
_CPU_TILE, _DEVICE_TILE = 384, 4096
# Outside, float32 could not hold the scaled cosines.
_SENSIBLE_SCALES = (1e-30, 1e10)
# Sums of powers outside may have lost terms to overflow or underflow in float32.
_SAFE_TOTALS = (1e-20, 1e20)
# Powers below this change no sum of at least 1e-20; denormal numbers are slow on some processors.
_NEGLIGIBLE = 1e-35


class _PowerSums(NamedTuple):
    """Sums over pairs of powers of x = G / scale, G without its diagonal.

    Attributes:
        product: P U with P = sign(x) |x|^(p-1), shape (k, d).
        radial: Its component along each row of U, shape (k, 1).
        total: S, the sum of |x|^p.
        largest: Largest |cosine|.
    """

    product: Tensor
    radial: Tensor
    total: float
    largest: float


@full_precision
def penalty_and_gradient(
    units: Float[Tensor, "k d"], exponent: float, scale: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, "k d"]]:
    """Penalty, largest |cosine| and the penalty's gradient in the tangent space of the sphere.

    For any scale M the penalty is M S^(1/p) and its gradient in U is 2 S^(1/p - 1) P U.
    """
    tiny = torch.finfo(units.dtype).tiny
    if not _SENSIBLE_SCALES[0] < scale < _SENSIBLE_SCALES[1]:
        scale = max(largest_cosine(units), tiny)
    sums = _power_sums(units, exponent, scale)
    if sums.largest and not _SAFE_TOTALS[0] < sums.total < _SAFE_TOTALS[1]:
        scale = max(sums.largest, tiny)
        sums = _power_sums(units, exponent, scale)
    if sums.total <= 0:  # orthogonal up to the rounding of the dtype
        return units.new_zeros(()), units.new_tensor(sums.largest), torch.zeros_like(units)
    # Moving a vector along itself changes no cosine.
    gradient = sums.product.addcmul_(sums.radial, units, value=-1)
    gradient *= 2 * sums.total ** (1 / exponent - 1)
    penalty = scale * sums.total ** (1 / exponent)
    return units.new_tensor(penalty), units.new_tensor(sums.largest), gradient


def _power_sums(units: Float[Tensor, "k d"], exponent: float, scale: float) -> _PowerSums:
    product = torch.zeros_like(units)
    extremes: list[Tensor] = []
    smallest = _NEGLIGIBLE ** (1 / (exponent - 1))
    spare: Tensor | None = None
    for rows, columns, tile in _tiles(units, 1 / scale):
        extremes += torch.aminmax(tile)
        torch.hardshrink(tile, smallest, out=tile)
        spare = torch.empty_like(tile) if spare is None else spare
        powers = _signed_power_(tile, exponent - 1, spare[: tile.shape[0], : tile.shape[1]])
        product[rows].addmm_(powers, units[columns])
        if rows != columns:
            product[columns].addmm_(powers.T, units[rows])
    radial = (product * units).sum(1, keepdim=True)
    total = float(radial.sum(dtype=torch.float64)) / scale
    largest = min(1.0, float(torch.stack(extremes).abs().max()) * scale)
    return _PowerSums(product, radial, total, largest)


def _tiles(
    units: Float[Tensor, "k d"], factor: float
) -> Iterator[tuple[slice, slice, Float[Tensor, "rows columns"]]]:
    """Yield each tile of the upper triangle of ``factor`` G, zero on G's diagonal."""
    size = _CPU_TILE if units.device.type == "cpu" else _DEVICE_TILE
    buffer = units.new_empty(min(size, len(units)), min(size, len(units)))
    slices = [slice(start, start + size) for start in range(0, len(units), size)]
    for number, rows in enumerate(slices):
        for columns in slices[number:]:
            left, right = units[rows], units[columns].T
            tile = buffer[: left.shape[0], : right.shape[1]]
            torch.addmm(tile, left, right, beta=0, alpha=factor, out=tile)
            yield rows, columns, tile.fill_diagonal_(0) if rows == columns else tile


def _signed_power_(
    base: Float[Tensor, "n m"], exponent: float, out: Float[Tensor, "n m"]
) -> Float[Tensor, "n m"]:
    """sign(x) |x|^exponent, in place or in ``out``."""
    if not exponent.is_integer():
        return torch.abs(base, out=out).pow_(exponent).copysign_(base)
    power = base
    for bit in bin(int(exponent))[3:]:
        power = torch.mul(power, power, out=out)
        if bit == "1":
            power.mul_(base)
    return power if exponent % 2 else power.copysign_(base)


@full_precision
def largest_cosine(units: Float[Tensor, "k d"], *, stop_at: float = math.inf) -> float:
    """Largest |cosine|, or the first value that reaches ``stop_at``."""
    largest = 0.0
    for *_, tile in _tiles(units, 1.0):
        low, high = torch.aminmax(tile)
        largest = max(largest, -float(low), float(high))
        if largest >= stop_at:
            break
    return min(1.0, largest)


def normalised(vectors: Float[Tensor, "k d"]) -> tuple[Float[Tensor, "k d"], Float[Tensor, "k 1"]]:
    """Unit rows and norms."""
    # Rounded norms would shift all powers of a row.
    norms = row_norms(vectors)
    num_bad = int((~(norms > 0) | norms.isinf()).sum())
    if num_bad:
        raise ValueError(
            f"vectors: expected rows with a direction, got {num_bad} of {len(vectors)} with norm 0 "
            "or beyond the dtype; drop or rescale them first"
        )
    return unit_rows(vectors.double(), norms).to(vectors.dtype), norms[:, None].to(vectors.dtype)
