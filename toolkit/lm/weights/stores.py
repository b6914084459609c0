"""Stores of a model's files: a folder, or a repository on the Hub."""

import io
import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER = 2**13
# Largest length of a file name: file systems limit it, and so do repositories.
_LONGEST_NAME = 200


class CountedRaw(io.RawIOBase):
    """Unbuffered source of a `CountedReader`.

    Attributes:
        bytes_read: Bytes fetched until now.
        size: Bytes of the whole file, None until the size is known.
    """

    bytes_read: int = 0
    size: int | None = None


class CountedReader(io.BufferedReader):
    """A file opened for reading that counts the bytes really fetched from disk or network."""

    raw: "CountedRaw"

    @property
    def bytes_read(self) -> int:
        """Bytes fetched until now, including bytes that were buffered ahead."""
        return self.raw.bytes_read

    @property
    def size(self) -> int | None:
        """Bytes of the whole file, None if the Hub does not give the size."""
        return self.raw.size


class Store(ABC):
    """Files of one model by name.

    Attributes:
        label: Name of the model in messages.
        commit: Commit of a published repository, empty for a folder.
    """

    label: str
    commit: str = ""

    @abstractmethod
    def path(self, name: str) -> Path | None:
        """Return the whole file on disk, downloaded if needed; None if it does not exist."""

    @abstractmethod
    def open(self, name: str) -> CountedReader | None:
        """Open a file without downloading all of it; None if it does not exist."""

    @abstractmethod
    def holds(self, name: str) -> bool:
        """Whether the file exists."""

    def json(self, name: str) -> Any:  # noqa: ANN401
        """Return the content of a JSON file, None if the file does not exist.

        Raises:
            ValueError: If the file is not valid JSON.
        """
        path = self.path(name)
        if path is None:
            return None
        try:
            return json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"source: expected JSON in {path}, got {error}") from error


class Folder(Store):
    """A folder on disk.

    Args:
        folder: The folder.
        label: Name of the model in messages, by default the path of the folder.
    """

    def __init__(self, folder: Path, label: str = "") -> None:
        self.folder = folder
        self.label = label or str(folder)

    @override
    def path(self, name: str) -> Path | None:
        path = self.folder / plain_name(name)
        return path if path.is_file() else None

    @override
    def open(self, name: str) -> CountedReader | None:
        path = self.path(name)
        return None if path is None else open_counted(path)

    @override
    def holds(self, name: str) -> bool:
        return self.path(name) is not None


class _CountedFile(io.FileIO, CountedRaw):
    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        number = super().readinto(buffer) or 0
        self.bytes_read += number
        return number


def open_counted(path: Path) -> CountedReader:
    """Open a local file."""
    file = _CountedFile(path)
    file.size = os.fstat(file.fileno()).st_size
    return CountedReader(file, _BUFFER)


def plain_name(name: str, *, index: str = "the index") -> str:
    """Return ``name``, or raise a ValueError if it is a path.

    Args:
        name: The name of a file.
        index: Label of the index that names the file, for the message.
    """
    # An index file cannot be trusted: a path in it could point out of the folder.
    plain = Path(name).name == name and "\\" not in name and name.isprintable()
    if not plain or not 0 < len(name) <= _LONGEST_NAME:
        raise ValueError(f"source: expected a plain file name in {index}, got {name[:99]!r}")
    return name
