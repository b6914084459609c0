"""Locks of folders: one process at a time writes to a folder."""

import json
import os
import socket
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_NAME = ".lock"
_ATTEMPTS = 10
# A byte after the text: on Windows other processes cannot read locked bytes.
_LOCKED_BYTE = 1 << 30
# A forked process must close these descriptors, or the lock would outlive its parent.
_held: set[int] = set()


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Lock the folder against other processes while the body runs.

    The system frees the lock when the process ends, even after a kill. Other machines see the lock
    if their network file system supports locks; without locks there is a warning, and the body
    runs.

    Args:
        folder: The folder. It is created if needed, and removed if it stays empty. Meanwhile it
            contains the file `LOCK_NAME`.

    Yields:
        Whether the folder was created.

    Raises:
        ValueError: If another process holds the lock; the message names it.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    is_new = _make(folder)
    path, owner = folder / LOCK_NAME, os.getpid()
    descriptor = _acquire(path)
    if descriptor is not None:
        _held.add(descriptor)
    try:
        yield is_new
    finally:
        if os.getpid() == owner:
            if descriptor is not None:
                _release(path, descriptor)
            _remove_empty(missing)


def _make(folder: Path) -> bool:
    """Create the folder; return False if another process was faster."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _release(path: Path, descriptor: int) -> None:
    _held.discard(descriptor)
    if sys.platform != "win32":
        # No other process has the lock meanwhile.
        path.unlink(missing_ok=True)
    os.close(descriptor)
    if sys.platform == "win32":
        path.unlink(missing_ok=True)


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove empty folders, innermost first."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def _acquire(path: Path) -> int | None:
    """Return the descriptor of the lock, None if the file system has no locks."""
    for _ in range(_ATTEMPTS):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(descriptor)
        except (BlockingIOError, PermissionError):
            os.close(descriptor)
            raise _occupied(path) from None
        except OSError as error:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            warnings.warn(
                f"{path.parent}: its file system has no locks ({error.strerror}); nothing keeps "
                "a second process from writing there",
                stacklevel=3,
            )
            return None
        if _is_file_at(path, descriptor):
            _write_holder(descriptor)
            return descriptor
        # The process before has just released the lock and removed this file.
        os.close(descriptor)
    raise _occupied(path)


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_file_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int) -> None:
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "start": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, json.dumps(holder).encode())


def _occupied(path: Path) -> ValueError:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        named = f"process {holder['pid']} on {holder['host']}, started {holder['start']}"
    except (OSError, ValueError, KeyError, TypeError):
        named = "another process"
    return ValueError(
        f"run: expected a folder to which no other process writes, got {path.parent}, to which "
        f"{named} writes; wait for its end, or give another name with --run"
    )


def _close_inherited() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited)
