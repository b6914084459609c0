"""Two processes: measured on both, written by one, and never waiting for each other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.callbacks.events import scalars
from toolkit.table import read_measurements

ROOT = Path(__file__).parent.parent.parent

SCRIPT = """
import json, sys, warnings
from pathlib import Path
import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from callbacks import MeasurementCallback, Point, ScalingLaw, SuperpositionGeometry
from tests.callbacks.toy import toy_data, toy_model, toy_trainer

folder = Path(sys.argv[1])

class FailsOnOneRank(MeasurementCallback):
    metric = "fragile"

    def measure(self, moment):
        if moment.trainer.global_rank == 1 and moment.step == 2:
            raise ArithmeticError("rank 1 only")
        return [Point("one", "", 1.0)]

if __name__ == "__main__":
    torch.set_num_threads(1)
    law, geometry = ScalingLaw(schedule=2), SuperpositionGeometry(schedule=2)
    save = ModelCheckpoint(folder / "ckpt", monitor="scaling/loss/m_0005", every_n_train_steps=2)
    trainer = toy_trainer(
        FailsOnOneRank(schedule=2), law, geometry, save, devices=2, strategy="ddp", max_steps=4,
        enable_checkpointing=True, logger=TensorBoardLogger(folder, name="run"),
        num_sanity_val_steps=0,
    )
    trainer.fit(toy_model(), toy_data())
    metrics = trainer.callback_metrics.items()
    seen = {tag: value.item() for tag, value in metrics if tag.startswith("scaling/loss/")}
    report = {"seen": seen, "history": list(law.history), "best": save.best_model_score.item()}
    (folder / f"rank_{trainer.global_rank}.json").write_text(json.dumps(report))
"""


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    reports = [json.loads((tmp_path / f"rank_{rank}.json").read_text()) for rank in (0, 1)]
    assert reports[0] == reports[1]
    assert reports[0]["history"] == [0, 2, 4]

    points = scalars(tmp_path / "run" / "version_0")
    losses = points["scaling/loss/m_0005"]
    assert [step for step, _ in losses] == [0, 2, 4]
    assert reports[0]["best"] == pytest.approx(min(loss for _, loss in losses[1:]))
    rows = read_measurements(tmp_path / "run" / "version_0" / "measurements.csv")
    assert len(rows) == len({(row.step, row.metric, row.quantity, row.layer) for row in rows})
    assert {row.step for row in rows if row.metric == "fragile"} == {0, 2, 4}
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["version_0"]
