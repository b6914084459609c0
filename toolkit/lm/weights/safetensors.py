"""Single tensors of safetensors files, located by the header and the index of shards.

The header is read here, not by ``huggingface_hub.parse_safetensors_file_metadata``: that function
reads no cached or local files, and accepts files that are cut or whose header contradicts itself.
"""

import json
import math
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from toolkit.lm.weights.files import (
    StoredWeights,
    dtype_name,
    files_of_part,
    missing_error,
    open_stored,
    packed_error,
    shown_name,
)
from toolkit.lm.weights.stores import CountedReader, Store

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_DTYPES = MappingProxyType(
    {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
)
# Limit of the format, in bytes.
_LARGEST_HEADER = 100_000_000


class _Entry(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsWeights(StoredWeights[_Entry]):
    """One or several safetensors files.

    Args:
        store: The store of the files.
        files: File of each tensor, or the names of all files.

    Raises:
        ValueError: If a file is missing or is not a safetensors file.
    """

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name).shape

    @override
    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Read rows into a new tensor, without a second copy in memory."""
        entry = self._entry(name)
        row_bytes = math.prod(entry.shape[1:]) * _DTYPES[entry.dtype].itemsize
        # The check of the header has shown that the file is large enough for these rows.
        rows = torch.empty(stop - start, *entry.shape[1:], dtype=_DTYPES[entry.dtype])
        # numpy has no bfloat16: the rows are filled as bytes.
        view = rows.view(-1).view(torch.uint8).numpy().data
        with self._open(self._files[name]) as reader:
            reader.seek(entry.start + start * row_bytes)
            is_complete = reader.readinto(view) == len(view)
            self.bytes_read += reader.bytes_read
        if not is_complete:
            raise _damaged(self._store, self._files[name], f"it ends inside {name}")
        return rows

    @override
    def dtype_of(self, name: str) -> str:
        return dtype_name(_DTYPES[self._entry(name).dtype])

    def _entry(self, name: str) -> _Entry:
        file = self._files[name]
        entries = self._content(file)
        if name not in entries:
            raise _damaged(self._store, file, f"the index says that it holds {name}")
        if entries[name].dtype not in _DTYPES:
            raise packed_error(name, f"{self._store.label}/{file}", entries[name].dtype)
        return entries[name]

    def _read(self, file: str) -> dict[str, _Entry]:
        with self._open(file) as reader:
            try:
                entries = _entries(reader)
            except (ValueError, RecursionError) as error:
                raise _damaged(self._store, file, str(error)) from error
            self.bytes_read += reader.bytes_read
        return entries

    def _open(self, file: str) -> CountedReader:
        reader = self._store.open(file)
        if reader is None:
            raise missing_error(file, self._store.label)
        return reader


def open_safetensors(store: Store) -> SafetensorsWeights | None:
    """Open the single file of the store, or the files of its index; None without both."""
    return open_stored(SafetensorsWeights, store, single=SINGLE, index=INDEX)


def open_safetensors_file(store: Store, name: str) -> SafetensorsWeights:
    """Open a file together with the other parts of its set."""
    return SafetensorsWeights(store, files_of_part(store, name))


def _entries(reader: CountedReader) -> dict[str, _Entry]:
    """Return the tensors in the header; a ValueError names the invalid field."""
    start = reader.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= length <= _LARGEST_HEADER:
        raise ValueError("it has no safetensors header")
    if reader.size is not None and 8 + length > reader.size:
        raise ValueError(f"its header of {length} bytes ends beyond the file")
    header = _json_object(reader.read(length))
    header.pop("__metadata__", None)
    entries = {name: _entry(name, value, 8 + length) for name, value in header.items()}
    _check_places(entries, 8 + length, reader.size)
    return entries


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its safetensors header cannot be read ({error})") from error
    if not isinstance(header, dict):
        raise ValueError(f"its safetensors header is a {type(header).__name__}, no object")  # noqa: TRY004
    return header


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{shown_name(twice)} occurs twice")
    return content


def _entry(name: str, value: object, data_start: int) -> _Entry:
    """Return one tensor's entry; its offsets count from the beginning of the file."""
    label = shown_name(name)
    fields: Mapping[str, Any] = value if isinstance(value, dict) else {}
    dtype: Any = fields.get("dtype")
    shape: Any = fields.get("shape")
    offsets: Any = fields.get("data_offsets")
    if not isinstance(dtype, str):
        raise ValueError(f"{label}: dtype is no text")  # noqa: TRY004
    if not _are_sizes(shape):
        raise ValueError(f"{label}: shape is no list of sizes")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"{label}: data_offsets are no two rising numbers")
    known = _DTYPES.get(dtype)
    if known is not None and offsets[1] - offsets[0] != math.prod(shape) * known.itemsize:
        raise ValueError(f"{label}: shape and dtype do not fill data_offsets")
    return _Entry(dtype, tuple(shape), data_start + offsets[0], data_start + offsets[1])


def _are_sizes(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)


def _check_places(entries: Mapping[str, _Entry], data_start: int, size: int | None) -> None:
    """Refuse tensors that overlap, leave gaps or end beyond the file: the format forbids it."""
    end = data_start
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.start != end:
            raise ValueError(f"{shown_name(name)}: data_offsets leave a hole or overlap")
        end = entry.stop
        if size is not None and end > size:
            raise ValueError(f"it ends inside {shown_name(name)}")
    if size is not None and end < size:
        raise ValueError(f"{size - end} bytes after the last tensor belong to none")


def _damaged(store: Store, file: str, reason: str) -> ValueError:
    return ValueError(
        f"source: expected a whole safetensors file, got {store.label}/{file}: {reason}; "
        "fetch it again"
    )
