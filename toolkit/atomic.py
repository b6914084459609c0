"""Atomic writing: files are never half written, even after a kill or a power cut."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Some network file systems cannot sync a folder.
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP}


def is_disk_full(error: BaseException) -> bool:
    """Return whether the error means a full disk, a full quota or a file at its size limit."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name to the error of a full disk: writing to an open file gives none."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error) and error.filename is None:
            error.filename = str(path)
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` in one step: the file has the old or the complete new content."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path, *, temporary_name: str = "") -> Iterator[Path]:
    """Yield a temporary path; the file written there becomes ``path`` in one step.

    Afterwards file and folder are on disk. If the body raises, ``path`` is as before, and no new
    file or folder is left. If the body has removed the temporary file, ``path`` is as before.

    Args:
        path: The file; its folder is created if needed.
        temporary_name: Name of the temporary file, by default that of ``path`` with ``.tmp``.
    """
    temporary = path.with_name(temporary_name or f"{path.name}.tmp")
    with _existing(path.parent), naming(path):
        try:
            yield temporary
            if temporary.exists():
                _sync(temporary)
                temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync(path.parent)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes ``path`` in one step once the body has filled it.

    Afterwards the folder is on disk with all its files. If the body raises, no folder is left. If
    another process has created ``path`` meanwhile, that folder stays.
    """
    with _existing(path.parent):
        temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
        temporary.mkdir()
        try:
            yield temporary
            for written in (*temporary.rglob("*"), temporary):
                _sync(written)
            try:
                temporary.rename(path)
            except OSError:
                if not path.is_dir():
                    raise
            _sync(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _existing(folder: Path) -> Iterator[None]:
    """Create a folder; if the body raises, remove it and the parents that were created."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in created:
            _sync(path.parent)
        yield
    except BaseException:
        for path in created:
            # Another process may have written a file there meanwhile.
            with suppress(OSError):
                path.rmdir()
        raise


def _sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on disk."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)
