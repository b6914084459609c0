"""A progress bar for what takes long."""

import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")
_SECONDS_BEFORE_IT_SHOWS = 2.0


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
