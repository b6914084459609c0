"""Cutting of TensorBoard's event files, so that a continued run has no point twice."""

import struct
import warnings
from collections.abc import Callable, Collection, Iterator
from math import inf
from pathlib import Path
from typing import NamedTuple

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.summary.writer.record_writer import RecordWriter

from toolkit.atomic import replacing

# TensorBoard reads every file with "tfevents" in its name, so a new file must not have it.
_TEMPORARY = "rewriting.tmp"
_FILES = "events.out.tfevents.*"
# A record: the length of its data, a checksum of these 8 bytes, the data, and its checksum.
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_HEADER_BYTES = _LENGTH.size + _CHECKSUM.size


class BoardPoints(NamedTuple):
    """The points that TensorBoard shows, as pairs of tag and step.

    Attributes:
        scalars: The numbers.
        images: The figures.
    """

    scalars: set[tuple[str, int]]
    images: set[tuple[str, int]]


def points_in(folder: str | Path) -> BoardPoints:
    """Return the points of all event files in ``folder``."""
    points = BoardPoints(set(), set())
    for path in sorted(Path(folder).glob(_FILES)):
        for record in _records(path, check=False):
            event = Event.FromString(record)
            for value in event.summary.value:
                is_image = value.HasField("image")
                points[1 if is_image else 0].add((value.tag, event.step))
    return points


def drop_after(
    folder: str | Path,
    step: int,
    *,
    written_until: float = inf,
    spared: Collection[Path] = (),
) -> int:
    """Remove the points of later steps from the event files in ``folder``.

    A record that a kill left unfinished is removed, too, and damaged records with a warning. Each
    file is replaced as a whole, or unchanged if no point is removed.

    Args:
        folder: Log folder of the run.
        step: The last step to keep.
        written_until: Points of ``step`` itself that were written later than this (seconds since
            the epoch) are removed, too: the continued run writes them again.
        spared: Files that a logger is writing to; they are not changed.

    Returns:
        The number of points removed.
    """
    return _keep(folder, lambda event: _is_kept(event, step, written_until), spared)


def keep_steps(folder: str | Path, steps: Collection[int]) -> int:
    """Remove the points of all other steps from every event file in ``folder``.

    A duplicated point is kept once.

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
    for path in sorted(set(Path(folder).glob(_FILES)) - set(spared)):
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


def _records(path: Path, *, check: bool = True) -> Iterator[bytes]:
    """Yield the serialised events of the file, including those between damaged places.

    Args:
        path: The file.
        check: Whether to compare the data with its checksum, which is slow, and to warn.
    """
    data = path.read_bytes()
    position, read = 0, 0
    while (start := _next_header(data, position)) is not None:
        (length,) = _LENGTH.unpack_from(data, start)
        position = start + _HEADER_BYTES + length + _CHECKSUM.size
        if position > len(data):
            # An unfinished record after a kill.
            read += len(data) - start
            break
        record = data[start + _HEADER_BYTES : start + _HEADER_BYTES + length]
        if check and _CHECKSUM.unpack_from(data, position - 4)[0] != masked_crc32c(record):
            continue
        read += position - start
        yield record
    lost = len(data) - read
    if check and lost >= _HEADER_BYTES:
        warnings.warn(
            f"{path}: {lost} bytes are damaged; the points in them are lost, but for those that "
            "are measured, which are written again",
            stacklevel=2,
        )


def _next_header(data: bytes, position: int) -> int | None:
    """Return the position of the next record with a valid length, ``position`` if it is undamaged.

    None at the end, or if less than a header is left.
    """
    while position + _HEADER_BYTES <= len(data):
        (checksum,) = _CHECKSUM.unpack_from(data, position + _LENGTH.size)
        if checksum == masked_crc32c(data[position : position + _LENGTH.size]):
            return position
        # Lengths are below 2^32, so the second half of the next length is zero.
        zeros = data.find(bytes(4), position + 5)
        if zeros < 0:
            return None
        position = zeros - 4
    return None


def _is_kept(event: Event, step: int, written_until: float) -> bool:
    if event.step == step:
        return bool(event.wall_time <= written_until)
    return bool(event.step < step)


def _replace(path: Path, records: list[bytes]) -> None:
    with replacing(path, temporary_name=_TEMPORARY) as temporary:
        with temporary.open("wb") as file:
            writer = RecordWriter(file)
            for data in records:
                writer.write(data)
        if temporary.stat().st_size == path.stat().st_size:
            temporary.unlink()
