"""A Hub on this machine: repositories served from folders, as the real one answers."""

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest
from huggingface_hub import constants

PARTIAL, PAST_THE_END = 206, 416


class Request(NamedTuple):
    """One request and the bytes of content sent."""

    method: str
    file: str
    part: str
    num_bytes: int


class FakeHub:
    """Repositories by name, in each the folder of every revision.

    Attributes:
        requests: What was asked until now.
        serves_parts: Whether range requests are honoured.
    """

    def __init__(self, repositories: Mapping[str, Mapping[str, Path]]) -> None:
        self.repositories = repositories
        self.requests: list[Request] = []
        self.serves_parts = True

    def find(self, url_path: str) -> tuple[str, Path | None]:
        """The error code of a request, or the commit and the file."""
        name, _, rest = unquote(url_path.lstrip("/")).partition("/resolve/")
        if name not in self.repositories:
            return "RepoNotFound", None
        for revision, folder in self.repositories[name].items():
            for alias in (revision, commit_of(revision)):
                if rest.startswith(f"{alias}/"):
                    path = folder / rest.removeprefix(f"{alias}/")
                    return (
                        (commit_of(revision), path) if path.is_file() else ("EntryNotFound", None)
                    )
        return "RevisionNotFound", None

    def sent(self, file: str) -> int:
        """Bytes of a file's content sent until now."""
        return sum(request.num_bytes for request in self.requests if request.file == file)


def commit_of(revision: str) -> str:
    """The commit that a revision stands for."""
    return hashlib.sha1(revision.encode()).hexdigest()


def _part_of(content: bytes, part: str) -> tuple[int, bytes]:
    """Status and content of the answer to a range request."""
    start, stop = part.removeprefix("bytes=").split("-")
    content = content[int(start) : int(stop) + 1]
    return (PARTIAL if content else PAST_THE_END), content


@contextmanager
def serve(hub: FakeHub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """Let the Hub's client talk to ``hub`` and cache in ``cache``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_content=False)

        def do_GET(self) -> None:
            self._answer(with_content=True)

        def _answer(self, *, with_content: bool) -> None:
            code, path = hub.find(self.path)
            part = self.headers.get("Range", "") if hub.serves_parts else ""
            whole = b"" if path is None else path.read_bytes()
            size = len(whole)
            status, content = _part_of(whole, part) if part else (200, whole)
            status = 404 if path is None else status
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if path is None:
                self.send_header("X-Error-Code", code)
            else:
                self.send_header("X-Repo-Commit", code)
                self.send_header("ETag", f'"{hashlib.sha1(path.read_bytes()).hexdigest()}"')
                self.send_header("X-Linked-Size", str(size))
            if status == PARTIAL:
                self.send_header("Content-Range", f"bytes {part.removeprefix('bytes=')}/{size}")
            self.end_headers()
            if with_content:
                self.wfile.write(content)
            sent = len(content) if with_content else 0
            hub.requests.append(Request(self.command, Path(self.path).name, part, sent))

        def log_message(self, *args: object) -> None:
            """Tests say enough."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
