"""Single tensors out of pickled files, read so that nothing in them can run."""

import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from toolkit.lm._stores import Store
from toolkit.lm._weight_files import StoredWeights, dtype_name, packed_error, weight_map

INDEX = "pytorch_model.bin.index.json"
SINGLE = "pytorch_model.bin"
_WANTED = re.compile(r"GLOBAL (\S+)")


class PickledWeights(StoredWeights[Tensor]):
    """One or several files of ``torch.save``, mapped into memory where their format allows it.

    Args:
        store: Where they lie.
        files: File of each tensor, or the name of a single file.

    Raises:
        ValueError: If the single file is missing or holds anything but plain types and tensors.
    """

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(self._tensor(name).shape)

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return rows that are read from disk once they are used."""
        rows = self._tensor(name)[start:stop]
        self.bytes_read += rows.nbytes
        return rows

    def dtype_of(self, name: str) -> str:
        """Return the tensor's dtype."""
        return dtype_name(self._tensor(name).dtype)

    def same(self, first: str, second: str) -> bool:
        """Whether two matrices are equal; one storage needs no reading."""
        one, other = self._tensor(first), self._tensor(second)
        shared = one.data_ptr() == other.data_ptr() and one.shape == other.shape
        return shared or super().same(first, second)

    def _tensor(self, name: str) -> Tensor:
        tensors = self._content(self._files[name])
        if name not in tensors:
            raise ValueError(
                f"source: expected {name} in {self._store.label}/{self._files[name]}, got none"
            )
        if not tensors[name].is_floating_point():
            raise packed_error(name, self._store.label, dtype_name(tensors[name].dtype))
        return tensors[name]

    def _read(self, file: str) -> dict[str, Tensor]:
        path = self._store.path(file)
        if path is None:
            raise ValueError(f"source: expected the file {file} in {self.label}, got none")
        mapped = zipfile.is_zipfile(path)
        # The old format cannot be mapped.
        self.bytes_read += 0 if mapped else path.stat().st_size
        return _state(load_plain(path, mapped=mapped), path)


def open_pickled(store: Store) -> PickledWeights | None:
    """Open the store's single file, else what its index names; None if it has neither."""
    # As transformers does: an index may be left from earlier weights in the same folder.
    if store.holds(SINGLE):
        return PickledWeights(store, SINGLE)
    index = store.json(INDEX)
    if index is None:
        return None
    return PickledWeights(store, weight_map(index, f"{store.label}/{INDEX}"))


def load_plain(path: Path, *, mapped: bool) -> Any:  # noqa: ANN401
    """Return the content of a file of ``torch.save``; nothing in it is run.

    Args:
        path: The file.
        mapped: Whether to leave tensors on disk until they are used; only zip files can be mapped.

    Raises:
        ValueError: If it is no such file, or holds anything but plain types and tensors.
    """
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
