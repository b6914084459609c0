"""What the three models share: schedule, settings of a continued run, logging, checkpoints."""

import inspect
import math
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from tests.callbacks.events import scalars
from toolkit.data import SparseFeatures, UniformFrequencies
from toolkit.data.batch_stream import BatchStream
from toolkit.models import LanguageModel, SuperpositionAutoencoder, VectorPacking
from toolkit.models.scheduled import ScheduledModule

CONFIG = {
    "model_type": "gpt_neox",
    "vocab_size": 7,
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 8,
    "max_position_embeddings": 8,
}
TOKENS = torch.tensor([[5, 1, 4, 2], [3, 3, 0, 6]])
ARGUMENTS: dict[type[ScheduledModule], tuple[Any, ...]] = {
    LanguageModel: (CONFIG,),
    SuperpositionAutoencoder: (6, [2, 3]),
    # No more vectors than dimensions: such a run never goes back.
    VectorPacking: (3, 4),
}
KINDS = pytest.mark.parametrize("kind", ARGUMENTS, ids=lambda kind: kind.__name__)


def built(kind: type[ScheduledModule], **options: Any) -> ScheduledModule:
    torch.manual_seed(0)
    return kind(*ARGUMENTS[kind], **{"warmup_fraction": 0.2, "lr_floor": 0.25, **options})


class Rates(L.Callback):
    """Keeps the first group's learning rate at each update."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def on_before_optimizer_step(self, trainer: L.Trainer, *args: Any) -> None:
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])


def fitted(model: ScheduledModule, folder: Path, **options: Any) -> tuple[L.Trainer, list[float]]:
    """Train for ten steps, and return the learning rates."""
    rates = Rates()
    defaults: dict[str, Any] = {
        "accelerator": "cpu",
        "callbacks": [rates],
        "default_root_dir": folder,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "limit_val_batches": 0,
        "log_every_n_steps": 2,
        "logger": False,
        "max_steps": 10,
    }
    ckpt_path = options.pop("ckpt_path", None)
    trainer = L.Trainer(**{**defaults, **options})
    arguments: dict[str, Any] = {"ckpt_path": ckpt_path, "weights_only": True}
    if isinstance(model, VectorPacking):
        trainer.fit(model, **arguments)
    elif isinstance(model, LanguageModel):
        batches: BatchStream[dict[str, Tensor]] = BatchStream(lambda _: {"input_ids": TOKENS}, 99)
        trainer.fit(model, batches, batches, **arguments)
    else:
        data = SparseFeatures(6, UniformFrequencies(), batch_size=8, seed=0)
        trainer.fit(model, datamodule=data, **arguments)
    return trainer, rates.rates


@KINDS
def test_the_rate_rises_and_then_falls_to_the_floor(
    kind: type[ScheduledModule], tmp_path: Path
) -> None:
    _, rates = fitted(built(kind, lr=1e-3), tmp_path)
    cosines = [0.25 + 0.75 * (1 + math.cos(math.pi * step / 7)) / 2 for step in range(8)]
    assert rates == pytest.approx([5e-4, 1e-3, *(1e-3 * factor for factor in cosines)], rel=1e-12)


@KINDS
def test_an_optimiser_of_ones_own_keeps_the_schedule(
    kind: type[ScheduledModule], tmp_path: Path
) -> None:
    model = built(kind, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5))
    trainer, rates = fitted(model, tmp_path)
    assert isinstance(trainer.optimizers[0], torch.optim.SGD)
    assert rates[:2] == [0.25, 0.5]
    assert rates[-1] == pytest.approx(0.125)


@KINDS
def test_the_settings_of_a_continued_run_count(kind: type[ScheduledModule], tmp_path: Path) -> None:
    whole = fitted(built(kind, lr=1e-3), tmp_path)[1]
    trainer, _ = fitted(built(kind, lr=1e-3, betas=(0.5, 0.6)), tmp_path, max_steps=4)
    trainer.save_checkpoint(tmp_path / "4.ckpt")
    model = built(kind, lr=3e-3, betas=(0.7, 0.8))
    trainer, rates = fitted(model, tmp_path, ckpt_path=tmp_path / "4.ckpt")
    assert rates == pytest.approx([3 * rate for rate in whole[4:]], rel=1e-12)
    assert {group["betas"] for group in trainer.optimizers[0].param_groups} == {(0.7, 0.8)}


@KINDS
@pytest.mark.parametrize("accumulated", [1, 3])
def test_training_is_logged_once_a_step_at_that_step(
    kind: type[ScheduledModule], accumulated: int, tmp_path: Path
) -> None:
    logger = TensorBoardLogger(tmp_path, name="", version="")
    fitted(built(kind), tmp_path, logger=logger, accumulate_grad_batches=accumulated)
    logger.finalize("success")
    tag = {
        LanguageModel: "lm/loss",
        SuperpositionAutoencoder: "toy/loss/m_0003",
        VectorPacking: "packing_train/penalty",
    }[kind]
    assert [step for step, _ in scalars(tmp_path)[tag]] == [0, 2, 4, 6, 8]


@KINDS
def test_a_checkpoint_has_the_form_of_earlier_ones(
    kind: type[ScheduledModule], tmp_path: Path
) -> None:
    model = built(kind, lr=2e-3)
    trainer, _ = fitted(model, tmp_path, max_steps=3)
    trainer.save_checkpoint(tmp_path / "3.ckpt")
    saved = torch.load(tmp_path / "3.ckpt", weights_only=True)
    names = set(inspect.signature(kind).parameters) - {"optimizer"}
    assert set(saved["hyper_parameters"]) == names
    assert saved["hyper_parameters"]["lr"] == 2e-3
    (schedule,) = saved["lr_schedulers"]
    assert schedule["lr_lambdas"] == [{}] * len(trainer.optimizers[0].param_groups)
    assert schedule["last_epoch"] == 3
    loaded = kind.load_from_checkpoint(tmp_path / "3.ckpt", weights_only=True)
    assert loaded.warmup_fraction == 0.2
    weights = loaded.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())


def test_the_base_is_no_model() -> None:
    assert inspect.isabstract(ScheduledModule)
    with pytest.raises(TypeError, match="parameter_groups"):
        ScheduledModule(betas=(0.9, 0.95), warmup_fraction=0.0, lr_floor=0.0, optimizer=None)  # type: ignore[abstract]
