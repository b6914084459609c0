"""Time and memory of long work, shown with ``--debug``."""

import importlib
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LOGGER = logging.getLogger("toolkit.console.stages")
_STATUS = Path("/proc/self/statm")
_GIB = 2**30


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Log the time of the body and the memory of the process after it.

    Args:
        name: Name of the work.
    """
    begun = time.monotonic()
    yield
    if _LOGGER.isEnabledFor(logging.DEBUG):
        _LOGGER.debug("%s: %.1f s, %s", name, time.monotonic() - begun, memory())


@contextmanager
def told_stages(*, debug: bool) -> Iterator[None]:
    """Write the messages of `stage` to standard error.

    Args:
        debug: Whether to write them.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    level = _LOGGER.level
    if debug:
        _LOGGER.addHandler(handler)
        _LOGGER.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(level)


def memory() -> str:
    """Return the present and the largest memory of this process as readable text."""
    resource: Any = importlib.import_module("resource")
    # macOS counts bytes, Linux KiB.
    unit = 1 if sys.platform == "darwin" else 2**10
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _GIB
    if not _STATUS.exists():
        return f"at most {most:.2f} GiB of memory"
    pages = int(_STATUS.read_text().split()[1])
    return f"{pages * resource.getpagesize() / _GIB:.2f} GiB of memory, {most:.2f} GiB at most"
