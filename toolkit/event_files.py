"""Cut TensorBoard's event files back to a step, so that a continued run writes none twice."""

from collections.abc import Callable, Collection, Iterator
from math import inf
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter

# TensorBoard reads every file with "tfevents" in its name, so the new one must not have it.
_TEMPORARY = "rewriting.tmp"


def drop_after(
    folder: str | Path,
    step: int,
    *,
    written_until: float = inf,
    spared: Collection[Path] = (),
) -> int:
    """Remove the points of later steps from the event files in ``folder``.

    A record that a kill left unfinished goes as well. Each file is replaced as a whole, or left
    alone if nothing is to be removed.

    Args:
        folder: Log folder of the run.
        step: The last step to keep.
        written_until: Points of ``step`` itself that were written later than this (seconds since
            the epoch) go as well: the continued run writes them again.
        spared: Files that a logger is writing to, which stay as they are.

    Returns:
        The number of points removed.
    """
    return _keep(folder, lambda event: _is_kept(event, step, written_until), spared)


def keep_steps(folder: str | Path, steps: Collection[int]) -> int:
    """Remove the points of all other steps from every event file in ``folder``.

    A point that two processes have written, or one twice, stays once.

    Returns:
        The number of points removed.
    """
    seen: set[tuple[str, int]] = set()

    def is_kept(event: Event) -> bool:
        points = {(value.tag, event.step) for value in event.summary.value}
        is_new = not points or not points <= seen
        seen.update(points)
        return is_new and event.step in steps

    return _keep(folder, is_kept)


def _keep(
    folder: str | Path, is_kept: Callable[[Event], bool], spared: Collection[Path] = ()
) -> int:
    removed = 0
    for path in sorted(set(Path(folder).glob("events.out.tfevents.*")) - set(spared)):
        records = list(_records(path))
        events = map(Event.FromString, records)
        kept = [
            data
            for data, event in zip(records, events, strict=True)
            if not event.HasField("summary") or is_kept(event)
        ]
        _replace(path, kept)
        removed += len(records) - len(kept)
    return removed


def _records(path: Path) -> Iterator[bytes]:
    """Serialised events of the file, as far as it can be read."""
    yield from RawEventFileLoader(str(path)).Load()


def _is_kept(event: Event, step: int, written_until: float) -> bool:
    if event.step == step:
        return bool(event.wall_time <= written_until)
    return bool(event.step < step)


def _replace(path: Path, records: list[bytes]) -> None:
    temporary = path.with_name(_TEMPORARY)
    with temporary.open("wb") as file:
        writer = RecordWriter(file)
        for data in records:
            writer.write(data)
    if temporary.stat().st_size == path.stat().st_size:
        temporary.unlink()
    else:
        temporary.replace(path)
