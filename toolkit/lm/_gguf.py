"""Single tensors out of GGUF files; the ``gguf`` package is needed for quantised ones alone.

The header is walked here: the package's own reader keeps each token of the vocabulary as several
numpy arrays, which costs seconds and more memory than the matrix.
"""

import importlib
import struct
from collections.abc import Collection
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from toolkit.lm._stores import CountedReader, open_counted
from toolkit.lm._vocabulary import reached_rows
from toolkit.lm._weight_files import Weights, dtype_name

_VERSIONS = (2, 3)
_SCALARS = MappingProxyType(
    {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
)
_STRING, _ARRAY = 8, 9
_DTYPES = MappingProxyType(
    {0: torch.float32, 1: torch.float16, 28: torch.float64, 30: torch.bfloat16}
)
_DEFAULT_ALIGNMENT = 32
# Dequantising takes several times the memory of its rows.
_ROWS_AT_ONCE = 4096


class _Entry(NamedTuple):
    kind: int
    shape: tuple[int, ...]
    start: int


class GgufWeights(Weights):
    """A GGUF file.

    Args:
        path: The file.

    Raises:
        ValueError: If it is none.
    """

    def __init__(self, path: Path) -> None:
        self.label = str(path)
        self._path = path
        try:
            with open_counted(path) as reader:
                fields, self._entries = _header(reader)
                self.bytes_read = reader.bytes_read
        except (struct.error, ValueError, KeyError) as error:
            raise ValueError(
                f"source: expected a GGUF file of version 2 or 3, got {path}: {error}"
            ) from error
        self.ties = "output.weight" not in self._entries
        tokens = fields.get("tokenizer.ggml.tokens")
        if tokens is not None:
            names = (token.decode(errors="replace") for token in tokens)
            self.vocab_size = reached_rows(dict(enumerate(names)))

    @property
    def names(self) -> Collection[str]:
        """Names of the tensors."""
        return self._entries.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape, rows first."""
        return self._entries[name].shape

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Read rows; quantised ones become float32."""
        kind, (_, dim), _ = self._entries[name]
        if kind in _DTYPES:
            rows = torch.empty(stop - start, dim, dtype=_DTYPES[kind])
            view = rows.view(-1).view(torch.uint8).numpy()
            self._fill(view, name, start * dim * rows.itemsize)
            return rows
        rows = torch.empty(stop - start, dim)
        row_bytes = _row_bytes(kind, dim, self.label)
        for first in range(start, stop, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, stop)
            packed = np.empty((last - first, row_bytes), np.uint8)
            self._fill(packed.reshape(-1), name, first * row_bytes)
            rows[first - start : last - start] = _dequantised(packed, kind)
        return rows

    def file_of(self, name: str) -> str:
        """Return the file's name."""
        del name  # there is one file
        return self._path.name

    def dtype_of(self, name: str) -> str:
        """Return the tensor's type, for quantised ones by its GGUF name."""
        kind = self._entries[name].kind
        if kind in _DTYPES:
            return dtype_name(_DTYPES[kind])
        return str(gguf_package(self.label).GGMLQuantizationType(kind).name)

    def _fill(self, view: np.ndarray, name: str, offset: int) -> None:
        with open_counted(self._path) as reader:
            reader.seek(self._entries[name].start + offset)
            whole = reader.readinto(view.data) == len(view)
            self.bytes_read += reader.bytes_read
        if not whole:
            raise ValueError(
                f"source: expected a whole GGUF file, got {self._path}: it ends inside {name}; "
                "fetch it again"
            )


def _header(reader: CountedReader) -> tuple[dict[str, Any], dict[str, _Entry]]:
    if reader.read(4) != b"GGUF":
        raise ValueError("it does not begin with GGUF")
    version, num_tensors, num_fields = _unpack(reader, "IQQ")
    if version not in _VERSIONS:
        raise ValueError(f"its version is {version}")
    fields = {}
    for _ in range(num_fields):
        key = _string(reader).decode()
        fields[key] = _value(reader, _unpack(reader, "I")[0])
    infos = [_tensor_info(reader) for _ in range(num_tensors)]
    alignment = fields.get("general.alignment", _DEFAULT_ALIGNMENT)
    data_start = -(-reader.tell() // alignment) * alignment
    return fields, {name: _Entry(kind, shape, data_start + at) for name, kind, shape, at in infos}


def _tensor_info(reader: CountedReader) -> tuple[str, int, tuple[int, ...], int]:
    name = _string(reader).decode()
    (num_dims,) = _unpack(reader, "I")
    # The format counts dimensions from the fastest.
    shape = _unpack(reader, f"{num_dims}Q")[::-1]
    kind, offset = _unpack(reader, "IQ")
    return name, kind, shape, offset


def _value(reader: CountedReader, kind: int) -> Any:  # noqa: ANN401
    if kind == _STRING:
        return _string(reader)
    if kind != _ARRAY:
        return _unpack(reader, _SCALARS[kind])[0]
    kind, length = _unpack(reader, "IQ")
    if kind in _SCALARS:
        return _unpack(reader, f"{length}{_SCALARS[kind]}")
    return [_value(reader, kind) for _ in range(length)]


def _string(reader: CountedReader) -> bytes:
    (length,) = _unpack(reader, "Q")
    return reader.read(length)


def _unpack(reader: CountedReader, form: str) -> tuple[Any, ...]:
    form = f"<{form}"
    return struct.unpack(form, reader.read(struct.calcsize(form)))


def _row_bytes(kind: int, dim: int, label: str) -> int:
    gguf = gguf_package(label)
    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    return int(dim // block * block_bytes)


def _dequantised(packed: np.ndarray, kind: int) -> Tensor:
    gguf = gguf_package("")
    return torch.from_numpy(gguf.dequantize(packed, gguf.GGMLQuantizationType(kind)))


def gguf_package(label: str) -> Any:  # noqa: ANN401
    """Return the ``gguf`` package, or say in a ValueError how to get it for the file ``label``."""
    try:
        return importlib.import_module("gguf")
    except ImportError as error:
        raise ValueError(
            f"source: expected the package gguf for the weights of {label}, got none; "
            'pip install "superposition-toolkit[gguf]"'
        ) from error
