"""README says what works: its files exist, its names are exported."""

import re
from pathlib import Path
from typing import Any

import pytest

import callbacks
import toolkit.functional
import toolkit.models
from tests.callbacks.language import Module, batches, write_texts
from toolkit.runs.table import read_measurements

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()


def test_files_exist() -> None:
    named = re.findall(r"(?:configs|benchmarks|checkpoints)/\w+\.\w+", TEXT)
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


def test_every_configuration_is_mentioned() -> None:
    names = [f"configs/{config.name}" for config in (ROOT / "configs").glob("*.yaml")]
    assert names
    assert not [name for name in names if name not in TEXT]


def test_what_the_papers_define_is_exported() -> None:
    table = "".join(line for line in TEXT.splitlines() if "arxiv.org" in line)
    named = re.findall(r"`(\w+)`", table)
    exported = {*toolkit.functional.__all__, *toolkit.models.__all__, *callbacks.__all__}
    assert {"subspace_pga", "ScalingLaw", "VectorPacking"} <= set(named) <= exported


@pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers")
def test_the_lines_that_attach_callbacks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lines,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(lines.splitlines()) <= 10
    monkeypatch.chdir(tmp_path)
    # The same lines on a model and texts that a test has time for.
    lines = lines.replace("max_steps=1000", "max_steps=2")
    lines = lines.replace(
        '"ag_news", num_train=4000, num_test=1000', "PATH, num_train=8, num_test=8"
    )
    names: dict[str, Any] = {"your_module": Module(), "your_data": batches()}
    exec(lines, {**names, "PATH": str(write_texts(tmp_path))})
    (table,) = tmp_path.rglob("measurements.csv")
    rows = read_measurements(table)
    assert {row.step for row in rows} == {0, 1, 2}
    assert {row.metric for row in rows} == {"pga", "probe", "spectrum", "epsilon", "capacity"}
