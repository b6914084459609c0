"""Single tensors of pickled files; no code in the files is run."""

import pickle
import re
from pathlib import Path
from typing import Any

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
from toolkit.lm.weights.stores import Store
from toolkit.lm.weights.zip_checksums import check_records, check_storage, is_zip

INDEX = "pytorch_model.bin.index.json"
SINGLE = "pytorch_model.bin"
_WANTED = re.compile(r"GLOBAL (\S+)")


class PickledWeights(StoredWeights[Tensor]):
    """One or several files of ``torch.save``, mapped into memory if their format allows it.

    Args:
        store: The store of the files.
        files: File of each tensor, or the names of all files.

    Raises:
        ValueError: If a file is missing, or holds objects other than plain types and tensors.
    """

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._tensor(name).shape)

    @override
    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return rows, read from disk when used; for all rows, check the checksum first."""
        tensor = self._tensor(name)
        if (start, stop) == (0, len(tensor)):
            self._check(name, tensor)
        rows = tensor[start:stop]
        self.bytes_read += rows.nbytes
        return rows

    @override
    def dtype_of(self, name: str) -> str:
        return dtype_name(self._tensor(name).dtype)

    @override
    def same(self, first: str, second: str) -> bool:
        """Whether two matrices are equal; matrices in the same storage are not read."""
        left, right = self._tensor(first), self._tensor(second)
        shared = left.data_ptr() == right.data_ptr() and left.shape == right.shape
        return shared or super().same(first, second)

    def _tensor(self, name: str) -> Tensor:
        tensors = self._content(self._files[name])
        if name not in tensors:
            raise ValueError(
                f"source: expected {name} in {self._store.label}/{self._files[name]}, got none"
            )
        tensor = tensors[name]
        if not tensor.is_floating_point() or tensor.layout is not torch.strided:
            raise packed_error(name, self.label, dtype_name(tensor.dtype))
        if tensor.is_meta or tensor.nbytes > tensor.untyped_storage().nbytes():
            raise ValueError(
                f"source: expected {tensor.nbytes} bytes of {shown_name(name)} in "
                f"{self._store.label}/{self._files[name]}, got fewer"
            )
        return tensor

    def _check(self, name: str, tensor: Tensor) -> None:
        path = self._store.path(self._files[name])
        if path is not None and is_zip(path):
            check_storage(path, name, tensor)

    def _read(self, file: str) -> dict[str, Tensor]:
        path = self._store.path(file)
        if path is None:
            raise missing_error(file, self._store.label)
        # A file of the old format cannot be mapped and is read as a whole.
        self.bytes_read += 0 if is_zip(path) else path.stat().st_size
        return _state(load_plain(path), path)


def open_pickled(store: Store) -> PickledWeights | None:
    """Open the single file of the store, or the files of its index; None without both."""
    return open_stored(PickledWeights, store, single=SINGLE, index=INDEX)


def open_pickled_file(store: Store, name: str) -> PickledWeights:
    """Open a file together with the other parts of its set."""
    return PickledWeights(store, files_of_part(store, name))


def load_plain(path: Path) -> Any:  # noqa: ANN401
    """Return the content of a file of ``torch.save``; no code in it is run.

    Tensors stay on disk until they are used, except in files of the old format, which cannot be
    mapped. All records except the values of tensors are compared with the checksums of the file.

    Args:
        path: The file.

    Raises:
        ValueError: If the file is not from ``torch.save``, is damaged, or holds objects other than
            plain types and tensors.
    """
    mapped = is_zip(path)
    if mapped:
        check_records(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:
        wanted = _WANTED.search(str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if wanted is None:
            raise ValueError(
                f"source: expected a file of torch.save, got {path}, which is another or damaged"
            ) from error
        raise ValueError(
            f"source: expected plain types and tensors in {path}, got a pickle that asks for "
            f"{shown_name(wanted[1])}; refused, nothing in it was run"
        ) from error


def _state(content: Any, path: Path) -> dict[str, Tensor]:  # noqa: ANN401
    state = content.get("state_dict", content) if isinstance(content, dict) else {}
    named = state.items() if isinstance(state, dict) else ()
    tensors = {n: value for n, value in named if isinstance(n, str) and isinstance(value, Tensor)}
    if not tensors:
        raise ValueError(f"source: expected named tensors in {path}, got none")
    return tensors
