"""A run that draws random numbers continues as if it had never stopped."""

import random
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.utils.data import DataLoader

from callbacks import CheckpointSchedule, SubspacePGA
from tests.callbacks.language import Module, small_texts
from tests.data.tiny_corpus import write_folder
from tests.lm.tiny_models import NUM_ROWS
from tests.runs.test_event_files import read_points
from tests.test_cli import EVERY_10, QUIET, assert_same_run, assert_same_state
from toolkit.cli import main
from toolkit.data.batch_stream import BatchStream
from toolkit.runs.checkpoint import RunCheckpoint
from toolkit.runs.random_states import (
    UndisturbedByValidation,
    random_states,
    restore_random_states,
)

NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "hidden_dropout": 0.1,
    "attention_dropout": 0.1,
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 32,
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
}


def draws() -> list[Any]:
    """Numbers of every generator, a second normal one of Python and numpy from what they keep."""
    return [
        random.random(),
        random.gauss(0, 1),
        np.random.standard_normal(3).tolist(),  # noqa: NPY002
        torch.randn(5).tolist(),
    ]


def test_states_come_back_from_a_checkpoint_without_code(tmp_path: Path) -> None:
    random.gauss(0, 1)
    np.random.standard_normal()  # noqa: NPY002
    torch.save(random_states(), tmp_path / "states.pt")
    expected = draws()
    assert draws() != expected
    restore_random_states(torch.load(tmp_path / "states.pt", weights_only=True))
    assert draws() == expected


def fit(root: Path, run: str, *args: str) -> int:
    return main(
        ["fit", *QUIET, *EVERY_10, f"--trainer.default_root_dir={root}", f"--run={run}", *args]
    )


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(NEOX, id="gpt_neox"),
        pytest.param(GPT2, id="gpt2", marks=pytest.mark.slow),
    ],
)
def test_dropout_continues_bit_for_bit(
    tmp_path: Path, config: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    corpus = write_folder(tmp_path / "corpus")
    settings = [
        "--model=LanguageModel",
        f"--model.config={config}",
        "--data=TextCorpus",
        f"--data.source={corpus}",
        "--data.vocab_size=300",
        "--data.block_size=16",
        "--data.batch_size=4",
        f"--data.cache_dir={tmp_path / 'cache'}",
        "--data.held_out_fraction=0.1",
        "--trainer.accelerator=cpu",
        "--trainer.val_check_interval=5",
        "--trainer.check_val_every_n_epoch=null",
        "--trainer.callbacks=EmbeddingDeviation",
    ]
    ending = ["--trainer.callbacks+=tests.tiny_run.EndAt", "--trainer.callbacks.step=25"]
    assert fit(tmp_path, "whole", *settings) == 0
    assert fit(tmp_path, "broken", *settings, *ending) == 1
    assert fit(tmp_path, "broken", *settings, "--ckpt_path=last") == 0
    assert_same_run(tmp_path / "whole" / "version_0", tmp_path / "broken" / "version_0")
    steps = [step for step, _ in read_points(tmp_path / "broken" / "version_0")["lm_val/loss"]]
    assert steps == [5, 10, 15, 20, 25, 30, 35, 40]
    assert "statistically" not in capfd.readouterr().err


class Drawing(Module):
    """A user's module, which draws from every generator."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[Any] = []

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.drawn.append(draws())
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        draws()


class Watched(Drawing):
    """The same, validated on batches of its own."""

    def val_dataloader(self) -> BatchStream[Tensor]:
        return BatchStream(tokens, 2)


def quiet_trainer(folder: Path, *callbacks: Callback, **options: Any) -> L.Trainer:
    return L.Trainer(
        accelerator="cpu",
        default_root_dir=folder,
        max_steps=12,
        logger=False,
        callbacks=list(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


def tokens(position: int) -> Tensor:
    generator = torch.Generator().manual_seed(position)
    return torch.randint(NUM_ROWS, (4, 12), generator=generator)


def stream() -> BatchStream[Tensor]:
    return BatchStream(tokens, 100)


def shuffled() -> DataLoader[Tensor]:
    """Batches of a user's own, whose order and workers' seeds are drawn."""
    return DataLoader(tokens(0), batch_size=1, shuffle=True)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:.*many workers", "ignore:.*shuffling enabled")
def test_validation_takes_no_random_numbers_from_training(tmp_path: Path) -> None:
    runs = []
    for interval in (0, 1):
        module = Drawing()
        L.seed_everything(1, verbose=False)
        trainer = quiet_trainer(
            tmp_path,
            UndisturbedByValidation(),
            limit_val_batches=interval,
            val_check_interval=2,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            enable_checkpointing=False,
        )
        trainer.fit(module, stream(), shuffled())
        runs.append((module.drawn, module.losses))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("every", [4, 5], ids=["before a validation", "between"])
def test_a_plain_trainer_with_scheduled_checkpoints_continues_bit_for_bit(
    tmp_path: Path, every: int
) -> None:
    def run(folder: Path, ckpt_path: Path | None = None) -> Drawing:
        module = Watched()
        L.seed_everything(1, verbose=False)
        callback = CheckpointSchedule(schedule=every, dirpath=str(folder), save_hf=False)
        texts = small_texts(tmp_path)
        watcher = SubspacePGA(texts=texts, k=3, num_null=4, schedule=2)
        trainer = quiet_trainer(folder, callback, watcher, num_sanity_val_steps=0)
        trainer.fit(module, stream(), ckpt_path=ckpt_path, weights_only=True)
        return module

    whole = run(tmp_path / "whole")
    # Other numbers are drawn before it continues.
    draws()
    continued = run(tmp_path / "second", tmp_path / "whole" / f"step-{every:08d}.ckpt")
    assert continued.drawn == whole.drawn[every:]
    assert continued.losses == whole.losses[every:]
    assert_same_state(continued.state_dict(), whole.state_dict())


@pytest.mark.filterwarnings(
    "ignore:.*many workers", "ignore:.*not resumable", "ignore:.*is not empty"
)
def test_what_is_the_same_only_statistically_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def run(max_steps: int, ckpt_path: Path | None = None) -> str:
        keeper = RunCheckpoint(dirpath=str(tmp_path), every_n_train_steps=1)
        trainer = quiet_trainer(tmp_path, keeper, limit_val_batches=0)
        trainer.fit_loop.epoch_loop.max_steps = max_steps
        caplog.clear()
        with caplog.at_level("INFO"):
            trainer.fit(Module(), shuffled(), ckpt_path=ckpt_path, weights_only=True)
        assert trainer.global_step == max_steps
        return caplog.text

    assert "statistically" not in run(2)
    said = run(4, tmp_path / "last.ckpt")
    assert (
        "train_dataloader: DataLoader cannot tell where it was, and starts anew: the continued run "
        "is the same only statistically" in said
    )
