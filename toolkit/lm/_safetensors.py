"""Single tensors out of safetensors files, by their own header and the index of their shards."""

import json
import math
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toolkit.lm._stores import CountedReader, Store
from toolkit.lm._weight_files import StoredWeights, dtype_name, packed_error, weight_map

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_DTYPES = MappingProxyType(
    {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
)
# The format's own limit.
_LARGEST_HEADER = 100_000_000


class _Entry(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    start: int


class SafetensorsWeights(StoredWeights[_Entry]):
    """One or several safetensors files.

    Args:
        store: Where they lie.
        files: File of each tensor, or the name of a single file.

    Raises:
        ValueError: If the single file is missing or no safetensors file.
    """

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape that the header gives."""
        return self._entry(name).shape

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Read rows straight into a new tensor."""
        entry = self._entry(name)
        rows = torch.empty(stop - start, *entry.shape[1:], dtype=_DTYPES[entry.dtype])
        row_bytes = math.prod(entry.shape[1:]) * rows.itemsize
        # numpy knows no bfloat16.
        view = rows.view(-1).view(torch.uint8).numpy().data
        with self._open(self._files[name]) as reader:
            reader.seek(entry.start + start * row_bytes)
            whole = reader.readinto(view) == len(view)
            self.bytes_read += reader.bytes_read
        if not whole:
            raise _damaged(self._store, self._files[name], f"it ends inside {name}")
        return rows

    def dtype_of(self, name: str) -> str:
        """Return the tensor's dtype."""
        return dtype_name(_DTYPES[self._entry(name).dtype])

    def _entry(self, name: str) -> _Entry:
        file = self._files[name]
        entries = self._content(file)
        if name not in entries:
            raise _damaged(self._store, file, f"the index says that it holds {name}")
        if entries[name].dtype not in _DTYPES:
            raise packed_error(name, f"{self.label}/{file}", entries[name].dtype)
        return entries[name]

    def _read(self, file: str) -> dict[str, _Entry]:
        with self._open(file) as reader:
            entries = _entries(self._store, file, reader)
            self.bytes_read += reader.bytes_read
        return entries

    def _open(self, file: str) -> CountedReader:
        reader = self._store.open(file)
        if reader is None:
            raise ValueError(f"source: expected the file {file} in {self.label}, got none")
        return reader


def open_safetensors(store: Store) -> SafetensorsWeights | None:
    """Open the store's single file, else what its index names; None if it has neither."""
    # As transformers does: an index may be left from earlier weights in the same folder.
    if store.holds(SINGLE):
        return SafetensorsWeights(store, SINGLE)
    index = store.json(INDEX)
    if index is None:
        return None
    return SafetensorsWeights(store, weight_map(index, f"{store.label}/{INDEX}"))


def _entries(store: Store, file: str, reader: CountedReader) -> dict[str, _Entry]:
    start = reader.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= length <= _LARGEST_HEADER:
        raise _damaged(store, file, "it has no safetensors header")
    try:
        header = json.loads(reader.read(length))
        return {
            name: _entry(value, 8 + length)
            for name, value in header.items()
            if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(store, file, "its safetensors header cannot be read") from error


def _entry(value: Mapping[str, Any], data_start: int) -> _Entry:
    start, end = value["data_offsets"]
    shape = tuple(value["shape"])
    dtype = _DTYPES.get(value["dtype"])
    if dtype is not None and end - start != math.prod(shape) * dtype.itemsize:
        raise ValueError("the shape does not fill its place")
    return _Entry(value["dtype"], shape, data_start + start)


def _damaged(store: Store, file: str, reason: str) -> ValueError:
    return ValueError(
        f"source: expected a whole safetensors file, got {store.label}/{file}: {reason}; "
        "fetch it again"
    )
