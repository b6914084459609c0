"""Common interface of all weight files: tensor names, and rows of one tensor at a time."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from typing_extensions import override

from toolkit.lm.weights.shards import index_of_set, whole_set
from toolkit.lm.weights.stores import Store, plain_name

_LONGEST_SHOWN = 100
_T = TypeVar("_T")


class Weights(ABC):
    """Named tensors of a model, read one tensor at a time.

    Attributes:
        label: Name of the model or file in messages.
        ties: Whether the model ties its two matrices according to its files, None if unknown.
        vocab_size: Largest token id of its tokenizer plus one, None without a tokenizer.
        commit: Commit of a published repository, otherwise empty.
        bytes_read: Bytes read from the weight files until now, headers included.
    """

    label: str
    ties: bool | None = None
    vocab_size: int | None = None
    commit: str = ""
    bytes_read: int = 0

    @property
    @abstractmethod
    def names(self) -> Collection[str]:
        """Names of the tensors."""

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor; raise a ValueError if it holds packed integers."""

    @abstractmethod
    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Read rows of a matrix."""

    @abstractmethod
    def file_of(self, name: str) -> str:
        """Return the name of the file that holds a tensor."""

    @abstractmethod
    def dtype_of(self, name: str) -> str:
        """Return the type in which a tensor is stored, such as ``bfloat16`` or ``Q8_0``."""

    def is_there(self, name: str) -> bool:
        """Whether the file that holds a tensor exists."""
        del name  # a single file exists: it has been opened
        return True

    def plain_shape(self, name: str) -> tuple[int, ...] | None:
        """Return a tensor's shape, None if its file is missing or it holds packed integers."""
        try:
            return self.shape(name) if self.is_there(name) else None
        except ValueError:
            return None

    def same(self, first: str, second: str) -> bool:
        """Whether two matrices are equal; reading stops at the first difference."""
        shape = self.shape(first)
        if shape != self.shape(second):
            return False
        starts = [0, *sorted({1, *range(4096, shape[0], 4096)}), shape[0]]
        for start, stop in pairwise(starts):
            left, right = self.rows(first, start, stop), self.rows(second, start, stop)
            if left.dtype != right.dtype or not torch.equal(left, right):
                return False
        return True


class StoredWeights(Weights, Generic[_T]):
    """Tensors in one or several files of a store; each file is opened once.

    Args:
        store: The store of the files.
        files: File of each tensor, or the names of all files.

    Raises:
        ValueError: If a file cannot be read, or two files hold the same tensor.
    """

    def __init__(self, store: Store, files: Mapping[str, str] | Sequence[str]) -> None:
        self.label = store.label
        if not isinstance(files, Mapping) and len(files) == 1:
            self.label += f"/{files[0]}"
        self.commit = store.commit
        self._store = store
        self._opened: dict[str, dict[str, _T]] = {}
        self._files = files if isinstance(files, Mapping) else self._by_tensor(files)

    @abstractmethod
    def _read(self, file: str) -> dict[str, _T]:
        """Return the content of a file by tensor name."""

    @property
    @override
    def names(self) -> Collection[str]:
        return self._files.keys()

    @override
    def file_of(self, name: str) -> str:
        return self._files[name]

    @override
    def is_there(self, name: str) -> bool:
        return self._files[name] in self._opened or self._store.holds(self._files[name])

    def _by_tensor(self, files: Sequence[str]) -> dict[str, str]:
        file_of: dict[str, str] = {}
        for file in files:
            for name in self._content(file):
                if file_of.setdefault(name, file) != file:
                    raise repeated_error(name, self.label, file_of[name], file)
        return file_of

    def _content(self, file: str) -> dict[str, _T]:
        if file not in self._opened:
            self._opened[file] = self._read(file)
        return self._opened[file]


_Stored = TypeVar("_Stored", bound=StoredWeights[Any])


def open_stored(kind: type[_Stored], store: Store, *, single: str, index: str) -> _Stored | None:
    """Open the single file of the store, or the files of its index; None without both."""
    # Like transformers: an index may be left from earlier weights in the same folder.
    if store.holds(single):
        return kind(store, [single])
    content = store.json(index)
    if content is None:
        return None
    return kind(store, weight_map(content, f"{store.label}/{index}"))


def weight_map(index: Any, label: str) -> dict[str, str]:  # noqa: ANN401
    """Return the file of each tensor according to an index of shards.

    Raises:
        ValueError: If ``index`` has no ``weight_map``, or names a file by a path.
    """
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise ValueError(f"source: expected a weight_map in {label}, got none")
    return {name: plain_name(file, index=label) for name, file in files.items()}


def files_of_part(store: Store, name: str) -> Mapping[str, str] | Sequence[str]:
    """Return the files to read together with ``name``, which may be one part of a set.

    The index of the set gives the file of each tensor; without an index, all parts are returned.

    Raises:
        ValueError: If no index names the file, and other parts are missing.
    """
    index_name = index_of_set(name)
    index = None if index_name is None else store.json(index_name)
    if index is not None:
        files = weight_map(index, f"{store.label}/{index_name}")
        if name in files.values():
            return files
    return whole_set(store, name)


def shown_name(name: str) -> str:
    """Return a tensor's name in a form that fits into a one-line message."""
    return (
        name if name.isprintable() and len(name) <= _LONGEST_SHOWN else ascii(name)[:_LONGEST_SHOWN]
    )


def repeated_error(name: str, label: str, first: str, second: str) -> ValueError:
    """Return the error for a tensor that two parts of a set hold."""
    return ValueError(
        f"source: expected each tensor in one part of {label}, got {shown_name(name)} in {first} "
        f"and {second}"
    )


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name without its package."""
    return str(dtype).removeprefix("torch.")


def missing_error(file: str, label: str) -> ValueError:
    """Return the error for a weight file that is not in its store."""
    return ValueError(f"source: expected the file {file} in {label}, got none")


def packed_error(name: str, label: str, kind: str) -> ValueError:
    """Return the error for a matrix of packed numbers, which are not its entries."""
    return ValueError(
        f"source: expected floating-point weights in {label}, got packed {shown_name(kind)} in "
        f"{name}; give the unquantised model"
    )
