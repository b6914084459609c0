"""A walk that is killed at any moment and started again ends with the same table and curves."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Its first import sets environment variables, which must not look like a test's.
import lightning  # noqa: F401
import pytest

from callbacks import EmbeddingDeviation, LinearProbe, SubspacePGA
from tests.callbacks.events import images
from tests.callbacks.language import small_texts
from tests.commands.probe.probing import curves_of, local, probe
from tests.lm.listed_hub import save_revision
from toolkit.commands.probe import walk
from toolkit.commands.probe.record import WalkRecord
from toolkit.runs import table
from toolkit.runs.table import MeasurementRow, MeasurementTable, read_measurements

# Where the walk dies, and at which time it comes there since it was started.
KILLS = [
    ("open", 1),
    ("measure", 1),
    ("append", 1),
    ("append", 5),
    ("finish", 1),
    ("append", 7),
    ("keep", 1),
    ("measure", 3),
    ("saved", 2),
    ("append", 2),
]


class Killer:
    """Kills this process when it comes to a place for the n-th time."""

    def __init__(self, place: str, time: int) -> None:
        self.place = place
        self.time = time

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        places: dict[str, tuple[Any, str]] = {
            "open": (walk, "weights_hash"),
            "measure": (SubspacePGA, "measure"),
            "saved": (WalkRecord, "finish"),
            # With a complete table beside the old one.
            "keep": (table, "write_atomically"),
        }
        if self.place in places:
            owner, name = places[self.place]
            monkeypatch.setattr(owner, name, self.before(getattr(owner, name)))
        else:
            monkeypatch.setattr(MeasurementTable, "append", self.within(MeasurementTable.append))

    def come(self) -> bool:
        self.time -= 1
        return self.time == 0

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            if self.come():
                self.die()
            return function(*args, **options)

        return wrapped

    def within(self, plain: Callable[..., None]) -> Callable[..., None]:
        """Write a part of the rows: whole lines, and the beginning of another one."""

        def append(written: MeasurementTable, rows: list[MeasurementRow]) -> None:
            ends = any(row.quantity == "num_parameters" for row in rows)
            if ends == (self.place == "finish") and self.come():
                written.path.parent.mkdir(parents=True, exist_ok=True)
                data = table._to_bytes(rows, header=not written.path.exists())
                with written.path.open("ab", buffering=0) as file:
                    file.write(data[: len(data) * 2 // 3])
                self.die()
            plain(written, rows)

        return append


@pytest.mark.parametrize(
    "change", ["none", "weights", pytest.param("texts", marks=pytest.mark.slow)]
)
def test_callbacks_that_were_done_with_a_checkpoint_do_not_measure_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    save_revision(tmp_path / "hf" / "step-1", seed=1)
    series = local(f"{tmp_path}/hf/*", name="tiny")
    child = os.fork()
    if child == 0:
        # The second of three callbacks.
        monkeypatch.setattr(LinearProbe, "measure", lambda *_: os.kill(os.getpid(), 9))
        os._exit(probe(tmp_path, series))
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    version = tmp_path / "runs/walk/version_0"
    assert {row.metric for row in read_measurements(version / "measurements.csv")} == {"pga"}
    if change == "weights":
        save_revision(tmp_path / "hf" / "step-1", seed=2)
    if change == "texts":
        other = small_texts(tmp_path).load()
        drawn = other._replace(test_texts=other.test_texts[::-1])
        monkeypatch.setattr("toolkit.measures.text_set._loaded", lambda *_: drawn)
    measured: list[type] = []
    for kind in (SubspacePGA, LinearProbe, EmbeddingDeviation):
        plain = kind.measure

        def measure(self: Any, moment: Any, plain: Any = plain) -> Any:
            measured.append(type(self))
            return plain(self, moment)

        monkeypatch.setattr(kind, "measure", measure)
    assert probe(tmp_path, series) == 0
    again = [] if change == "none" else [SubspacePGA]
    assert measured == [*again, LinearProbe, EmbeddingDeviation]
    (tmp_path / "runs").rename(tmp_path / "killed")
    assert probe(tmp_path, series) == 0
    killed, whole = (tmp_path / name / "walk/version_0" for name in ("killed", "runs"))
    assert (killed / "measurements.csv").read_bytes() == (whole / "measurements.csv").read_bytes()
    assert curves_of(killed / "tiny") == curves_of(whole / "tiny")
    assert images(killed / "tiny") == images(whole / "tiny")
    assert not (killed / "unfinished.json").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*holds the same weights")
def test_killed_again_and_again(tmp_path: Path) -> None:
    for step in range(10):
        save_revision(tmp_path / "hf" / f"step-{step}", seed=0 if step == 5 else step)
    series = local(f"{tmp_path}/hf/*", name="tiny")
    for place, time in KILLS:
        child = os.fork()
        if child == 0:
            Killer(place, time).install(pytest.MonkeyPatch())
            os._exit(probe(tmp_path, series))
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), (place, time, status)
    assert probe(tmp_path, series) == 0
    (tmp_path / "runs").rename(tmp_path / "killed")
    assert probe(tmp_path, series) == 0
    killed, whole = (tmp_path / name / "walk/version_0" for name in ("killed", "runs"))
    assert (killed / "measurements.csv").read_bytes() == (whole / "measurements.csv").read_bytes()
    assert curves_of(killed / "tiny") == curves_of(whole / "tiny")
    assert images(killed / "tiny") == images(whole / "tiny")
    assert {row.step for row in read_measurements(whole / "measurements.csv")} == set(range(10))
