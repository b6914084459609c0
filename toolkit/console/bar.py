"""Progress bars of long work."""

import io
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

_Item = TypeVar("_Item")
_SECONDS_BEFORE_IT_SHOWS = 2.0
# The count in the text of a tqdm bar.
_COUNT = re.compile(r"(\d+)/(\d+) \[")


def with_progress(items: Sequence[_Item], *, description: str) -> Iterator[_Item]:
    """Yield the items; when this takes long, show a progress bar on standard error."""
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
    """Replacement of standard error for code with its own bar; it feeds the count to our bar.

    Args:
        tell: Called with the amount done and the total, each time the other bar writes.
    """

    def __init__(self, tell: Callable[[int, int], None]) -> None:
        super().__init__()
        self._tell = tell

    def write(self, text: str) -> int:
        """Take the count from the text and drop the rest."""
        for done, whole in _COUNT.findall(text):
            self._tell(int(done), int(whole))
        return len(text)


@contextmanager
def counting_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar with the elapsed time at once, if standard error is a terminal.

    Args:
        description: Name of the work.

    Yields:
        A function that takes the amount done and the total.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    # The present stream: standard error may be replaced while the bar is shown.
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
