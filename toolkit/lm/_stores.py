"""Where a model's files lie: a local folder, or a repository on the Hub read in parts."""

import importlib
import io
import json
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
# One request each; a lost connection repeats no more than this.
_LARGEST_PART = 64 * 2**20
_LOCAL_BUFFER, _HUB_BUFFER = 2**13, 2**17
_TIMEOUT = 30.0
_PART, _PAST_THE_END = 206, 416


class CountedReader(io.BufferedReader):
    """A file opened for reading that counts the bytes really fetched from disk or network."""

    raw: "_CountedFile | _HubFile"

    @property
    def bytes_read(self) -> int:
        """Bytes fetched until now, what was buffered ahead included."""
        return self.raw.bytes_read


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
        except ValueError as error:
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
        path = self.folder / _plain(name)
        return path if path.is_file() else None

    def open(self, name: str) -> CountedReader | None:
        """Open the file."""
        path = self.path(name)
        return None if path is None else open_counted(path)

    def holds(self, name: str) -> bool:
        """Whether the file exists."""
        return self.path(name) is not None


class HubRepository(Store):
    """A repository on the Hugging Face Hub, at the commit its ``config.json`` came from.

    Small files go through the Hub's cache. Weights are taken from there if they are in it, and
    else read in parts. Offline, what is not cached does not exist.

    Args:
        name: Name of the repository.
        revision: Branch, tag or commit.

    Raises:
        ValueError: If there is no such model or it cannot be reached.
    """

    def __init__(self, name: str, revision: str = "main") -> None:
        check_revision(revision)
        self.label = name if revision == "main" else f"{name}@{revision}"
        self._name, self._revision = name, revision
        self._found: set[str] = set()
        config = self.path("config.json")
        if config is None:
            raise ValueError(
                f"source: expected a model with a config.json, got {self.label}, which has none"
                + (" in the cache; unset HF_HUB_OFFLINE or give a local path" * _is_offline())
            )
        self.commit = self._revision = config.parent.name

    def path(self, name: str) -> Path | None:
        """Download the file unless it is cached."""
        from huggingface_hub import hf_hub_download  # noqa: PLC0415

        name = _plain(name)
        path = _answer(
            self.label, lambda: hf_hub_download(self._name, name, revision=self._revision)
        )
        return None if path is None else Path(path)

    def open(self, name: str) -> CountedReader | None:
        """Open the cached file, or the one on the Hub for reading in parts."""
        cached = self._cached(name)
        if cached is not None:
            return open_counted(cached)
        if name not in self._found and not self.holds(name):
            return None
        self._found.add(name)
        return CountedReader(_HubFile(self._url(name), f"{self.label}/{name}"), _HUB_BUFFER)

    def holds(self, name: str) -> bool:
        """Whether the file is cached or on the Hub."""
        if self._cached(name) is not None:
            return True
        if _is_offline():
            return False
        from huggingface_hub import get_hf_file_metadata  # noqa: PLC0415

        url = self._url(name)
        return _answer(self.label, lambda: get_hf_file_metadata(url)) is not None

    def _url(self, name: str) -> str:
        from huggingface_hub import hf_hub_url  # noqa: PLC0415

        return hf_hub_url(self._name, _plain(name), revision=self._revision)

    def _cached(self, name: str) -> Path | None:
        from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415

        cached = try_to_load_from_cache(self._name, _plain(name), revision=self._revision)
        return Path(cached) if isinstance(cached, str) else None


class _CountedFile(io.FileIO):
    bytes_read = 0

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        number = super().readinto(buffer) or 0
        self.bytes_read += number
        return number


class _HubFile(io.RawIOBase):
    """A file on the Hub; each read is one range request, repeated by the Hub's client if lost."""

    bytes_read = 0

    def __init__(self, url: str, label: str) -> None:
        self._url, self._label, self._position = url, label, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        # Nothing here measures from the end, whose place would cost a request.
        self._position = offset + (self._position if whence == io.SEEK_CUR else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        content = self._fetch(self._position, min(len(view), _LARGEST_PART))
        view[: len(content)] = content
        self._position += len(content)
        self.bytes_read += len(content)
        return len(content)

    def _fetch(self, start: int, length: int) -> bytes:
        client = importlib.import_module("huggingface_hub.utils")
        part = {"Range": f"bytes={start}-{start + length - 1}"}

        def ask() -> Any:  # noqa: ANN401
            headers = {**client.build_hf_headers(), **part}
            response = client.http_backoff("GET", self._url, headers=headers, timeout=_TIMEOUT)
            if response.status_code != _PAST_THE_END:
                client.hf_raise_for_status(response)
            return response

        response = _answer(self._label, ask)
        if response is None or response.status_code == _PAST_THE_END:
            return b""
        if response.status_code != _PART:
            raise ValueError(
                f"source: expected {self._label} in parts, got the whole; download it first"
            )
        return bytes(response.content)


def open_counted(path: Path) -> CountedReader:
    """Open a local file."""
    return CountedReader(_CountedFile(path), _LOCAL_BUFFER)


def is_repository_name(text: str) -> bool:
    """Whether ``text`` could be the name of a repository on the Hub."""
    return _REPOSITORY.fullmatch(text) is not None and ".." not in text


def check_revision(revision: str) -> None:
    """Raise a ValueError unless ``revision`` is a branch, tag or commit: it becomes a path."""
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise ValueError(f"revision: expected a branch, tag or commit, got {revision!r}")


def _plain(name: str) -> str:
    # An index file names its shards, and could name anything.
    if Path(name).name != name or "\\" in name:
        raise ValueError(f"source: expected a plain file name in the index, got {name!r}")
    return name


def _is_offline() -> bool:
    return bool(importlib.import_module("huggingface_hub.constants").HF_HUB_OFFLINE)


def _answer(label: str, ask: Callable[[], _T]) -> _T | None:
    """Return the Hub's answer, None about a missing file; say in one line what else it refuses."""
    from huggingface_hub import errors  # noqa: PLC0415

    # What the HTTP client raises itself is no OSError with every version of the Hub's client.
    lost: tuple[Any, ...] = (OSError, *errors.HfHubHTTPError.__bases__)
    try:
        return ask()
    except errors.LocalEntryNotFoundError as error:
        if not _is_offline():
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
