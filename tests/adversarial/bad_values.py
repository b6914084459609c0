"""Kinds of arguments: for each a right value, and values that have to be refused."""

import random
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Values = dict[str, Callable[[], Any]]
# From 2^53 on, float64 skips integers; from 2^63 on, int64 and torch cannot hold them.
BEYOND = {"2^53": 2**53, "2^63": 2**63, "2^70": 2**70, "10^29": 10**29}


class Argument(NamedTuple):
    """An argument of a call.

    Attributes:
        right: Makes a value that is accepted.
        bad: Makes values that are refused, by what is wrong with them.
    """

    right: Callable[[], Any]
    bad: Values

    def without(self, *labels: str) -> "Argument":
        """The same argument where these values are accepted."""
        unknown = set(labels) - self.bad.keys()
        assert not unknown, unknown
        return self._replace(bad={k: v for k, v in self.bad.items() if k not in labels})

    def of_any_size(self) -> "Argument":
        """The same argument of a formula in plain numbers, which takes every size."""
        return self.without(*BEYOND)

    def refusing(self, **values: Any) -> "Argument":
        """The same argument, which refuses more values."""
        return self._replace(bad={**self.bad, **{k: _always(v) for k, v in values.items()}})


def seeded(*shape: int) -> Tensor:
    """Gaussian values, the same at every call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


_NO_NUMBERS: Values = {
    "None": _always(None),
    "text": _always("3"),
    "bytes": _always(b"3"),
    "bool": _always(True),
    "list": lambda: [3],
    "dict": lambda: {"a": 1},
    "complex": _always(1j),
    "tensor": lambda: torch.tensor([3, 4]),
    "object": object,
}
_NOT_FINITE: Values = {
    "nan": _always(float("nan")),
    "inf": _always(float("inf")),
    "minus inf": _always(float("-inf")),
}
_NO_LISTS: Values = {
    "None": _always(None),
    "number": _always(5),
    "float": _always(1.5),
    "text": _always("12"),
    "bytes": _always(b"12"),
    "set": lambda: {1, 2},
    "generator": lambda: (i for i in (1, 2)),
    "empty": list,
    "tensor": lambda: torch.tensor([1, 2]),
}


def integer(right: int, least: int = 1, *, optional: bool = False) -> Argument:
    """An integer of at least ``least``."""
    bad = _NO_NUMBERS | _NOT_FINITE
    bad |= {"float": _always(right + 0.5), "whole float": _always(float(right))}
    bad |= {"too small": _always(least - 1), "negative": _always(-(10**400))}
    bad |= {label: _always(value) for label, value in BEYOND.items()}
    argument = Argument(_always(right), bad)
    return argument.without("None") if optional else argument


def seed(right: int = 0, *, optional: bool = False) -> Argument:
    """A seed."""
    argument = integer(right, 0, optional=optional).without("2^53", "2^63")
    return argument.refusing(**{"too large": 2**64})


def draws(right: int, least: int) -> Argument:
    """A number of draws, up to a million."""
    return integer(right, least).refusing(**{"too many": 1_000_001})


def number(right: float, *, bad: Iterable[float] = (), optional: bool = False) -> Argument:
    """A finite number; ``bad`` ones are out of range."""
    values = _NO_NUMBERS | _NOT_FINITE | {"huge": _always(10**400)}
    values |= {f"{value}": _always(value) for value in bad}
    argument = Argument(_always(right), values)
    return argument.without("None") if optional else argument


def positive(right: float, *, optional: bool = False) -> Argument:
    """A finite number above 0."""
    return number(right, bad=(0, -0.0, -1e-9), optional=optional)


def numbers(right: list[float]) -> Argument:
    """One or several finite numbers above 0."""
    bad = {k: v for k, v in _NO_NUMBERS.items() if k != "list"} | _NOT_FINITE
    lists: tuple[Any, ...] = ([], [0.0], [1.0, float("nan")], [None], ["1"], [True], [[1.0]])
    return Argument(_always(right), bad | {f"list {value}": _always(value) for value in lists})


def flag(right: bool = False) -> Argument:
    """True or False."""
    bad = {label: value for label, value in _NO_NUMBERS.items() if label != "bool"}
    return Argument(_always(right), bad | {"zero": _always(0), "one": _always(1)})


def choice(right: str | None, *, optional: bool = False) -> Argument:
    """One of a few strings."""
    bad = {**_NO_NUMBERS, "unknown": _always("nope"), "empty": _always("")}
    argument = Argument(_always(right), bad)
    return argument.without("None") if optional else argument


def text(right: str | None, *, optional: bool = False) -> Argument:
    """A string."""
    bad = {label: value for label, value in _NO_NUMBERS.items() if label != "text"}
    bad |= {"empty": _always(""), "NUL": _always("a\0b"), "number": _always(5)}
    argument = Argument(_always(right), bad)
    return argument.without("None") if optional else argument


def pair(right: tuple[Any, Any], *bad: Any) -> Argument:
    """A tuple or list of two."""
    lists = ((), (1,), (1, 2, 3), ["a", "b"], (None, None), *bad)
    values = _NO_LISTS | {f"pair {value!r}": _always(value) for value in lists}
    return Argument(_always(right), values)


def integers(right: list[int], least: int, *, single: bool = False) -> Argument:
    """A list of integers, or where ``single`` one of them."""
    lists = ([1.5], [True], [None], ["1"], [[1]], [float("nan")], [least - 1])
    bad = _NO_LISTS | {f"list {value}": _always(value) for value in lists}
    bad |= {f"list {label}": _always([value]) for label, value in BEYOND.items()}
    argument = Argument(_always(right), bad)
    return argument.without("number").refusing(**BEYOND) if single else argument


def names(right: list[str] | None, *, optional: bool = False) -> Argument:
    """A list of different strings."""
    lists = ([""], [1], [None], ["a", "a"], [["a"]], [b"a"], ["a\0"])
    bad = _NO_LISTS | {f"list {value}": _always(value) for value in lists}
    argument = Argument(_always(right), bad)
    return argument.without("None") if optional else argument


def generator(*, optional: bool = True) -> Argument:
    """A source of random numbers."""
    values = {
        "None": _always(None),
        "seed": _always(0),
        "text": _always("0"),
        "numpy": lambda: np.random.default_rng(0),
        "random": random.Random,
        "class": _always(torch.Generator),
    }
    argument = Argument(lambda: torch.Generator().manual_seed(0), values)
    return argument.without("None") if optional else argument


def anything_but(right: Callable[[], Any], *extra: Any) -> Argument:
    """An object of a class of its own."""
    bad = _NO_NUMBERS | {f"{value!r}": _always(value) for value in extra}
    return Argument(right, bad)


_DTYPES = {
    "complex": torch.complex64,
    "bool": torch.bool,
    "float8": torch.float8_e4m3fn,
    "float8 (e5m2)": torch.float8_e5m2,
    "uint16": torch.uint16,
}


def tensor(right: Tensor, *, finite: bool = True, integer: bool = False) -> Argument:
    """A dense tensor of real numbers."""
    bad: Values = {
        "None": _always(None),
        "number": _always(1.5),
        "text": _always("tensor"),
        "list": right.tolist,
        "array": right.numpy,
        "class": _always(Tensor),
        "sparse": lambda: right.clone().to_sparse(),
        "meta": lambda: right.to("meta"),
        "conjugate": lambda: torch.complex(right.float(), right.float()).conj(),
        "nested": lambda: _nested(right),
        "empty": lambda: right[:0],
        "flat": lambda: right.reshape(-1) if right.ndim > 1 else right[None, None, None],
        "deep": lambda: right[None, None, None],
    }
    bad |= {name: _cast(right, dtype) for name, dtype in _DTYPES.items()}
    if right.ndim == 2:
        bad["sparse rows"] = lambda: _unwarned(right.clone().to_sparse_csr)
    if integer:
        bad["float"] = right.float
    else:
        bad["quantised"] = lambda: _unwarned(
            torch.quantize_per_tensor, right.float(), 0.1, 0, torch.qint8
        )
    if finite and not integer:
        bad |= {name: _with_first(right, float(name)) for name in ("nan", "inf", "-inf")}
    return Argument(right.clone, bad)


def _cast(right: Tensor, dtype: torch.dtype) -> Callable[[], Tensor]:
    return lambda: right.to(dtype)


def _with_first(right: Tensor, value: float) -> Callable[[], Tensor]:
    def changed() -> Tensor:
        copy = right.clone() if right.is_floating_point() else right.float()
        copy[(0,) * copy.ndim] = value
        return copy

    return changed


def _unwarned(make: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """The tensor, without torch's warning that its kind is new or old."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(*arguments)


def _nested(right: Tensor) -> Tensor:
    return _unwarned(torch.nested.nested_tensor, [right, right])
