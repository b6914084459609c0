"""TwoNN from the command line: table, curves, heat map and the table at the end."""

import math
from pathlib import Path

import pytest

from tests.callbacks.events import images, scalars
from tests.callbacks.language import write_texts
from tests.lm.listed_hub import save_revision
from toolkit.cli import main
from toolkit.runs.table import read_measurements


def test_a_walk_shows_the_dimension_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (1, 2):
        save_revision(tmp_path / f"step-{step}", seed=step)
    line = [
        "probe",
        "--series=LocalFolders",
        f"--series.pattern={tmp_path}/step-*",
        "--series.name=tiny",
        "--callbacks+=TwoNN",
        "--callbacks.discarded_share=0.2",
        f"--callbacks.texts.source={write_texts(tmp_path)}",
        "--callbacks.texts.num_train=16",
        "--callbacks.texts.num_test=20",
        "--accelerator=cpu",
        f"--root={tmp_path / 'runs'}",
    ]
    assert main(line) == 0
    assert "TwoNN dimension" in capsys.readouterr().out
    (table,) = tmp_path.rglob("measurements.csv")
    rows = [row for row in read_measurements(table) if row.metric == "two_nn"]
    assert {row.step for row in rows} == {1, 2}
    assert {row.conditions["discarded_share"] for row in rows} == {0.2}
    (last,) = [r for r in rows if (r.quantity, r.layer, r.step) == ("dimension", "final", 2)]
    assert math.isfinite(last.value)
    steps, curve = zip(*scalars(table.parent / "tiny")["two_nn/dimension/final"], strict=True)
    assert steps == (1, 2)
    assert curve[-1] == pytest.approx(last.value)
    assert "two_nn/dimension_heat_map" in images(table.parent / "tiny")
