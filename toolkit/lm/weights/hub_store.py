"""A repository on the Hub; of the weights, only the needed parts are downloaded.

``huggingface_hub.HfFileSystem`` would read parts, too, but ignores the cache, asks the Hub for a
list of files first and knows no repositories without an owner, such as ``gpt2``.
"""

import importlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from toolkit.lm.hub import check_revision, hub_answer, is_offline
from toolkit.lm.weights.stores import CountedRaw, CountedReader, Store, open_counted, plain_name

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Bytes of one request: after a lost connection no more than this is repeated.
_LARGEST_PART = 64 * 2**20
# Larger than most headers.
_BUFFER = 2**17
_TIMEOUT = 30.0
_WHOLE = re.compile(r"/(\d+)$")
_PART, _PAST_THE_END = 206, 416


class HubRepository(Store):
    """A repository on the Hugging Face Hub, at the commit of its ``config.json``.

    Small files are downloaded into the Hub's cache. Weights are read from the cache if they are
    in it, otherwise in parts from the Hub. Offline, only cached files exist.

    Args:
        name: Name of the repository.
        revision: Branch, tag or commit.

    Raises:
        ValueError: If the model does not exist or the Hub cannot be reached.
    """

    def __init__(self, name: str, revision: str = "main") -> None:
        check_revision(revision)
        self.label = name if revision == "main" else f"{name}@{revision}"
        self._name, self._revision = name, revision
        self._existing: set[str] = set()
        config = self.path("config.json")
        if config is None:
            raise ValueError(
                f"source: expected a model with a config.json, got {self.label}, which has none"
                + (" in the cache; unset HF_HUB_OFFLINE or give a local path" * is_offline())
            )
        self.commit = self._revision = config.parent.name

    @override
    def path(self, name: str) -> Path | None:
        from huggingface_hub import hf_hub_download  # noqa: PLC0415

        name = plain_name(name)
        path = hub_answer(
            self.label, lambda: hf_hub_download(self._name, name, revision=self._revision)
        )
        return None if path is None else Path(path)

    @override
    def open(self, name: str) -> CountedReader | None:
        cached = self._cached(name)
        if cached is not None:
            return open_counted(cached)
        if name not in self._existing and not self.holds(name):
            return None
        self._existing.add(name)
        return CountedReader(_HubFile(self._url(name), f"{self.label}/{name}"), _BUFFER)

    @override
    def holds(self, name: str) -> bool:
        if self._cached(name) is not None:
            return True
        if is_offline():
            return False
        from huggingface_hub import get_hf_file_metadata  # noqa: PLC0415

        url = self._url(name)
        return hub_answer(self.label, lambda: get_hf_file_metadata(url)) is not None

    def _url(self, name: str) -> str:
        from huggingface_hub import hf_hub_url  # noqa: PLC0415

        return hf_hub_url(self._name, plain_name(name), revision=self._revision)

    def _cached(self, name: str) -> Path | None:
        from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415

        cached = try_to_load_from_cache(self._name, plain_name(name), revision=self._revision)
        return Path(cached) if isinstance(cached, str) else None


class _HubFile(CountedRaw):
    """A file on the Hub; each read is one range request, which the Hub's client may repeat."""

    def __init__(self, url: str, label: str) -> None:
        self._url, self._label, self._position = url, label, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        # No caller seeks from the end of the file: its size would cost a request.
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

        def request() -> Any:  # noqa: ANN401
            headers = {**client.build_hf_headers(), **part}
            response = client.http_backoff("GET", self._url, headers=headers, timeout=_TIMEOUT)
            if response.status_code != _PAST_THE_END:
                client.hf_raise_for_status(response)
            return response

        response = hub_answer(self._label, request)
        if response is None or response.status_code == _PAST_THE_END:
            return b""
        if response.status_code != _PART:
            raise ValueError(
                f"source: expected {self._label} in parts, got the whole file; download it first"
            )
        whole = _WHOLE.search(response.headers.get("Content-Range", ""))
        self.size = int(whole[1]) if whole else self.size
        return bytes(response.content)
