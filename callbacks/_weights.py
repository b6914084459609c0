"""The step and the checkpoint that a trainer's weights belong to."""

from collections.abc import Callable, Iterable
from os import PathLike
from pickle import UnpicklingError
from typing import Any
from zipfile import is_zipfile

import lightning as L
import torch
from torch import Tensor

from callbacks.moment import Moment
from toolkit.runs.identity import WeightsIdentity

NamedTensors = Iterable[tuple[str, Tensor]]


class WeightsOrigin:
    """Remembers the step of a loaded checkpoint, which the trainer does not know."""

    def __init__(self) -> None:
        self._step: int | None = None

    def forget(self) -> None:
        """Forget the loaded checkpoint, because a new run starts."""
        self._step = None

    def remember(self, checkpoint: dict[str, Any]) -> None:
        """Note the step of a loaded checkpoint."""
        self._step = checkpoint["global_step"]

    def source(self, trainer: L.Trainer, pl_module: L.LightningModule) -> WeightsIdentity | None:
        """Return the identity of a checkpoint with unchanged weights, None for a trained model."""
        trained = trainer.global_step > 0 or trainer.ckpt_path is not None
        source = getattr(pl_module, "source", None)
        # The attribute ``source`` of a user's module may have any type.
        return source if isinstance(source, WeightsIdentity) and not trained else None

    def step(self, trainer: L.Trainer) -> int:
        """Return the number of updates behind the weights of a stand-alone validation."""
        if self._step is None and trainer.ckpt_path is not None:
            # Loading a checkpoint of weights alone calls no hook of a callback.
            self._step = _step_in(trainer.ckpt_path)
        return trainer.global_step if self._step is None else self._step


def named_weights(
    moment: Moment, of_module: Callable[[L.LightningModule], NamedTensors]
) -> NamedTensors:
    """Return the tensors whose fingerprint goes with each row of the table.

    Args:
        moment: The moment of the measurement.
        of_module: Returns the tensors of a trained module.
    """
    if moment.source is None:
        return of_module(moment.pl_module)
    # Names without the prefix of the module around the model, so that hashes agree.
    model = getattr(moment.pl_module, "model", moment.pl_module)
    parameters: NamedTensors = model.named_parameters()
    return parameters


def _step_in(path: str | PathLike[str]) -> int:
    mapped = is_zipfile(path)
    try:
        checkpoint = torch.load(path, "cpu", mmap=mapped, weights_only=True)
    except UnpicklingError:
        # Lightning has loaded this file already, so running its code is allowed.
        checkpoint = torch.load(path, "cpu", mmap=mapped, weights_only=False)
    return int(checkpoint["global_step"])
