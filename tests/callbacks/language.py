"""A user's own LightningModule around a tiny language model, small enough for many runs."""

from pathlib import Path
from typing import Any

import lightning as L
import torch
import transformers
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel

from callbacks import (
    EmbeddingDeviation,
    LinearProbe,
    MeasurementCallback,
    Spectrum,
    SubspacePGA,
    TextSet,
    TwoNN,
    UnembeddingOverlap,
)
from tests.lm.tiny_models import NUM_ROWS, tiny_tokenizer

SUBJECTS = ("cat", "dog", "tree", "stone")


def write_texts(folder: Path) -> Path:
    """Different texts of four classes, as a CSV file."""
    words = ("sat", "ran", "slept", "on the mat", "under a tree", "near the river", "then")
    lines = [
        f"the {subject} {first} and {second},{label}"
        for label, subject in enumerate(SUBJECTS)
        for first in words[:3]
        for second in words[2:]
    ]
    path = folder / "texts.csv"
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


def small_texts(folder: Path, **options: Any) -> TextSet:
    return TextSet(
        **{"source": str(write_texts(folder)), "num_train": 16, "num_test": 12, **options}
    )


def all_callbacks(texts: TextSet, **options: Any) -> list[MeasurementCallback]:
    """All that measure a language model, quick ones."""
    return [
        SubspacePGA(texts=texts, k=3, num_null=4, **options),
        EmbeddingDeviation(**options),
        LinearProbe(texts=texts, **options),
        Spectrum(texts=texts, fit_range=(1, 8), **options),
        TwoNN(texts=texts, **options),
        UnembeddingOverlap(**options),
    ]


def net_with_dropout() -> PreTrainedModel:
    """A GPT-NeoX whose dropout is active in training."""
    config = transformers.GPTNeoXConfig(
        vocab_size=NUM_ROWS,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=64,
        hidden_dropout=0.1,
        attention_dropout=0.1,
    )
    model: PreTrainedModel = transformers.GPTNeoXForCausalLM(config)
    return model


class Module(L.LightningModule):
    """Trains a language model that it holds under a name of its own."""

    def __init__(self, net: nn.Module | None = None, *, lr: float = 1e-2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net: Any = net_with_dropout() if net is None else net
        self.tokenizer = tiny_tokenizer()
        self.lr = lr
        self.losses: list[float] = []

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        loss: Tensor = self.net(input_ids=batch, labels=batch).loss
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class ValidatedModule(Module):
    """The same with a validation loss."""

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.log("val_loss", self.net(input_ids=batch, labels=batch).loss)


def batches(*, num_batches: int = 60, num_workers: int = 0) -> DataLoader[Tensor]:
    """Shuffled batches of random tokens."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(NUM_ROWS, (4 * num_batches, 12), generator=generator)
    return DataLoader(
        tokens,  # type: ignore[arg-type]
        batch_size=4,
        shuffle=True,
        num_workers=num_workers,
    )
