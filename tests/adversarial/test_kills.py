"""A few of the kills of `tests.adversarial.kills`, and that a difference would be seen."""

import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.adversarial.kills import (
    Kind,
    Outcome,
    Runner,
    differences,
    has_right_code,
    kinds,
    table_of,
    try_kind,
)
from tests.runs.test_event_files import write_points


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toy", "packing", "pocket", "probe"])
def test_a_run_that_was_ended_at_any_moment_is_the_same(tmp_path: Path, name: str) -> None:
    (kind,) = (kind for kind in kinds(tmp_path) if kind.name == name)
    outcomes = try_kind(kind, tmp_path / "runs", 3, np.random.default_rng(2))
    said = table_of({name: outcomes})
    assert all(not outcome.differences for outcome in outcomes), said
    codes = [pair for outcome in outcomes for pair in outcome.codes]
    assert len(codes) == 3
    assert all(has_right_code(*pair) for pair in codes), said


def write_run(root: Path, weight: float = 1.0) -> Path:
    version = root / "toy" / "version_0"
    (version / "checkpoints").mkdir(parents=True)
    (version / "measurements.csv").write_text("step,value\n1,2.5\n")
    parts = ("optimizer_states", "lr_schedulers", "global_step", "random_states")
    checkpoint = {"state_dict": {"w": torch.tensor(weight)}, **dict.fromkeys(parts, 1)}
    torch.save(checkpoint, version / "checkpoints" / "last.ckpt")
    write_points(version, {"loss": [0, 10]})
    return version


def test_every_difference_is_seen(tmp_path: Path) -> None:
    runner = Runner(Kind("toy", "fit", {}, 1), tmp_path / "runner")
    whole, other = tmp_path / "whole", tmp_path / "other"
    write_run(whole)
    version = write_run(other)
    assert differences(runner, whole, other) == []
    (version / "measurements.csv").write_text("step,value\n1,2.6\n")
    write_points(version, {"loss": [10]})
    (version / "more.txt").touch()
    assert differences(runner, whole, other) == [
        "measurements.csv",
        "points of loss at [0, 10] and [0, 10, 10]",
        "files ['more.txt']",
    ]
    shutil.rmtree(other)
    write_run(other, weight=2.0)
    assert differences(runner, whole, other) == ["weights of last.ckpt"]


@pytest.mark.parametrize(
    ("number", "code", "right"),
    [
        (signal.SIGTERM, 143, True),
        (signal.SIGINT, 130, True),
        (signal.SIGKILL, -9, True),
        (signal.SIGTERM, 0, True),
        (signal.SIGTERM, -15, True),
        (signal.SIGTERM, 130, False),
        (signal.SIGINT, 1, False),
        (signal.SIGKILL, 1, False),
    ],
)
def test_codes(number: signal.Signals, code: int, right: bool) -> None:
    assert has_right_code(number, code) is right


def test_the_table_counts_what_is_equal() -> None:
    good = Outcome([(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
    bad = Outcome([(signal.SIGINT, 1)], 1, ["measurements.csv"])
    _, line, difference = table_of({"toy": [good, bad]}).splitlines()
    assert line.split()[:6] == ["toy", "2", "3", "1", "2", "1"]
    assert difference == "toy run_1: measurements.csv"
