"""Single tensors out of pickled files, read so that nothing in them can run."""

import pickle
import re
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from toolkit.lm._stores import Store
from toolkit.lm._weight_files import Weights, dtype_name, packed_error, weight_map

INDEX = "pytorch_model.bin.index.json"
SINGLE = "pytorch_model.bin"
_WANTED = re.compile(r"GLOBAL (\S+)")


class PickledWeights(Weights):
    """One or several files of ``torch.save``, mapped into memory where their format allows it.

    Args:
        store: Where they lie.
        files: File of each tensor, or the name of a single file.

    Raises:
        ValueError: If the single file is missing or holds anything but plain types and tensors.
    """

    def __init__(self, store: Store, files: Mapping[str, str] | str) -> None:
        self.label = store.label
        self.commit = store.commit
        self._store = store
        self._loaded: dict[str, dict[str, Tensor]] = {}
        if isinstance(files, str):
            self._files: Mapping[str, str] = dict.fromkeys(self._tensors(files), files)
        else:
            self._files = files

    @property
    def names(self) -> Collection[str]:
        """Names of the tensors in all files."""
        return self._files.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(self._tensor(name).shape)

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return rows that are read from disk once they are used."""
        rows = self._tensor(name)[start:stop]
        self.bytes_read += rows.nbytes
        return rows

    def file_of(self, name: str) -> str:
        """Return the file that holds the tensor."""
        return self._files[name]

    def dtype_of(self, name: str) -> str:
        """Return the tensor's dtype."""
        return dtype_name(self._tensor(name).dtype)

    def same(self, first: str, second: str) -> bool:
        """Whether two matrices are equal; one storage needs no reading."""
        one, other = self._tensor(first), self._tensor(second)
        shared = one.data_ptr() == other.data_ptr() and one.shape == other.shape
        return shared or super().same(first, second)

    def _tensor(self, name: str) -> Tensor:
        tensors = self._tensors(self._files[name])
        if name not in tensors:
            raise ValueError(
                f"source: expected {name} in {self._store.label}/{self._files[name]}, got none"
            )
        if not tensors[name].is_floating_point():
            raise packed_error(name, self._store.label, dtype_name(tensors[name].dtype))
        return tensors[name]

    def _tensors(self, file: str) -> dict[str, Tensor]:
        if file not in self._loaded:
            path = self._store.path(file)
            if path is None:
                raise ValueError(f"source: expected the file {file} in {self.label}, got none")
            mapped = zipfile.is_zipfile(path)
            self._loaded[file] = _state(_load(path, mapped=mapped), path)
            # The old format cannot be mapped.
            self.bytes_read += 0 if mapped else path.stat().st_size
        return self._loaded[file]


def open_pickled(store: Store) -> PickledWeights | None:
    """Open what the store's index names, or its single file; None if it has neither."""
    index = store.json(INDEX)
    if index is not None:
        return PickledWeights(store, weight_map(index, f"{store.label}/{INDEX}"))
    return PickledWeights(store, SINGLE) if store.holds(SINGLE) else None


def _load(path: Path, *, mapped: bool) -> Any:  # noqa: ANN401
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        wanted = _WANTED.search(str(error))
        if wanted is None:
            raise ValueError(
                f"source: expected a file of torch.save, got {path}, which is another or damaged"
            ) from error
        raise ValueError(
            f"source: expected plain types and tensors in {path}, got a pickle that asks for "
            f"{wanted[1]}; refused, nothing in it was run"
        ) from error


def _state(content: Any, path: Path) -> dict[str, Tensor]:  # noqa: ANN401
    state = content.get("state_dict", content) if isinstance(content, dict) else {}
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    if not tensors:
        raise ValueError(f"source: expected named tensors in {path}, got none")
    return tensors
