"""The states of all random number generators, as plain types for a checkpoint."""

import random
from collections.abc import Sequence, ValuesView
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_info
from typing_extensions import override

from toolkit.runs.loops import validation_follows

_KEY = "random_states"


def random_states(devices: Sequence[torch.device] = ()) -> dict[str, Any]:
    """Return the global random states of this process, as tensors, lists and numbers.

    Args:
        devices: Devices whose generators are included, beside the CPU.

    Returns:
        The states for `restore_random_states`; ``torch.load(weights_only=True)`` loads them.
    """
    version, words, gauss = random.getstate()
    numpy_state: Any = np.random.get_state()  # noqa: NPY002
    kind, keys, *counts = numpy_state
    return {
        "python": [version, list(words), gauss],
        "numpy": [kind, torch.from_numpy(keys.astype(np.int64)), *counts],
        "torch": torch.get_rng_state(),
        "devices": [
            [device.type, torch.get_device_module(device).get_rng_state(device)]
            for device in _accelerators(devices)
        ],
    }


def restore_random_states(states: dict[str, Any], devices: Sequence[torch.device] = ()) -> None:
    """Set the global random states of this process to states from `random_states`.

    Args:
        states: The states.
        devices: Devices, in the order of the saved states; generators of devices of another kind
            are not changed.
    """
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *counts = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *counts))  # noqa: NPY002
    torch.set_rng_state(states["torch"].cpu())
    for device, (kind, state) in zip(_accelerators(devices), states["devices"], strict=False):
        if device.type == kind:
            torch.get_device_module(device).set_rng_state(state.cpu(), device)


class RunRandomStates:
    """The random states of all processes of a run, saved in and restored from checkpoints."""

    def __init__(self) -> None:
        self._loaded: list[dict[str, Any]] | None = None

    def save(self, trainer: Trainer, checkpoint: dict[str, Any]) -> None:
        """Put the states of all processes into the checkpoint; all processes call this."""
        if _KEY in checkpoint:
            return
        states: list[Any] = [random_states(_devices(trainer))]
        if trainer.world_size > 1 and torch.distributed.is_initialized():
            mine, states = states[0], [None] * trainer.world_size
            torch.distributed.all_gather_object(states, mine)
        checkpoint[_KEY] = states

    def load(self, checkpoint: dict[str, Any]) -> None:
        """Read the states from a checkpoint, for `restore`."""
        self._loaded = checkpoint.get(_KEY)

    def restore(self, trainer: Trainer) -> None:
        """Set the loaded states; warn if the continued run cannot be the same."""
        if trainer.ckpt_path is None:
            return
        if self._loaded is not None and len(self._loaded) == trainer.world_size:
            restore_random_states(self._loaded[trainer.global_rank], _devices(trainer))
            reason = _unlike_stream(trainer)
        else:
            reason = "the checkpoint holds no random states of this number of processes"
        self._loaded = None
        if reason:
            rank_zero_info(f"{reason}: the continued run is the same only statistically")


class UndisturbedByValidation(Callback):
    """Keeps validation from changing the random numbers of training."""

    def __init__(self) -> None:
        self._before: dict[str, Any] | None = None

    @override
    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        """Save the states before validation: its data loader may draw before its first hook."""
        if validation_follows(trainer):
            self._before = random_states(_devices(trainer))

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._before is not None:
            restore_random_states(self._before, _devices(trainer))
            self._before = None


def _devices(trainer: Trainer) -> list[torch.device]:
    """Return the different devices of this process."""
    devices = [parameter.device for parameter in trainer.lightning_module.parameters()]
    return list(dict.fromkeys([trainer.strategy.root_device, *devices]))


def _accelerators(devices: Sequence[torch.device]) -> list[torch.device]:
    return [device for device in devices if device.type not in {"cpu", "meta"}]


def _unlike_stream(trainer: Trainer) -> str:
    """Return why the batches will differ, empty if the stream of batches continues."""
    loaders = trainer.train_dataloader
    each = loaders.values() if isinstance(loaders, dict) else loaders
    for loader in each if isinstance(each, list | tuple | ValuesView) else [loaders]:
        if not hasattr(loader, "load_state_dict"):
            kind = type(loader).__name__
            return f"train_dataloader: {kind} cannot tell where it was, and starts anew"
    return ""
