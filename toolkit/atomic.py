"""Files that a reader, or a kill, never meets half written."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        with naming(path), temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes ``path`` in one step once the body has filled it.

    Nothing is left behind if the body raises. Where another process has been faster, its folder
    stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        try:
            temporary.rename(path)
        except OSError:
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
