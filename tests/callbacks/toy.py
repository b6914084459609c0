"""A toy run small enough for hundreds of steps a second."""

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from toolkit.data import Frequencies, PowerFrequencies, SparseFeatures
from toolkit.models import SuperpositionAutoencoder

WIDTHS = [2, 3, 5]
NUM_FEATURES = 24


def toy_model(**options: Any) -> SuperpositionAutoencoder:
    torch.manual_seed(0)
    return SuperpositionAutoencoder(NUM_FEATURES, WIDTHS, **options)


def toy_data(frequencies: Frequencies | None = None, **options: Any) -> SparseFeatures:
    frequencies = frequencies or PowerFrequencies(1.0)
    options = {"batch_size": 16, "num_held_out": 2, "seed": 0} | options
    return SparseFeatures(NUM_FEATURES, frequencies, **options)


def toy_trainer(*callbacks: Callback, **options: Any) -> L.Trainer:
    quiet: dict[str, Any] = {
        "accelerator": "cpu",
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "log_every_n_steps": 1,
        "logger": False,
        "max_steps": 6,
    }
    return L.Trainer(callbacks=list(callbacks), **(quiet | options))
