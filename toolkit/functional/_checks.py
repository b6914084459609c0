"""Checks of arguments: one-line errors that begin with the argument's name.

Each function returns the checked value. Numbers are plain or numpy numbers, never bools. A wrong
type instead of a tensor or generator is a TypeError, every other fault a ValueError.
"""

import math
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")

_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_INTEGERS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_LAST_SEED = 2**64 - 1
# Up to here float64 and int64 hold every integer, and small multiples of it.
LARGEST_INTEGER = 2**53 - 1
# The error of a mean falls with the root of the number of draws: a larger number is a slip.
MOST_DRAWS = 1_000_000
# For systems that do not report their memory: more than any machine has.
_LARGEST_MEMORY = 2**46


def finite_float(name: str, tensor: object, *, dims: tuple[int, ...] = (2,)) -> Tensor:
    """Return ``tensor`` detached as float32 or float64, or raise a one-line error with the fault.

    Args:
        name: The public argument's name, used in the message.
        tensor: Any real tensor. Half precision is lifted to float32, integers to float64.
        dims: Allowed numbers of dimensions.

    Raises:
        TypeError: If ``tensor`` is no tensor.
        ValueError: If it is not dense, of another kind of number, has another number of
            dimensions, is empty, has no values (meta), or holds non-finite values.
    """
    return lift(finite_real(name, tensor, dims=dims))


def finite_real(name: str, tensor: object, *, dims: tuple[int, ...] = (2,)) -> Tensor:
    """Check like `finite_float`, but keep the dtype: nothing of the tensor's size is allocated."""
    values = real_tensor(name, tensor, dims=dims)
    # The extremes carry every NaN and infinity along, without a mask the size of the tensor.
    if not all(torch.isfinite(extreme) for extreme in torch.aminmax(values)):
        chunks = torch.split(values, 1024)
        num_bad = sum(int((~torch.isfinite(chunk)).sum()) for chunk in chunks)
        raise ValueError(
            f"{name}: expected finite values, got {num_bad} non-finite of {values.numel()}; "
            "repair or drop them first"
        )
    return values


def real_tensor(name: str, tensor: object, *, dims: tuple[int, ...] = (2,)) -> Tensor:
    """Check like `finite_float`, but let non-finite values pass and keep the dtype."""
    values = dense_tensor(name, tensor)
    if values.is_complex() or values.dtype == torch.bool:
        raise ValueError(f"{name}: expected real numbers, got dtype {values.dtype}")
    if values.dtype not in _FLOATS | _INTEGERS:
        raise ValueError(
            f"{name}: expected at least 16-bit floats or plain integers, got dtype "
            f"{values.dtype}; convert them first, for example with .float()"
        )
    if values.ndim not in dims:
        wanted = " or ".join(str(number) for number in dims)
        raise ValueError(
            f"{name}: expected {wanted} dimensions, got shape {tuple(values.shape)}; reshape it"
        )
    if values.numel() == 0:
        raise ValueError(f"{name}: expected at least one value, got shape {tuple(values.shape)}")
    return values


