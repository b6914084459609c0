"""Files that a reader, a kill or a power cut never leaves half written."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Some network file systems cannot be asked to write a folder to disk.
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP}


def is_disk_full(error: BaseException) -> bool:
    """Whether a file could not be written because there is no room, or it may not grow."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let the error of a full disk name the file: that of writing to an open one does not."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error) and error.filename is None:
            error.filename = str(path)
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` in one step: it holds either the old content or all of the new."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path, *, temporary_name: str = "") -> Iterator[Path]:
    """Yield a temporary path; the file written there becomes ``path`` in one step.

    Afterwards file and folder are on disk. If the body raises, ``path`` is as before and nothing
    else is left, no folder either. Where the body has removed its file, ``path`` stays as it was.

    Args:
        path: The file; its folder is created when needed.
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

    Afterwards it is on disk with all its files. Nothing is left behind if the body raises. Where
    another process has been faster, its folder stays.
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
    """Create a folder; take it away again, with parents that were created, if the body raises."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in created:
            _sync(path.parent)
        yield
    except BaseException:
        for path in created:
            # Another process may have put something there in the meantime.
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
