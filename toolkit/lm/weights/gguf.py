"""Single tensors of GGUF files; only quantised tensors need the ``gguf`` package."""

import importlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from toolkit.lm.weights.files import Weights, dtype_name, packed_error, repeated_error
from toolkit.lm.weights.gguf_header import TensorInfo, num_bytes, read_header
from toolkit.lm.weights.shards import whole_set
from toolkit.lm.weights.stores import Folder, open_counted
from toolkit.lm.weights.vocabulary import reached_rows

_DTYPES = MappingProxyType(
    {0: torch.float32, 1: torch.float16, 28: torch.float64, 30: torch.bfloat16}
)
_INTEGERS = range(24, 28)
# Dequantising needs several times the memory of the rows.
_ROWS_AT_ONCE = 4096
# Families of the format without an output matrix.
_ENCODERS = frozenset({"clip", "t5encoder", "wavtokenizer-dec", "gemma-embedding"})


class _Entry(NamedTuple):
    path: Path
    info: TensorInfo


class GgufWeights(Weights):
    """A GGUF file, or all parts of a split file.

    Args:
        path: The file, or any part of a split file.

    Attributes:
        paths: All files.

    Raises:
        ValueError: If the file is not a GGUF file, or parts are missing.
    """

    def __init__(self, path: Path) -> None:
        self.label = str(path)
        given = self._read(path)
        self.paths = _parts(path, given[0])
        self._entries: dict[str, _Entry] = {}
        headers = [given if part == path else self._read(part) for part in self.paths]
        for part, (_, infos) in zip(self.paths, headers, strict=True):
            self._add(part, infos)
        if len(headers) > 1:
            _check_split([fields for fields, _ in headers], self.paths, len(self._entries))
        # The first part holds the fields about the whole model.
        fields = headers[0][0]
        self.ties = _ties(fields, self._entries)
        self.vocab_size = _vocabulary(fields, self.label)

    @property
    @override
    def names(self) -> Collection[str]:
        return self._entries.keys()

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].info.shape

    @override
    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Read rows; quantised rows become float32."""
        kind, (_, dim), _ = self._entries[name].info
        if kind in _DTYPES:
            rows = torch.empty(stop - start, dim, dtype=_DTYPES[kind])
            view = rows.view(-1).view(torch.uint8).numpy()
            self._fill(view, name, start * dim * rows.itemsize)
            return rows
        row_bytes = self._row_bytes(name)
        rows = torch.empty(stop - start, dim)
        for first in range(start, stop, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, stop)
            packed = np.empty((last - first, row_bytes), np.uint8)
            self._fill(packed.reshape(-1), name, first * row_bytes)
            rows[first - start : last - start] = self._dequantised(packed, name)
        return rows

    @override
    def file_of(self, name: str) -> str:
        return self._entries[name].path.name

    @override
    def dtype_of(self, name: str) -> str:
        kind = self._entries[name].info.kind
        if kind in _DTYPES:
            return dtype_name(_DTYPES[kind])
        return str(gguf_package(self.label).GGMLQuantizationType(kind).name)

    def _read(self, path: Path) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
        with open_counted(path) as reader:
            try:
                header = read_header(reader)
            except ValueError as error:
                raise ValueError(
                    f"source: expected a GGUF file of version 2 or 3, got {path}: {error}"
                ) from error
            self.bytes_read += reader.bytes_read
        return header

    def _add(self, path: Path, infos: Mapping[str, TensorInfo]) -> None:
        for name, info in infos.items():
            if name in self._entries:
                first = self._entries[name].path.name
                raise repeated_error(name, self.label, first, path.name)
            self._entries[name] = _Entry(path, info)

    def _row_bytes(self, name: str) -> int:
        path, (kind, shape, _) = self._entries[name]
        row_bytes = num_bytes(kind, shape[-1:])
        if row_bytes is None or kind in _INTEGERS:
            raise packed_error(name, str(path), f"numbers of type {kind}")
        return row_bytes

    def _dequantised(self, packed: np.ndarray, name: str) -> Tensor:
        path, (kind, _, _) = self._entries[name]
        gguf = gguf_package(str(path))
        try:
            # Later steps count or refuse non-finite values.
            with np.errstate(all="ignore"):
                values = gguf.dequantize(packed, gguf.GGMLQuantizationType(kind))
        except (NotImplementedError, ValueError) as error:
            # The installed package may be older than the type.
            raise packed_error(name, str(path), f"numbers of type {kind}") from error
        return torch.from_numpy(values)

    def _fill(self, view: np.ndarray, name: str, offset: int) -> None:
        path, info = self._entries[name]
        with open_counted(path) as reader:
            reader.seek(info.start + offset)
            is_complete = reader.readinto(view.data) == len(view)
            self.bytes_read += reader.bytes_read
        if not is_complete:
            raise ValueError(
                f"source: expected a whole GGUF file, got {path}: it ends inside {name}; "
                "fetch it again"
            )


def _parts(path: Path, fields: Mapping[str, Any]) -> list[Path]:
    """Return all files of a split file: the header gives their number, ``path`` their names."""
    count = fields.get("split.count", 1)
    if type(count) is not int or count <= 1:
        return [path]
    names = whole_set(Folder(path.parent), path.name)
    if len(names) != count:
        raise ValueError(
            f"source: expected all {count} parts of a split GGUF file, got {len(names)} by "
            f"the name of {path}; rename the parts to their original names, such as "
            f"model-00001-of-{count:05}.gguf"
        )
    return [path.with_name(name) for name in names]


def _check_split(headers: Sequence[Mapping[str, Any]], paths: Sequence[Path], count: int) -> None:
    """Refuse files that are named like one set but do not belong together."""
    total = headers[0].get("split.tensors.count", count)
    places = [fields.get("split.no", place) for place, fields in enumerate(headers)]
    if total != count or places != list(range(len(paths))):
        raise ValueError(
            f"source: expected the parts 0 to {len(paths) - 1} of one split GGUF file with "
            f"{total} tensors, got the parts {', '.join(map(str, places))} with {count} at "
            f"{paths[0]}; fetch them again"
        )


def _ties(fields: Mapping[str, Any], entries: Mapping[str, _Entry]) -> bool | None:
    """Whether the model ties its matrices: the format omits a tied output matrix.

    Encoders omit it, too; their fields give a pooling type or non-causal attention.
    """
    if "output.weight" in entries:
        return False
    family = fields.get("general.architecture")
    if not isinstance(family, bytes):
        return None
    name = family.decode(errors="replace")
    encodes = fields.get(f"{name}.attention.causal") is False or f"{name}.pooling_type" in fields
    return None if encodes or name in _ENCODERS or "bert" in name else True


def _vocabulary(fields: Mapping[str, Any], label: str) -> int | None:
    tokens = fields.get("tokenizer.ggml.tokens")
    if tokens is None or not len(tokens):
        return None
    if not isinstance(tokens, list) or not all(isinstance(token, bytes) for token in tokens):
        raise ValueError(
            f"source: expected a list of texts in {label}: tokenizer.ggml.tokens, got other values"
        )
    return reached_rows(dict(enumerate(token.decode(errors="replace") for token in tokens)))


def gguf_package(label: str) -> Any:  # noqa: ANN401
    """Return the ``gguf`` package; if it is missing, raise a ValueError that names ``label``."""
    try:
        return importlib.import_module("gguf")
    except ImportError as error:
        raise ValueError(
            f"source: expected the package gguf for the weights of {label}, got none; "
            'pip install "superposition-toolkit[gguf]"'
        ) from error
