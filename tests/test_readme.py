"""README says what works: its files exist, its names are exported."""

import re
import sys
import types
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
from lightning.pytorch.loggers import TensorBoardLogger

import callbacks
import toolkit.functional
import toolkit.measures
import toolkit.models
from tests.callbacks.events import images, scalars
from tests.callbacks.language import Module, batches, small_texts, write_texts
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from toolkit.lm.reading.hidden_states import hidden_states
from toolkit.measure import measure
from toolkit.runs.summary import collect
from toolkit.runs.table import read_measurements

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_files_exist() -> None:
    named = re.findall(r"(?:configs|benchmarks|checkpoints)/\w+\.\w+", TEXT)
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


def test_the_commands_that_ci_runs_are_the_first_of_their_kind() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    patterns = re.findall(r"command_of '([^']+)'", script)
    first = [next(line for line in TEXT.splitlines() if pattern in line) for pattern in patterns]
    assert first == [
        "pip install -e '.[test]' && python -m pytest -n 2",
        "pip install -e . && python -m toolkit fit --config configs/toy.yaml",
    ]


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
    lines = python_blocks()[0]
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


@pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers")
def test_the_example_of_a_metric_is_a_whole_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, lines) = python_blocks()
    example = types.ModuleType("stable_rank_example")
    monkeypatch.setitem(sys.modules, example.__name__, example)
    exec(lines, example.__dict__)
    monkeypatch.setitem(toolkit.measures.MEASURES, "stable_rank", example.STABLE_RANK)
    texts = small_texts(tmp_path)
    model = tiny_model()
    rows = measure(
        model, tiny_tokenizer(), texts.load(), metrics={"stable_rank": {"centered": True}}
    )
    states = (
        hidden_states(model, tiny_tokenizer(), texts.load().test_texts)["final"].double().numpy()
    )
    singular = np.linalg.svd(states - states.mean(0), compute_uv=False)
    (value,) = [row.value for row in rows if (row.quantity, row.layer) == ("value", "final")]
    assert value == pytest.approx((singular**2).sum() / singular[0] ** 2, rel=1e-5)

    callback = example.StableRank(texts=texts, centered=True, schedule=1)
    assert "Subtract the mean first" in example.StableRank.__doc__
    trainer = L.Trainer(
        max_steps=2,
        default_root_dir=tmp_path,
        logger=TensorBoardLogger(tmp_path, name="", version="run"),
        callbacks=[callback],
        accelerator="cpu",
        enable_progress_bar=False,
        enable_checkpointing=False,
    )
    trainer.fit(Module(), batches())
    assert (
        read_measurements(tmp_path / "run" / "measurements.csv")[0].conditions["centered"] is True
    )
    steps = [step for step, _ in scalars(tmp_path / "run")["stable_rank/value/final"]]
    assert steps == [0, 1, 2]
    assert images(tmp_path / "run") == {"stable_rank/value_heat_map": [0, 1, 2]}
    assert collect([callback]).columns == ["stable rank"]