def dense_tensor(name: str, tensor: object) -> Tensor:
    """Return ``tensor`` detached if it holds its values in plain memory, whatever their dtype.

    A pending negation, as in the imaginary part of a conjugate, is carried out.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.is_meta:
        raise ValueError(f"{name}: expected values, got a tensor on the meta device; load it first")
    if tensor.is_quantized:
        raise ValueError(
            f"{name}: expected plain values, got a quantised tensor; call dequantize() first"
        )
    if tensor.is_nested or tensor.layout != torch.strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise ValueError(
            f"{name}: expected a dense tensor, got a {kind} one; call to_dense() or pad it first"
        )
    return tensor.detach().resolve_neg()


def integer_tensor(name: str, tensor: object, *, dims: tuple[int, ...] = (1,)) -> Tensor:
    """Check that a dense tensor holds integers, and its number of dimensions; it may be empty."""
    values = dense_tensor(name, tensor)
    if values.dtype not in _INTEGERS:
        raise ValueError(f"{name}: expected integers, got dtype {values.dtype}; use {name}.long()")
    if values.ndim not in dims:
        wanted = " or ".join(str(number) for number in dims)
        raise ValueError(
            f"{name}: expected {wanted} dimensions, got shape {tuple(values.shape)}; reshape it"
        )
    return values


def of_shape(
    name: str, tensor: Tensor, shape: tuple[int, ...], *, reason: str = "", advice: str = ""
) -> Tensor:
    """Return ``tensor``, or raise a ValueError if it has another shape.

    Args:
        name: The public argument's name.
        tensor: A checked tensor.
        shape: The shape that it must have.
        reason: Text of the message after that shape; empty by default.
        advice: Advice at the end of the message; empty by default.
    """
    if tensor.shape != shape:
        end = f"; {advice}" if advice else ""
        raise ValueError(
            f"{name}: expected shape {tuple(shape)}{reason}, got {tuple(tensor.shape)}{end}"
        )
    return tensor


def one_length(name: str, columns: Sequence[Tensor]) -> None:
    """Raise a ValueError unless all columns have the same number of values."""
    sizes = [len(column) for column in columns]
    if len(set(sizes)) > 1:
        raise ValueError(f"{name}: expected columns of one length, got lengths {sizes}")


def as_many(name: str, values: Tensor, other_name: str, others: Tensor) -> None:
    """Raise a ValueError unless two columns have the same number of values."""
    if len(values) != len(others):
        raise ValueError(
            f"{name}: expected as many values as {other_name}, got {len(values)} and {len(others)}"
        )


def lift(tensor: Tensor) -> Tensor:
    """Lift half precision to float32 and integers to float64; leave float32 and float64 alone."""
    if not tensor.is_floating_point():
        return tensor.double()
    return tensor.float() if tensor.dtype.itemsize < torch.float32.itemsize else tensor


def integer_at_least(
    name: str, value: object, minimum: int, *, most: int | float = LARGEST_INTEGER
) -> int:
    """Return ``value``, or raise a ValueError if it is no integer in this range.

    Only for formulas in plain Python numbers, ``most`` may be infinite.
    """
    if not is_integer(value) or value < minimum:
        raise ValueError(f"{name}: expected an integer of at least {minimum}, got {shown(value)}")
    if value > most:
        raise ValueError(
            f"{name}: expected an integer from {minimum} to {most:,}, got {shown(value)}"
        )
    return value


def at_most(
    name: str, value: int, most: int, *, limit: str = "", given: str = "", advice: str = ""
) -> int:
    """Return ``value``, or raise a ValueError if it is above a limit that depends on other data.

    Args:
        name: The public argument's name.
        value: The value.
        most: Largest value that is allowed.
        limit: Name of the limit in the message; the number by default.
        given: Text for the given value in the message; the value by default.
        advice: Advice at the end of the message; empty by default.
    """
    return _limited(name, value, value <= most, f"at most {limit or most}", advice, given=given)


def fewer_than(name: str, value: int, end: int, *, limit: str = "", advice: str = "") -> int:
    """Check like `at_most`, but refuse the limit, too."""
    return _limited(name, value, value < end, f"fewer than {limit or end}", advice)


def enough(
    name: str, number: int, least: int, things: str, *, given: str = "", advice: str = ""
) -> int:
    """Return the number of some things, or raise a ValueError if it is too small.

    Args:
        name: The public argument's name.
        number: Number of the things.
        least: Smallest number that is allowed.
        things: Noun for the counted objects in the message.
        given: Text for the given number in the message; the number by default.
        advice: Advice at the end of the message; empty by default.
    """
    good = number >= least
    return _limited(name, number, good, f"at least {least} {things}", advice, given=given)


def number_of_draws(name: str, value: object, minimum: int) -> int:
    """Return ``value`` if it is an integer from ``minimum`` to 1,000,000."""
    return integer_at_least(name, value, minimum, most=MOST_DRAWS)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether it is an int; a bool counts as none."""
    return isinstance(value, int) and not isinstance(value, bool)


