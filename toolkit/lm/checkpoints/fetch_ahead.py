"""Download the next checkpoint while this one is measured, within a limit on the disk."""

import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple

from toolkit.lm.checkpoints.base import Checkpoint, RemoteFile
from toolkit.lm.checkpoints.fetched_files import FetchedFiles

_GIGABYTE = 10**9


class Fetched(NamedTuple):
    """A checkpoint whose turn it is.

    Attributes:
        checkpoint: The checkpoint.
        error: Why it could not be fetched, None if all of it is here.
    """

    checkpoint: Checkpoint
    error: Exception | None


def fetch_ahead(
    checkpoints: Sequence[Checkpoint], *, record: Path, max_disk_gb: float | None = None
) -> Generator[Fetched, None, None]:
    """Return the checkpoints one after the other, each once it is on this machine.

    While the caller uses one, the next is downloaded in the background; what goes wrong there
    comes with the checkpoint that it is about. With ``max_disk_gb`` those that the caller is done
    with are removed from the Hub's cache when room is needed, as far as this function, now or
    before it was killed, has put them there.

    Args:
        checkpoints: Checkpoints in the order in which they are wanted.
        record: File that lists what has been downloaded.
        max_disk_gb: Largest size of all that is downloaded, in units of 10^9 bytes; None for no
            limit, and then nothing is removed.

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
    """What has been downloaded, what of it is in use, and how much there may be."""

    def __init__(self, record: Path, limit: int | None) -> None:
        self._files = FetchedFiles(record)
        self._limit = limit
        # Two revisions may be one commit.
        self._in_use: list[Path | None] = []
        self._changed = threading.Condition()
        self._closed = False

    def use(self, checkpoint: Checkpoint) -> None:
        """Keep what there is of a checkpoint until it is released."""
        with self._changed:
            self._in_use.append(checkpoint.cache_folder)

    def release(self, checkpoint: Checkpoint) -> None:
        """Note that a checkpoint is not in use any more."""
        with self._changed:
            self._in_use.remove(checkpoint.cache_folder)
            self._changed.notify_all()

    def reserve(self, checkpoint: Checkpoint, files: Sequence[RemoteFile]) -> bool:
        """Note the files once there is room for them; False if nobody wants them any more."""
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
        """Wake up who waits for room that nobody will make."""
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
    """One checkpoint's download in a thread that no exit waits for: Ctrl-C ends it, too."""

    def __init__(self, checkpoint: Checkpoint, disk: _Disk) -> None:
        self.checkpoint = checkpoint
        self._disk = disk
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread is None:
            self._disk.use(self.checkpoint)
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def result(self) -> Exception | None:
        """Wait for the end and return what went wrong."""
        if self._thread is not None:
            self._thread.join()
        return self._error

    def _run(self) -> None:
        try:
            files = self.checkpoint.missing()
            if files and self._disk.reserve(self.checkpoint, files):
                self.checkpoint.fetch(files)
        except Exception as error:  # noqa: BLE001 - it is raised where the checkpoint is used
            self._error = error
