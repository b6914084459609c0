"""Where a model's files lie, and what is asked of the Hub, refused in one line."""

import importlib
import io
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_T = TypeVar("_T")
_REPOSITORY = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?")
_REVISION = re.compile(r"\w[\w.+-]*(?:/\w[\w.+-]*)*")
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


def is_repository_name(text: str) -> bool:
    """Whether ``text`` could be the name of a repository on the Hub."""
    return _REPOSITORY.fullmatch(text) is not None and ".." not in text


def check_revision(revision: str) -> None:
    """Raise a ValueError unless ``revision`` is a branch, tag or commit: it becomes a path."""
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise ValueError(f"revision: expected a branch, tag or commit, got {revision!r}")


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


def is_offline() -> bool:
    """Whether the Hub's client has been told to stay off the network."""
    return bool(importlib.import_module("huggingface_hub.constants").HF_HUB_OFFLINE)


def hub_answer(label: str, ask: Callable[[], _T]) -> _T | None:
    """Return the Hub's answer, None about a missing file; say in one line what else it refuses."""
    from huggingface_hub import errors  # noqa: PLC0415

    # What the HTTP client raises itself is no OSError with every version of the Hub's client.
    lost: tuple[Any, ...] = (OSError, *errors.HfHubHTTPError.__bases__)
    try:
        return ask()
    except errors.LocalEntryNotFoundError as error:
        if not is_offline():
            raise ValueError(
                f"source: expected a local path or a model on the Hub, got {label}, and the Hub "
                "cannot be reached; give a local path or go online"
            ) from error
        return None
    except errors.EntryNotFoundError:
        return None
    except errors.GatedRepoError as error:
        raise ValueError(
            f"source: expected a model you may read, got {label}, which is gated; accept its "
            "terms on the Hub and log in"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ValueError(
            f"source: expected a local path or a model on the Hub, got {label}, which is neither; "
            "log in if it is private"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ValueError(f"revision: expected one of the model's, got {label}") from error
    except lost as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"source: expected an answer of the Hub about {label}, got {reason[0]}"
        ) from error
