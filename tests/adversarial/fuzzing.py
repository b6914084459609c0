"""Arguments that hypothesis draws for the functions of the table, most of them right."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.adversarial.bad_values import Argument

_DTYPES = (
    torch.float32,
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int16,
)
# Powers of ten that every value of a Gaussian matrix times them has in the dtype.
_SCALES = {torch.float32: 30, torch.bfloat16: 30, torch.float64: 140, torch.float16: 2}
_KINDS = ("gaussian", "gaussian", "constant", "zeros", "one-hot", "twins", "parallel", "low rank")
_EDGES = (-0.0, 0.0, 1e-300, 1e-30, 0.5, 1.0, 1.5, 2.0, 3.0, 7.5, 1e3, 1e30, 1e300)


@st.composite
def arguments(draw: Any, table: dict[str, Argument]) -> dict[str, Any]:
    """Arguments of one call; sizes that are equal in the table stay equal."""
    sizes: dict[int, int] = {}
    given = {}
    bad = draw(st.sampled_from(["", "", "", *table]))
    for name, argument in table.items():
        right = argument.right()
        if name == bad:
            given[name] = argument.bad[draw(st.sampled_from(sorted(argument.bad)))]()
        elif isinstance(right, Tensor):
            given[name] = draw(_like(name, right, sizes))
        elif isinstance(right, bool) or not isinstance(right, int | float):
            given[name] = right
        else:
            given[name] = draw(_numbers(right))
    return given


def _numbers(right: float) -> Any:
    """The number of the table, and others of its kind."""
    others = st.integers(0, 20) if isinstance(right, int) else st.sampled_from(_EDGES)
    return st.one_of(st.just(right), others)


@st.composite
def _like(draw: Any, name: str, right: Tensor, sizes: dict[int, int]) -> Any:
    """A tensor that takes the place of ``right``."""
    shape = [
        sizes.setdefault(size, draw(st.integers(1, 2 * size) if size > 1 else st.just(size)))
        for size in right.shape
    ]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    if name.startswith("basis"):
        return torch.linalg.qr(torch.randn(*shape, generator=generator)).Q
    if name in {"labels", "mask"}:
        return torch.randint(0, 3 if name == "labels" else 2, shape, generator=generator)
    if name in {"row", "feature"}:
        return torch.randint(0, 3, shape, generator=generator).sort().values
    values = _structured(draw(st.sampled_from(_KINDS)), shape, generator)
    if name in {"x", "y", "dims", "num_vectors", "epsilons", "probabilities"}:
        values = values.abs() / values.abs().max().clamp_min(1)
        return values * right.max() if name == "dims" else values
    return draw(_scaled(values))


@st.composite
def _scaled(draw: Any, values: Tensor) -> Any:
    """Values of any dtype and size, the rows of different ones."""
    dtype = draw(st.sampled_from(_DTYPES))
    if not dtype.is_floating_point:
        return (values * 10).to(dtype)
    limit = _SCALES[dtype]
    exponent = draw(st.one_of(st.just(0), st.integers(-limit, limit)))
    if draw(st.booleans()) and values.ndim > 1:
        values = values * torch.logspace(0, -3, values.shape[-2]).double()[:, None]
    return (values * 10.0**exponent).to(dtype)


def _structured(kind: str, shape: list[int], generator: torch.Generator) -> Tensor:
    gaussian = torch.randn(*shape, generator=generator, dtype=torch.float64)
    last = shape[-1]
    kept = torch.rand(*shape[:-1], 1, generator=generator) < 0.5
    made = {
        "gaussian": gaussian,
        "constant": torch.full_like(gaussian, 0.75),
        "zeros": gaussian * kept,
        "one-hot": torch.nn.functional.one_hot(gaussian.argmax(-1), last).double(),
        "twins": gaussian.where(kept, gaussian.reshape(-1, last)[0]),
        "parallel": 1 + gaussian * 1e-5,
        "low rank": gaussian[..., :1] * torch.arange(1, last + 1),
    }
    return made[kind]
