"""Download of the next checkpoint during the measurement, within a limit of disk space."""

import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple

from toolkit.lm.checkpoints.base import Checkpoint, RemoteFile
from toolkit.lm.checkpoints.fetched_files import FetchedFiles

_GIGABYTE = 10**9


class Fetched(NamedTuple):
    """A checkpoint after its download.

    Attributes:
        checkpoint: The checkpoint.
        error: Error of the download, None if all files are on this machine.
    """

    checkpoint: Checkpoint
    error: Exception | None


def fetch_ahead(
    checkpoints: Sequence[Checkpoint], *, record: Path, max_disk_gb: float | None = None
) -> Generator[Fetched, None, None]:
    """Yield the checkpoints one after another, each after its download.

    While the caller uses a checkpoint, the next is downloaded in the background. An error of a
    download comes with its checkpoint. With ``max_disk_gb``, used checkpoints are deleted from
    the Hub's cache when space is needed. Only files that this function has downloaded are
    deleted; files of an earlier, killed run with the same ``record`` count, too.

    Args:
        checkpoints: Checkpoints in the order of their use.
        record: File that lists the downloads.
        max_disk_gb: Largest total size of the downloads, in units of 10^9 bytes. With None there
            is no limit, and nothing is deleted.

    Raises:
        ValueError: If ``max_disk_gb`` is not positive.
    """
    if max_disk_gb is not None and not max_disk_gb > 0:
        raise ValueError(f"max_disk_gb: expected a positive number, got {max_disk_gb}")
    disk = _Disk(record, None if max_disk_gb is None else int(max_disk_gb * _GIGABYTE))
    downloads = [_Download(checkpoint, disk) for checkpoint in checkpoints]
    try:
        for index, download in enumerate(downloads):
            download.start()
            error = download.result()
            for following in downloads[index + 1 : index + 2]:
                following.start()
            yield Fetched(download.checkpoint, error)
            disk.release(download.checkpoint)
    finally:
        disk.close()


class _Disk:
    """Disk space of the downloads: files, checkpoints in use, and limit."""

    def __init__(self, record: Path, limit: int | None) -> None:
        self._files = FetchedFiles(record)
        self._limit = limit
        # A list, not a set: two revisions may be the same commit.
        self._in_use: list[Path | None] = []
        self._changed = threading.Condition()
        self._closed = False

    def use(self, checkpoint: Checkpoint) -> None:
        """Keep the files of a checkpoint until it is released."""
        with self._changed:
            self._in_use.append(checkpoint.cache_folder)

    def release(self, checkpoint: Checkpoint) -> None:
        """Note that a checkpoint is no longer in use."""
        with self._changed:
            self._in_use.remove(checkpoint.cache_folder)
            self._changed.notify_all()

    def reserve(self, checkpoint: Checkpoint, files: Sequence[RemoteFile]) -> bool:
        """Reserve disk space for the files; return False if the walk was closed meanwhile."""
        size = sum(file.size for file in files)
        if self._limit is not None and size > self._limit:
            raise ValueError(
                f"max_disk_gb: expected room for {checkpoint.label}, {size / _GIGABYTE:.3f}, got "
                f"{self._limit / _GIGABYTE:.3f}"
            )
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._makes_room(size))
            if not self._closed:
                self._files.add(file.path for file in files)
            return not self._closed

    def close(self) -> None:
        """Stop waiting for disk space: the walk has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _makes_room(self, size: int) -> bool:
        if self._limit is None:
            return True
        for folder in self._files.folders:
            if self._files.size() + size <= self._limit:
                break
            if folder not in self._in_use:
                self._files.drop(folder)
        return self._files.size() + size <= self._limit


class _Download:
    """Download of one checkpoint in a daemon thread, so that Ctrl-C ends it, too."""

    def __init__(self, checkpoint: Checkpoint, disk: _Disk) -> None:
        self.checkpoint = checkpoint
        self._disk = disk
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the download, unless it is already started."""
        if self._thread is None:
            self._disk.use(self.checkpoint)
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def result(self) -> Exception | None:
        """Wait for the end of the download and return its error, if any."""
        if self._thread is not None:
            self._thread.join()
        return self._error

    def _run(self) -> None:
        try:
            files = self.checkpoint.missing()
            if files and self._disk.reserve(self.checkpoint, files):
                self.checkpoint.fetch(files)
        except Exception as error:  # noqa: BLE001 - the caller gets it with the checkpoint
            self._error = error