def integers_at_least(name: str, values: object, minimum: int) -> list[int]:
    """Return one or more integers as a list; a number alone or a string is a ValueError."""
    listed = _items(name, values, "integers")
    return [integer_at_least(name, value, minimum) for value in listed]


def as_float(value: object) -> float:
    """Return a plain or numpy number as a float, NaN for too large numbers and for other types."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def valid_seed(name: str, value: object) -> int:
    """Return ``value`` if every generator takes it as a seed."""
    return integer_at_least(name, value, 0, most=_LAST_SEED)


def finite(name: str, value: Value) -> Value:
    """Return ``value`` if it is a finite number."""
    return _within(name, value, math.isfinite(as_float(value)), "a finite number")


def number_at_least(
    name: str, value: Value, minimum: int | float, *, most: int | float = math.inf
) -> Value:
    """Return ``value`` if it is a finite number from ``minimum`` to ``most``."""
    good = minimum <= as_float(value) < math.inf
    _within(name, value, good, f"a finite number of at least {minimum:g}")
    return _within(name, value, as_float(value) <= most, f"a number from {minimum:g} to {most:,}")


def positive(name: str, value: Value) -> Value:
    """Return ``value`` if it is a finite number above 0."""
    return _within(name, value, 0 < as_float(value) < math.inf, "a positive finite number")


def share(name: str, value: Value) -> Value:
    """Return ``value`` if it is between 0 and 1, both included."""
    return _within(name, value, 0 <= as_float(value) <= 1, "a share between 0 and 1")


def inner_share(name: str, value: Value, *, below: int | float = 1) -> Value:
    """Return ``value`` if it is above 0 and below the limit, neither included."""
    good = 0 < as_float(value) < below
    return _within(name, value, good, f"a share above 0 and below {below:g}")


def positives(name: str, value: object) -> list[float]:
    """Return one or several positive numbers as a list of floats."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    several = [as_float(each) for each in value] if is_list else [as_float(value)]  # type: ignore[attr-defined]
    good = bool(several) and all(0 < each < math.inf for each in several)
    _within(name, value, good, "one or several positive finite numbers")
    return several


def moment_decays(name: str, value: object) -> tuple[float, float]:
    """Return the decay rates of Adam's two moments, both in [0, 1)."""
    first, second = pair(name, value, "two numbers in [0, 1)")
    if not (0 <= as_float(first) < 1 and 0 <= as_float(second) < 1):
        raise ValueError(f"{name}: expected two numbers in [0, 1), got {shown(value)}")
    return first, second


def pair(name: str, value: object, expected: str) -> tuple[Any, Any]:
    """Return a tuple or list of two as a tuple."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise ValueError(f"{name}: expected {expected}, got {shown(value)}")
    return value[0], value[1]


def flag(name: str, value: Value) -> Value:
    """Return ``value`` if it is True or False."""
    return _within(name, value, isinstance(value, bool), "True or False")


def one_of(name: str, value: Value, *choices: str | None) -> Value:
    """Return ``value`` if it is one of the choices: strings or None."""
    known = [choice for choice in choices if choice is not None]
    good = value in known if isinstance(value, str) else value is None and None in choices
    listed = [*map(repr, known), *(["None"] if None in choices else [])]
    return _within(name, value, good, f"{', '.join(listed[:-1])} or {listed[-1]}")


def valid_text(name: str, value: Value) -> Value:
    """Return ``value`` if it is a string with something in it that a file name could hold."""
    good = isinstance(value, str) and bool(value) and "\0" not in value
    return _within(name, value, good, "a string that is not empty")


def strings(name: str, values: object) -> list[str]:
    """Return one or more strings as a list; a string alone is a ValueError."""
    return [valid_text(name, value) for value in _items(name, values, "strings")]


def names(name: str, values: object) -> list[str]:
    """Return one or more strings, each of them once, as a list."""
    return different(name, strings(name, values))


def different(name: str, values: list[Value]) -> list[Value]:
    """Return ``values`` if none of them stands there twice."""
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise ValueError(f"{name}: expected each entry once, got {shown(twice)} twice")
    return values


def text_mapping(name: str, value: Value) -> Value:
    """Return ``value`` if it gives strings by names."""
    good = isinstance(value, Mapping) and all(
        isinstance(part, str) for item in value.items() for part in item
    )
    return _within(name, value, good, "strings by names")


def instance(name: str, value: object, kind: type[Value]) -> Value:
    """Return ``value`` if it is of the class, else raise a TypeError."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}: expected {_article(kind)}, got {type(value).__name__}")
    return value


