"""Where a model's files lie: a folder, or a repository on the Hub."""

import io
import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER = 2**13
# Of a file name, in file systems and so in a repository.
_LONGEST_NAME = 200


class CountedRaw(io.RawIOBase):
    """What a `CountedReader` reads from.

    Attributes:
        bytes_read: Bytes fetched until now.
        size: Bytes of the whole file, None as long as nobody has said it.
    """

    bytes_read: int = 0
    size: int | None = None


class CountedReader(io.BufferedReader):
    """A file opened for reading that counts the bytes really fetched from disk or network."""

    raw: "CountedRaw"

    @property
    def bytes_read(self) -> int:
        """Bytes fetched until now, what was buffered ahead included."""
        return self.raw.bytes_read

    @property
    def size(self) -> int | None:
        """Bytes of the whole file, None if the Hub does not say it."""
        return self.raw.size


class Store(ABC):
    """Files of one model by name.

    Attributes:
        label: What to call it in messages.
        commit: Commit of a published repository, empty for a folder.
    """

    label: str
    commit: str = ""

    @abstractmethod
    def path(self, name: str) -> Path | None:
        """Return the whole file on disk, fetched if need be; None if there is none."""

    @abstractmethod
    def open(self, name: str) -> CountedReader | None:
        """Open a file without fetching the whole of it; None if there is none."""

    @abstractmethod
    def holds(self, name: str) -> bool:
        """Whether there is such a file."""

    def json(self, name: str) -> Any:  # noqa: ANN401
        """Return the content of a JSON file, None if there is none.

        Raises:
            ValueError: If the file is no JSON.
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
        label: What to call it in messages, by default its path.
    """

    def __init__(self, folder: Path, label: str = "") -> None:
        self.folder = folder
        self.label = label or str(folder)

    def path(self, name: str) -> Path | None:
        """Return the file's path."""
        path = self.folder / plain_name(name)
        return path if path.is_file() else None

    def open(self, name: str) -> CountedReader | None:
        """Open the file."""
        path = self.path(name)
        return None if path is None else open_counted(path)

    def holds(self, name: str) -> bool:
        """Whether the file exists."""
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
        index: What names the file.
    """
    # An index file names its shards, and could name anything.
    plain = Path(name).name == name and "\\" not in name and name.isprintable()
    if not plain or not 0 < len(name) <= _LONGEST_NAME:
        raise ValueError(f"source: expected a plain file name in {index}, got {name[:99]!r}")
    return name
