"""What a walk measures on the folders that a run has saved is what the run itself has logged."""

from pathlib import Path

# Its first import sets environment variables, which must not look like a test's.
import lightning  # noqa: F401
import pytest
from lightning.pytorch.loggers import TensorBoardLogger

from callbacks import CheckpointSchedule
from tests.callbacks.events import scalars
from tests.callbacks.language import Module, all_callbacks, batches, small_texts
from tests.callbacks.toy import toy_trainer
from tests.commands.probe.probing import local, probe
from toolkit.runs.table import read_measurements

SCHEDULE = [0, 1, 4]


def test_the_walk_repeats_the_curves_of_the_run(tmp_path: Path) -> None:
    texts = small_texts(tmp_path)
    saves = CheckpointSchedule(schedule=SCHEDULE)
    logger = TensorBoardLogger(tmp_path, name="run", version=0)
    # Three of them are what `probe` measures with.
    watching = all_callbacks(texts, schedule=SCHEDULE)[:3]
    toy_trainer(*watching, saves, logger=logger, max_steps=4, enable_checkpointing=True).fit(
        Module(), batches()
    )
    version = tmp_path / "run" / "version_0"
    folders = f"{version}/checkpoints/hf/step-*"
    assert probe(tmp_path, local(folders, name="tiny")) == 0
    walked = scalars(tmp_path / "runs/walk/version_0/tiny")
    logged = scalars(version)
    tags = [tag for tag in logged if tag.split("/")[0] in {"pga", "probe", "epsilon", "capacity"}]
    assert len(tags) > 40
    for tag in tags:
        assert [step for step, _ in walked[tag]] == SCHEDULE
        values = [value for _, value in logged[tag]]
        assert [value for _, value in walked[tag]] == pytest.approx(
            values, rel=1e-5, nan_ok=True
        ), tag
    conditions = [
        {row.metric: row.conditions for row in read_measurements(folder / "measurements.csv")}
        for folder in (version, tmp_path / "runs/walk/version_0")
    ]
    assert all(conditions[0][metric] == conditions[1][metric] for metric in ("pga", "probe"))
