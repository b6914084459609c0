"""Powers of 2 that bring values near 1, where squares neither overflow nor vanish.

Multiplying by them rounds nothing, so a result that does not depend on the scale is exact.
"""

import math

import numpy as np
import torch
from jaxtyping import Float, Float64, Int32, Real
from torch import Tensor

# Between 2^-n and 2^n the squares of the values are safe, and so are products of their sums.
_SAFE_EXPONENTS = {torch.float32: 30, torch.float64: 200}
# This many rows stay in the cache while their norms are computed.
_LIFT_ROWS = 256


def excess_exponent(values: Real[Tensor, "..."], dtype: torch.dtype) -> int:
    """Return e for which 2^-e brings the largest value near 1.

    0 where squares in ``dtype`` are safe without, and for values that are all 0.
    """
    if values.numel() == 0:
        return 0
    low, high = torch.aminmax(values)
    exponent = math.frexp(max(-float(low), float(high)))[1]
    return 0 if abs(exponent) <= _SAFE_EXPONENTS[dtype] else exponent


def times_power(values: Float[Tensor, "..."], exponent: int) -> Float[Tensor, "..."]:
    """Return ``values`` times 2^exponent; for an exponent of 0 the tensor itself."""
    if exponent == 0:
        return values
    # One factor could overflow although the product does not.
    half = exponent // 2
    return values * math.ldexp(1.0, half) * math.ldexp(1.0, exponent - half)


def balanced(values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return ``values`` near 1 for sums of squares in float64; the tensor itself where it is."""
    # In float64 the squares of every float32 number are safe.
    if values.dtype != torch.float64:
        return values
    return times_power(values, -excess_exponent(values, torch.float64))


def row_norms(rows: Real[Tensor, "n d"]) -> Float64[Tensor, " n"]:
    """Norms in float64: float32 norms have a common bias, which no average removes.

    Infinite only where the norm itself is beyond float64, 0 only for a row of zeros.
    """
    norms = rows.new_empty(len(rows), dtype=torch.float64)
    lifted = norms.new_empty(min(_LIFT_ROWS, len(rows)), rows.shape[1])
    parts = zip(torch.split(rows, _LIFT_ROWS), torch.split(norms, _LIFT_ROWS), strict=True)
    for part, out in parts:
        torch.linalg.vector_norm(lifted[: len(part)].copy_(part), dim=1, out=out)
    if rows.dtype == torch.float64:
        limit = 2.0 ** _SAFE_EXPONENTS[torch.float64]
        extreme = ((norms < 1 / limit) | (norms > limit)).nonzero()[:, 0]
        if len(extreme):
            near_one, exponents = rows_near_one(rows[extreme])
            scaled = torch.linalg.vector_norm(near_one, dim=1)
            norms[extreme] = times_powers(scaled, exponents)
    return norms


def unit_rows(
    rows: Float[Tensor, "n d"],
    norms: Float64[Tensor, " n"],
    *,
    out: Float[Tensor, "n d"] | None = None,
) -> Float[Tensor, "n d"]:
    """Return ``rows``, none of which is 0, over their `row_norms`; written to ``out`` if given."""
    limits = torch.finfo(rows.dtype)
    extreme = ((norms < limits.tiny / limits.eps) | (norms > limits.max)).nonzero()[:, 0]
    if len(extreme):
        near_one, _ = rows_near_one(rows[extreme])
        rows = rows.index_copy(0, extreme, near_one)
        norms = norms.index_copy(0, extreme, row_norms(near_one))
    return torch.div(rows, norms.to(rows.dtype)[:, None], out=out)


def rows_near_one(rows: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], Int32[Tensor, " n"]]:
    """Return each row times a power of 2, and the exponent that undoes it."""
    exponents = torch.frexp(rows.abs().amax(1)).exponent
    return times_powers(rows.T, -exponents).T, exponents


def times_powers(
    values: Float[Tensor, "*d n"], exponents: Int32[Tensor, " n"]
) -> Float[Tensor, "*d n"]:
    """Multiply along the last dimension by powers of 2, exactly, which torch's own need not be."""
    half = exponents // 2
    for part in (half, exponents - half):
        factors = torch.from_numpy(np.ldexp(1.0, part.cpu().numpy()))
        values = values * factors.to(values)
    return values
