"""A loss or weights that are not finite: one warning with the step, and a plain summary."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from callbacks import (
    EmbeddingDeviation,
    PackingGeometry,
    ScalingLaw,
    SuperpositionGeometry,
    UnembeddingOverlap,
)
from tests.callbacks.language import Module, batches
from tests.callbacks.toy import toy_data, toy_model, toy_trainer
from tests.test_cli import TINY, TOY, fit
from tests.tiny_run import SpoilAt
from toolkit.commands.train.finite_loss import FiniteLoss
from toolkit.runs.summary import collect

SPOIL = ["--trainer.callbacks+=tests.tiny_run.SpoilAt", "--trainer.callbacks.step=3"]


@pytest.mark.parametrize("kind", [TINY, TOY], ids=["tiny", "toy"])
def test_the_first_step_of_such_a_loss_is_named_once(tmp_path: Path, kind: list[str]) -> None:
    with pytest.warns(UserWarning, match="not finite") as caught:
        assert fit(tmp_path, *kind, "--trainer.max_steps=21", *SPOIL) == 0
    (warning,) = caught
    assert str(warning.message) == (
        "training loss: nan at step 3, the first that is not finite; the run goes on, and what "
        "depends on it is NaN"
    )


def test_a_finite_loss_is_not_mentioned(tmp_path: Path) -> None:
    assert fit(tmp_path, *TINY, "--trainer.max_steps=5") == 0  # a warning would be an error


@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
@pytest.mark.parametrize("as_mapping", [True, False])
def test_infinite_losses_count_and_losses_of_a_gpu_are_read_seldom(
    value: float, as_mapping: bool
) -> None:
    watch, trainer = FiniteLoss(), SimpleNamespace(global_step=0)

    def update(loss: Any) -> None:
        watch.on_train_batch_start(trainer)  # type: ignore[arg-type]
        outputs = {"loss": loss} if as_mapping else loss
        watch.on_train_batch_end(trainer, None, outputs, None, 0)  # type: ignore[arg-type]
        trainer.global_step += 1

    for loss in (torch.tensor(1.0), None, torch.ones(3)):
        update(loss)
    with pytest.warns(UserWarning, match=rf"^training loss: {value} at step 3, the first"):
        update(torch.tensor([value]))
    update(torch.tensor(torch.nan))
    assert watch.has_warned


def test_weights_are_told_of_once_for_all_callbacks() -> None:
    module, spoil = Module(), SpoilAt(2)
    watchers = [EmbeddingDeviation(schedule=2), UnembeddingOverlap(schedule=2)]
    with torch.no_grad():
        module.net.get_output_embeddings().weight[5, 1] = torch.inf
        module.net.get_output_embeddings().weight[5, 2] = torch.nan
    with pytest.warns(UserWarning, match="not finite") as caught:
        toy_trainer(*watchers, spoil, max_steps=2).fit(module, batches())
    messages = [str(warning.message) for warning in caught if "not finite" in str(warning.message)]
    assert messages == [
        "epsilon: 2 values in output not finite at step 0; what depends on them is NaN"
    ]


def test_the_summary_counts_instead_of_printing_nan() -> None:
    watchers = [EmbeddingDeviation(), UnembeddingOverlap()]
    watchers[0].history = {
        8: {
            "epsilon/num_nonfinite/input": 37.0,
            "epsilon/value/input": torch.nan,
            "epsilon/class/input": torch.nan,
            "capacity/log10/input": torch.nan,
            "epsilon/num_nonfinite/output": 0.0,
            "epsilon/value/output": 0.05,
            "epsilon/class/output": 2.0,
            "capacity/log10/output": 4.5,
        }
    }
    overlap = {"overlap_times_m/output": torch.nan, "num_nonfinite/output": 1.0}
    watchers[1].history = {8: {f"unembedding/{tag}": value for tag, value in overlap.items()}}
    assert collect(watchers).lines == [
        "epsilon = 0.0500 (output, class 2), capacity 10^4.50",
        "epsilon: 37 values in input not finite",
        "unembedding: 1 value in output not finite",
    ]


def test_toy_and_packing_say_the_same() -> None:
    law, geometry = ScalingLaw(schedule=2), SuperpositionGeometry(schedule=2)
    with pytest.warns(UserWarning, match=r"^scaling: \d+ values in m_0002 not finite at step 2"):
        toy_trainer(law, geometry, SpoilAt(1), max_steps=2).fit(toy_model(), toy_data())
    nonfinite = [line for line in collect([law, geometry]).lines if "not finite" in line]
    assert [re.sub(r"[\d,]+ values?", "n", line) for line in nonfinite] == [
        "scaling: n in m_0002 not finite",
        "superposition: n in m_0002 not finite",
    ]
    packing = PackingGeometry()
    packing.history = {4: {"packing/num_nonfinite": 5.0}}
    assert collect([packing]).lines == ["packing: 5 values not finite"]


def test_many_layers_are_counted_together() -> None:
    law = ScalingLaw()
    law.history = {1: {f"scaling/num_nonfinite/m_{m:04}": 2000.0 for m in range(1, 7)}}
    assert law.nonfinite_lines() == [
        "scaling: 12,000 values in m_0001, m_0002, m_0003, m_0004 and 2 more not finite"
    ]
