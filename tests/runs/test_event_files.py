"""Event files are cut back to a step, and stay readable by TensorBoard."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from torch.utils.tensorboard import SummaryWriter

from toolkit.runs.event_files import drop_after, keep_steps, points_in

POINTS = {"a": [0, 10, 20, 30], "b": [5, 20, 25]}


def write_points(folder: Path, points: dict[str, list[int]], *, wall_time: float = 100.0) -> None:
    with SummaryWriter(str(folder)) as writer:
        for tag, steps in points.items():
            for step in steps:
                writer.add_scalar(tag, step / 7, step, walltime=wall_time)


def read_points(folder: Path) -> dict[str, list[tuple[int, float | bytes]]]:
    """Numbers and pictures by tag in the order of TensorBoard: file by file."""
    points: dict[str, list[tuple[int, float | bytes]]] = {}
    for path in sorted(folder.glob("events.out.tfevents.*"), key=_age):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                tensor = value.tensor
                content = tensor.float_val[0] if tensor.float_val else b"".join(tensor.string_val)
                points.setdefault(value.tag, []).append((event.step, content))
    return points


def _age(path: Path) -> list[int]:
    # Within a second the files of one process are numbered, which sorts 10 before 9 as text.
    return [int(number) for number in re.findall(r"\d+", path.name)]


def steps_of(folder: Path) -> dict[str, list[int]]:
    return {tag: [step for step, _ in points] for tag, points in read_points(folder).items()}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_points_that_two_processes_have_written_stay_once(tmp_path: Path) -> None:
    write_points(tmp_path, POINTS)
    before = read_points(tmp_path)
    # In another file, as that of a second process.
    first = next(tmp_path.iterdir())
    (tmp_path / f"{first.name}.2").write_bytes(first.read_bytes())
    assert keep_steps(tmp_path, {0, 5, 10, 20, 25, 30}) == 7
    assert read_points(tmp_path) == before
    assert keep_steps(tmp_path, {0, 5, 10, 20, 25, 30}) == 0


@pytest.mark.parametrize("step", [-1, 0, 4, 5, 19, 20, 29, 30])
def test_keeps_exactly_the_points_up_to_the_step(tmp_path: Path, step: int) -> None:
    write_points(tmp_path, POINTS)
    kept = {tag: [s for s in steps if s <= step] for tag, steps in POINTS.items()}
    removed = drop_after(tmp_path, step)
    assert steps_of(tmp_path) == {tag: steps for tag, steps in kept.items() if steps}
    assert removed == sum(map(len, POINTS.values())) - sum(map(len, kept.values()))
    # Twice is once: a kill in between is repaired by doing it again.
    assert drop_after(tmp_path, step) == 0


def test_keeps_the_points_of_some_steps_alone(tmp_path: Path) -> None:
    write_points(tmp_path, POINTS)
    assert keep_steps(tmp_path, {0, 20}) == 4
    assert steps_of(tmp_path) == {"a": [0, 20], "b": [20]}
    assert keep_steps(tmp_path, {0, 20}) == 0


def test_values_and_the_file_version_survive(tmp_path: Path) -> None:
    write_points(tmp_path, POINTS)
    before = read_points(tmp_path)
    drop_after(tmp_path, 20)
    assert read_points(tmp_path) == {
        tag: [point for point in points if point[0] <= 20] for tag, points in before.items()
    }
    (path,) = tmp_path.iterdir()
    assert next(EventFileLoader(str(path)).Load()).file_version == "brain.Event:2"


def test_points_of_the_step_itself_go_if_written_later(tmp_path: Path) -> None:
    write_points(tmp_path, {"before": [10, 20]}, wall_time=100.0)
    write_points(tmp_path, {"after": [10, 20]}, wall_time=102.0)
    assert drop_after(tmp_path, 20, written_until=101.0) == 1
    assert steps_of(tmp_path) == {"before": [10, 20], "after": [10]}


@pytest.mark.parametrize("cut", [1, 4, 9, 20])
def test_a_record_torn_by_a_kill_goes(tmp_path: Path, cut: int) -> None:
    write_points(tmp_path, {"a": [1, 2, 3]})
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-cut])
    assert drop_after(tmp_path, 100) == 0
    assert steps_of(tmp_path) == {"a": [1, 2]}
    # The file ends with a whole record: what follows can be read.
    whole = path.read_bytes()
    with SummaryWriter(str(tmp_path / "other")) as writer:
        writer.add_scalar("a", 1.0, 3)
    (other,) = (tmp_path / "other").iterdir()
    path.write_bytes(whole + other.read_bytes())
    assert steps_of(tmp_path) == {"a": [1, 2, 3]}


def test_a_file_without_later_points_is_left_alone(tmp_path: Path) -> None:
    write_points(tmp_path, POINTS)
    (tmp_path / "config.yaml").write_text("run: a\n")
    before = files_of(tmp_path)
    modified = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert drop_after(tmp_path, 30) == 0
    assert files_of(tmp_path) == before
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == modified


def test_a_kill_while_rewriting_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_points(tmp_path, POINTS)
    before = files_of(tmp_path)

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            drop_after(tmp_path, 10)
    assert before.items() <= files_of(tmp_path).items()
    assert steps_of(tmp_path) == POINTS
    drop_after(tmp_path, 10)
    assert steps_of(tmp_path) == {"a": [0, 10], "b": [5]}
    assert len(files_of(tmp_path)) == 1


def test_an_empty_folder_is_fine(tmp_path: Path) -> None:
    assert drop_after(tmp_path, 3) == 0


def records_of(path: Path) -> list[tuple[int, int]]:
    """Where each record of the file begins and ends."""
    data, ends = path.read_bytes(), [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 16 + int.from_bytes(data[ends[-1] : ends[-1] + 8], "little"))
    return list(pairwise(ends))


@pytest.mark.parametrize("place", ["length", "its checksum", "data", "checksum of data"])
def test_what_follows_a_damaged_record_is_kept(tmp_path: Path, place: str) -> None:
    write_points(tmp_path, {"a": [1, 2, 3, 4]})
    (path,) = tmp_path.iterdir()
    # The first is the file's version, the others are the points.
    start, end = records_of(path)[2]
    damaged = bytearray(path.read_bytes())
    offset = {"length": 1, "its checksum": 9, "data": 15, "checksum of data": end - start - 1}
    damaged[start + offset[place]] ^= 0x40
    path.write_bytes(damaged)
    with pytest.warns(UserWarning, match=rf"tfevents.*: {end - start} bytes are damaged; the"):
        assert drop_after(tmp_path, 3) == 1
    assert steps_of(tmp_path) == {"a": [1, 3]}
    # What is left is whole.
    assert drop_after(tmp_path, 3) == 0


def test_bytes_without_any_record_go(tmp_path: Path) -> None:
    write_points(tmp_path, {"a": [1, 2]})
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes() + b"x" * 100)
    with pytest.warns(UserWarning, match="100 bytes are damaged"):
        drop_after(tmp_path, 2)
    assert steps_of(tmp_path) == {"a": [1, 2]}


def test_points_in_tells_numbers_from_figures(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("number", 1.5, 3)
        writer.add_figure("figure", Figure(), 4)
    assert points_in(tmp_path) == ({("number", 3)}, {("figure", 4)})
    assert points_in(tmp_path / "nothing") == (set(), set())
