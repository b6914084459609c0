"""Header of a GGUF file, with a check of every field before its use.

The reader of the ``gguf`` package is not used: it keeps each token of the vocabulary as several
numpy arrays, which takes seconds and more memory than a matrix.
"""

import math
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from toolkit.lm.weights.stores import CountedReader

_VERSIONS = (2, 3)
_SCALARS = MappingProxyType(
    {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
)
_STRING, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32
_DEEPEST_ARRAY = 4
_MOST_DIMS = 4
# Bytes of the smallest field (name, type, value of one byte) and tensor (name, type, offset).
_SMALLEST_FIELD, _SMALLEST_INFO = 13, 24
# Entries and bytes of one block of each type, by the number of the type.
BLOCKS: Mapping[int, tuple[int, int]] = MappingProxyType(
    {
        0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
        9: (32, 40), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176),
        14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74), 18: (256, 98),
        19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1),
        25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
        34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
    }
)  # fmt: skip


class TensorInfo(NamedTuple):
    """Type, shape and place of a tensor.

    Attributes:
        kind: Number of its type.
        shape: Its shape, rows first.
        start: Offset of its first byte in the file.
    """

    kind: int
    shape: tuple[int, ...]
    start: int


def read_header(reader: CountedReader) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    """Return the fields and the tensors of a file; strings stay bytes.

    Args:
        reader: The file, opened at its beginning.

    Raises:
        ValueError: If a field is invalid; the message names the field.
    """
    if reader.read(4) != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    version, num_tensors, num_fields = _unpack(reader, "IQQ", "the first 24 bytes")
    if version not in _VERSIONS:
        raise ValueError(f"its version is {version}")
    _check_room(reader, num_fields, _SMALLEST_FIELD, "the number of fields")
    fields: dict[str, Any] = {}
    for index in range(num_fields):
        key = _text(reader, f"the name of field {index}")
        if key in fields:
            raise ValueError(f"the field {key} occurs twice")
        fields[key] = _value(reader, _unpack(reader, "I", key)[0], key)
    _check_room(reader, num_tensors, _SMALLEST_INFO, "the number of tensors")
    infos = [_tensor_info(reader, index) for index in range(num_tensors)]
    alignment = _alignment(fields)
    data_start = -(-reader.tell() // alignment) * alignment
    return fields, _placed(infos, data_start, alignment, reader.size)


def num_bytes(kind: int, shape: tuple[int, ...]) -> int | None:
    """Return the size of a tensor in bytes, None for an unknown type.

    Raises:
        ValueError: If its rows are not whole blocks of the type.
    """
    if kind not in BLOCKS:
        return None
    entries, size = BLOCKS[kind]
    if shape and shape[-1] % entries:
        raise ValueError(f"rows of {shape[-1]} are not whole blocks of {entries}")
    return math.prod(shape) // entries * size


def _alignment(fields: Mapping[str, Any]) -> int:
    alignment = fields.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise ValueError("general.alignment is no power of two")
    return alignment


def _tensor_info(reader: CountedReader, index: int) -> tuple[str, TensorInfo]:
    name = _text(reader, f"the name of tensor {index}")
    label = f"the tensor {name}"
    (num_dims,) = _unpack(reader, "I", label)
    if num_dims > _MOST_DIMS:
        raise ValueError(f"{label} has {num_dims} dimensions")
    # The format lists the fastest dimension first.
    shape = _unpack(reader, f"{num_dims}Q", label)[::-1]
    kind, offset = _unpack(reader, "IQ", label)
    return name, TensorInfo(kind, shape, offset)


def _placed(
    infos: list[tuple[str, TensorInfo]], data_start: int, alignment: int, size: int | None
) -> dict[str, TensorInfo]:
    """Return the tensors by name, with offsets from the beginning of the file.

    The format requires that tensors follow each other without overlap or gap, except padding.
    """
    placed: dict[str, TensorInfo] = {}
    expected: int | None = 0
    for name, info in infos:
        if name in placed:
            raise ValueError(f"the tensor {name} occurs twice")
        if info.start != expected and (expected is not None or info.start % alignment):
            raise ValueError(f"the tensor {name} has offset {info.start}, not {expected}")
        try:
            length = num_bytes(info.kind, info.shape)
        except ValueError as error:
            raise ValueError(f"the tensor {name}: {error}") from error
        end = info.start + (length or 0)
        if size is not None and data_start + end > size:
            raise ValueError(f"it ends inside {name}")
        expected = None if length is None else -(-end // alignment) * alignment
        placed[name] = info._replace(start=data_start + info.start)
    return placed


def _value(reader: CountedReader, kind: int, key: str, *, depth: int = 0) -> Any:  # noqa: ANN401
    if kind == _STRING:
        return _string(reader, key)
    if kind in _SCALARS:
        return _unpack(reader, _SCALARS[kind], key)[0]
    if kind != _ARRAY or depth == _DEEPEST_ARRAY:
        raise ValueError(f"{key} has a value of type {kind}" + " in arrays" * bool(depth))
    kind, length = _unpack(reader, "IQ", key)
    if kind in _SCALARS:
        _check_room(reader, length, struct.calcsize(f"<{_SCALARS[kind]}"), f"the length of {key}")
        return _unpack(reader, f"{length}{_SCALARS[kind]}", key)
    # A string begins with its length, an array with its type and its length.
    _check_room(reader, length, 8, f"the length of {key}")
    return [_value(reader, kind, key, depth=depth + 1) for _ in range(length)]


def _text(reader: CountedReader, label: str) -> str:
    try:
        text = _string(reader, label).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{label} is no UTF-8") from error
    if not text.isprintable():
        raise ValueError(f"{label} is {ascii(text)[:80]}")
    return text


def _string(reader: CountedReader, label: str) -> bytes:
    (length,) = _unpack(reader, "Q", label)
    _check_room(reader, length, 1, f"the length of {label}")
    return reader.read(length)


def _check_room(reader: CountedReader, number: int, least: int, label: str) -> None:
    """Refuse a number of items that the rest of the file cannot hold, before allocating them."""
    left = (reader.size or 0) - reader.tell()
    if number * least > left:
        raise ValueError(f"{label} is {number}, more than the remaining {left} bytes hold")


def _unpack(reader: CountedReader, form: str, label: str) -> tuple[Any, ...]:
    form = f"<{form}"
    raw = reader.read(struct.calcsize(form))
    if len(raw) < struct.calcsize(form):
        raise ValueError(f"it ends inside {label}")
    return struct.unpack(form, raw)
