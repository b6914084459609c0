"""What a refused call has to look like, and how results are compared."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.adversarial.bad_values import Argument

# Traces of what lies behind the public functions.
_INTERNAL = re.compile(
    r"aten::|c10|at::|RuntimeError|TypeCheckError|Allocator|0x[0-9a-f]{6}|dispatch"
)
_LONGEST = 300


def cases(table: Mapping[str, Mapping[str, Argument]]) -> list[Any]:
    """One parameter set for each bad value of each argument of each call."""
    return [
        pytest.param(call, argument, label, id=f"{call}-{argument}-{label}")
        for call, arguments in table.items()
        for argument in arguments
        for label in arguments[argument].bad
    ]


def right_arguments(arguments: Mapping[str, Argument]) -> dict[str, Any]:
    """Fresh arguments that the call accepts."""
    return {name: argument.right() for name, argument in arguments.items()}


def check_refusal(
    function: Callable[..., Any], arguments: Mapping[str, Argument], name: str, label: str
) -> None:
    """Call with one bad value: one line that begins with the argument, nothing changed."""
    given = right_arguments(arguments) | {name: arguments[name].bad[label]()}
    before = {key: snapshot(value) for key, value in given.items()}
    with pytest.raises((ValueError, TypeError)) as caught:
        function(**given)
    check_message(str(caught.value), name)
    for key, value in given.items():
        assert equal(snapshot(value), before[key]), f"{key} was changed"


def check_message(message: str, name: str) -> None:
    """One line that begins with the argument's name and shows nothing of torch's inside."""
    named = message.partition(":")[0].split(", ")
    assert name in named, message
    assert "\n" not in message, message
    assert len(message) <= _LONGEST, message
    assert not _INTERNAL.search(message), message


def snapshot(value: Any) -> Any:
    """A copy that later changes do not reach."""
    if isinstance(value, Tensor):
        return _values(value)
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {key: snapshot(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [snapshot(part) for part in value]
    return value


def _values(tensor: Tensor) -> Any:
    if tensor.is_meta or tensor.is_nested:
        return tuple(tensor.shape) if tensor.is_meta else len(tensor.unbind())
    dense = tensor.dequantize() if tensor.is_quantized else tensor.detach()
    return dense.to_dense().to(torch.complex128 if tensor.is_complex() else torch.float64)


def equal(first: Any, second: Any, tolerance: float = 0.0) -> bool:
    """Whether two results hold the same numbers; NaN equals NaN."""
    if isinstance(first, Tensor):
        return first.shape == second.shape and torch.allclose(
            first.detach(), second.detach(), rtol=tolerance, atol=tolerance, equal_nan=True
        )
    if isinstance(first, np.ndarray):
        return bool(np.array_equal(first, second, equal_nan=True))
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(
            equal(first[key], second[key], tolerance) for key in first
        )
    if isinstance(first, Sequence) and not isinstance(first, str | bytes):
        pairs = zip(first, second, strict=True)
        return all(equal(a, b, tolerance) for a, b in pairs)
    if isinstance(first, float):
        same = math.isclose(first, second, rel_tol=tolerance, abs_tol=tolerance)
        return same or (math.isnan(first) and math.isnan(second))
    return bool(first == second)
