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

Table = Mapping[str, Mapping[str, Argument]]


def arguments_of(table: Table) -> list[Any]:
    """One parameter set for each argument of each call."""
    return [
        pytest.param(call, argument, id=f"{call}-{argument}")
        for call, arguments in table.items()
        for argument in arguments
    ]


def number_of_bad_calls(table: Table) -> int:
    """How many calls with one bad argument the table makes."""
    return sum(len(argument.bad) for call in table.values() for argument in call.values())


def right_arguments(arguments: Mapping[str, Argument]) -> dict[str, Any]:
    """Fresh arguments that the call accepts."""
    return {name: argument.right() for name, argument in arguments.items()}


def check_refusals(
    function: Callable[..., Any], arguments: Mapping[str, Argument], name: str
) -> None:
    """Call with each bad value of an argument: one line that names it, nothing changed."""
    faults = {
        label: fault
        for label, make in arguments[name].bad.items()
        if (fault := _fault(function, right_arguments(arguments) | {name: make()}, name))
    }
    assert not faults, faults


def _fault(function: Callable[..., Any], given: dict[str, Any], name: str) -> str:
    """What is wrong with the refusal of a bad argument; empty if it is right."""
    before = {key: snapshot(value) for key, value in given.items()}
    try:
        function(**given)
    except (ValueError, TypeError) as error:
        fault = message_fault(str(error), name)
    except Exception as error:  # noqa: BLE001 - any other is what is looked for
        return f"{type(error).__name__}: {error}"
    else:
        return "accepted"
    changed = [key for key, value in given.items() if not equal(snapshot(value), before[key])]
    return fault or (f"changed {changed}" if changed else "")


def message_fault(message: str, name: str) -> str:
    """What is wrong with a message: it is one line, names the argument, shows no inside."""
    named = [each.partition("[")[0] for each in message.partition(":")[0].split(", ")]
    good = name in named and "\n" not in message and len(message) <= _LONGEST
    return "" if good and not _INTERNAL.search(message) else message


def check_message(message: str, name: str) -> None:
    """Fail if `message_fault` finds one."""
    assert not message_fault(message, name), message


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
