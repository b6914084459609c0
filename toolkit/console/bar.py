"""A progress bar for what takes long."""

import io
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

_Item = TypeVar("_Item")
_SECONDS_BEFORE_IT_SHOWS = 2.0
# How tqdm writes how far it is.
_COUNT = re.compile(r"(\d+)/(\d+) \[")


def with_progress(items: Sequence[_Item], *, description: str) -> Iterator[_Item]:
    """Yield the items; once that takes long, a bar on standard error tells how far it is."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(description, total=len(items))
    begun = time.monotonic()
    try:
        for done, item in enumerate(items):
            bar.update(task, completed=done)
            if time.monotonic() - begun >= _SECONDS_BEFORE_IT_SHOWS:
                bar.start()
            yield item
    finally:
        if bar.live.is_started:
            bar.stop()


class OtherBar(io.StringIO):
    """Standard error for code with a bar of its own, which is told to another one instead.

    Args:
        tell: Called with what has been done and the whole, each time the other bar writes.
    """

    def __init__(self, tell: Callable[[int, int], None]) -> None:
        super().__init__()
        self._tell = tell

    def write(self, text: str) -> int:
        """Keep nothing of the text but its count."""
        for done, whole in _COUNT.findall(text):
            self._tell(int(done), int(whole))
        return len(text)


@contextmanager
def counting_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar with the time on a terminal's standard error, from the beginning on.

    Args:
        description: What takes long.

    Yields:
        A function that is told what has been done and the whole.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    # This very stream, whatever stands in for standard error in the meantime.
    console = Console(file=sys.stderr)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task(description, total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole)
