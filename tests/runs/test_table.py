"""The long table: its types, its survival of kills, and cutting it back."""

import errno
import math
from pathlib import Path
from typing import Any

import pytest

from toolkit.runs.table import MeasurementRow, MeasurementTable, read_measurements


def row(step: int = 0, **changes: Any) -> MeasurementRow:
    fields: dict[str, Any] = {
        "run": "toy/version_0",
        "model": "SuperpositionAutoencoder",
        "revision": "",
        "commit": "",
        "step": step,
        "metric": "superposition",
        "quantity": "represented_fraction",
        "layer": "m_0010",
        "value": 0.1 + 0.2,
        "num_points": 24,
        "conditions": {"represented_threshold": 0.5},
        "dtype": "float32",
        "weights_hash": "ab12",
        "versions": {"torch": "2.13.0+cpu"},
    }
    return MeasurementRow(**(fields | changes))


AWKWARD = [
    row(value=math.inf, num_points=None, layer=""),
    row(value=-1e-300, conditions={}, model='a "quoted", name'),
    row(step=143000, conditions={"texts": ["ä, b", 'c"d'], "k": None}, revision="step143000"),
]


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    table = MeasurementTable(tmp_path / "new" / "measurements.csv")
    assert table.rows() == []
    table.append([row()])
    table.append(AWKWARD)
    assert read_measurements(table.path) == [row(), *AWKWARD]
    assert table.rows() == [row(), *AWKWARD]


def test_what_two_processes_have_measured_is_there_once(tmp_path: Path) -> None:
    table = MeasurementTable(tmp_path / "measurements.csv")
    other = row(step=1, value=math.nan)
    # The second one may count another way round, with another version of a package.
    again = [row(value=0.3, versions={"torch": "2.14"}), row(step=1, value=math.nan)]
    table.append([row(), other])
    table.append(again)
    table.append([row(weights_hash="cd34")])
    assert [(r.step, r.value, r.weights_hash) for r in table.rows()] == [
        (0, row().value, "ab12"),
        (1, pytest.approx(math.nan, nan_ok=True), "ab12"),
        (0, row().value, "cd34"),
    ]
    assert len(table.path.read_bytes().splitlines()) == 6
    assert table.keep(lambda _: True) == 2
    assert len(table.path.read_bytes().splitlines()) == 4
    assert table.keep(lambda _: True) == 0


def test_nan_comes_back(tmp_path: Path) -> None:
    table = MeasurementTable(tmp_path / "measurements.csv")
    table.append([row(value=math.nan)])
    assert math.isnan(table.rows()[0].value)


def test_the_columns_are_the_documented_ones(tmp_path: Path) -> None:
    path = tmp_path / "measurements.csv"
    MeasurementTable(path).append([row()])
    header = path.read_text().splitlines()[0]
    assert header == (
        "run,model,revision,commit,step,metric,quantity,layer,value,num_points,conditions,dtype,"
        "weights_hash,versions"
    )


def test_reading_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "measurements.csv"
    MeasurementTable(path).append([row()])
    path.write_bytes(path.read_bytes() + b"torn")
    before = path.read_bytes()
    assert read_measurements(path) == [row()]
    assert path.read_bytes() == before


def test_every_possible_kill_costs_at_most_unfinished_rows(tmp_path: Path) -> None:
    path = tmp_path / "measurements.csv"
    MeasurementTable(path).append([row(0), row(1)])
    whole = path.read_bytes()
    for length in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:length])
        table = MeasurementTable(path)
        survivors = table.rows()
        assert survivors == [row(0), row(1)][: len(survivors)]
        assert len(survivors) == max(whole[:length].count(b"\n") - 1, 0)
        table.append([row(2)])
        assert table.rows() == [*survivors, row(2)]


def test_two_writers_share_a_file(tmp_path: Path) -> None:
    first = MeasurementTable(tmp_path / "measurements.csv")
    second = MeasurementTable(tmp_path / "measurements.csv")
    first.append([row(0)])
    second.append([row(1)])
    assert second.drop_after(0) == 1
    first.append([row(2)])
    assert [r.step for r in first.rows()] == [0, 2]


@pytest.mark.parametrize(("step", "left"), [(-1, []), (0, [0]), (4, [0, 2, 4]), (9, [0, 2, 4, 6])])
def test_drop_after(tmp_path: Path, step: int, left: list[int]) -> None:
    table = MeasurementTable(tmp_path / "measurements.csv")
    assert table.drop_after(0) == 0
    table.append([row(s) for s in (0, 2, 4, 6)])
    assert table.drop_after(step) == 4 - len(left)
    assert [r.step for r in table.rows()] == left
    assert [p.name for p in tmp_path.iterdir()] == ["measurements.csv"]
    table.append([row(10)])
    assert [r.step for r in table.rows()] == [*left, 10]


def test_keeps_some_rows_alone(tmp_path: Path) -> None:
    table = MeasurementTable(tmp_path / "measurements.csv")
    table.append([row(s) for s in (0, 2, 4, 6)])
    assert table.keep(lambda kept: kept.step in {2, 6}) == 2
    assert [r.step for r in table.rows()] == [2, 6]


def test_a_kill_while_dropping_leaves_the_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = MeasurementTable(tmp_path / "measurements.csv")
    table.append([row(s) for s in range(3)])
    before = table.path.read_bytes()

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        table.drop_after(0)
    assert table.path.read_bytes() == before


def test_a_full_disk_leaves_no_half_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = MeasurementTable(tmp_path / "measurements.csv")
    table.append([row(0)])
    before = table.path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("toolkit.runs.table.os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            table.append([row(1)])
    assert table.path.read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        pytest.param({}, True, id="same"),
        pytest.param({"layer": "m_0099", "value": 9.0}, True, id="another-number-of-it"),
        pytest.param({"weights_hash": "cd"}, False, id="other-weights"),
        pytest.param({"step": 3}, False, id="other-step"),
        pytest.param({"metric": "scaling"}, False, id="other-metric"),
        pytest.param({"conditions": {"represented_threshold": 0.4}}, False, id="other-conditions"),
    ],
)
def test_holds(tmp_path: Path, changes: dict[str, Any], held: bool) -> None:
    table = MeasurementTable(tmp_path / "measurements.csv")
    assert not table.holds(row())
    table.append([row()])
    assert table.holds(row(**changes)) is held


def test_another_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "measurements.csv"
    path.write_text("epoch,step,loss\n0,1,2.5\n")
    with pytest.raises(ValueError, match="expected a table of measurements, got columns epoch,"):
        MeasurementTable(path)
    with pytest.raises(ValueError, match="move the file away"):
        read_measurements(path)
    assert path.read_text() == "epoch,step,loss\n0,1,2.5\n"


def test_no_file_is_an_error_to_a_reader(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        read_measurements(tmp_path / "none.csv")


@pytest.mark.parametrize(
    "conditions",
    [{"k": (1, 2)}, {"k": {3: "three"}}, {"k": math.nan}, {"k": [(1, {"a": (2,)})]}],
    ids=["tuple", "integer key", "NaN", "nested"],
)
def test_conditions_are_compared_as_json_makes_them(
    tmp_path: Path, conditions: dict[str, Any]
) -> None:
    table = MeasurementTable(tmp_path / "measurements.csv")
    measured = row(conditions=conditions)
    table.append([measured])
    assert table.holds(measured)
    assert not table.holds(row(conditions={"k": [1, 3]}))