def function(name: str, value: Value) -> Value:
    """Return ``value`` if it can be called."""
    return _within(name, value, callable(value), "a function")


def optional(check: Callable[[str, Any], object], name: str, value: Value) -> Value:
    """Return ``value`` if it is None or passes the check."""
    if value is not None:
        check(name, value)
    return value


def source_of_draws(
    generator: object, *, device: torch.device | str = "cpu", anywhere: bool = False
) -> torch.Generator:
    """Return ``generator``, or for None a new generator with seed 0.

    Args:
        generator: The public argument of that name.
        device: Device of a new generator.
        anywhere: Whether the given generator may draw on another kind of device.

    Raises:
        TypeError: If ``generator`` is no generator.
        ValueError: If it is on another kind of device.
    """
    if generator is None:
        return torch.Generator(device).manual_seed(0)
    draws = instance("generator", generator, torch.Generator)
    if not anywhere and draws.device.type != torch.device(device).type:
        raise ValueError(
            f"generator: expected one on {device}, got one on {draws.device}; "
            f"use torch.Generator({str(device)!r})"
        )
    return draws


def require_memory(name: str, *sizes: int, itemsize: int = 4) -> None:
    """Raise a ValueError for a result of ``sizes`` that no memory of this machine could hold.

    The system may promise any amount, and end the process when it is used.
    """
    needed = math.prod(sizes) * itemsize
    if needed > _memory():
        shape = " x ".join(map(shown, sizes))
        raise ValueError(
            f"{name}: expected what fits into memory, got {shape} numbers, more than the "
            f"{_memory() / 2**30:.0f} GiB of this machine; take fewer"
        )


def shown(value: object) -> str:
    """Return ``value`` for a message, on one line of moderate length."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, int) and abs(value) >= 10**30:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, Sequence | Mapping | int | float | type(None)):
        return " ".join(_SHORT.repr(value).split())
    return f"an object of type {type(value).__name__}"


def shown_list(values: Sequence[object], most: int, *, count_rest: bool = False) -> str:
    """Return the first values for a message: ``a, b, ...``, or ``a, b and 3 more``.

    Args:
        values: The values, shown as they print.
        most: Number of values to show.
        count_rest: Whether to give the number of the others instead of dots.
    """
    rest = len(values) - most
    end = f" and {rest} more" if count_rest else ", ..."
    return ", ".join(map(str, values[:most])) + end * (rest > 0)


def _short_repr() -> reprlib.Repr:
    short = reprlib.Repr()
    short.maxstring = short.maxother = 60
    short.maxlist = short.maxtuple = 8
    return short


_SHORT = _short_repr()


def _within(name: str, value: Value, good: bool, expected: str) -> Value:  # noqa: FBT001
    if not good:
        raise ValueError(f"{name}: expected {expected}, got {shown(value)}")
    return value


def _limited(
    name: str,
    value: int,
    good: bool,  # noqa: FBT001
    expected: str,
    advice: str,
    *,
    given: str = "",
) -> int:
    if not good:
        end = f"; {advice}" if advice else ""
        raise ValueError(f"{name}: expected {expected}, got {given or value}{end}")
    return value


def _items(name: str, values: object, kind: str) -> list[Any]:
    """Return a list, tuple or range of at least one item as a list."""
    is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    listed: list[Any] = list(_within(name, values, is_list, f"a list of {kind}"))  # type: ignore[call-overload]
    if not listed:
        raise ValueError(f"{name}: expected one or more {kind}, got none")
    return listed


def _article(kind: type) -> str:
    known = {torch.Generator: "torch.Generator", torch.nn.Module: "torch.nn.Module"}
    name = known.get(kind, kind.__name__)
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _LARGEST_MEMORY
