"""The states of all random number generators, as what a checkpoint can hold and no code."""

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
        devices: Devices whose generators count; the CPU's always does.

    Returns:
        What `restore_random_states` takes, and ``torch.load(weights_only=True)`` loads.
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
    """Set the global random states of this process to what `random_states` has returned.

    Args:
        states: The states.
        devices: Devices in the order of those whose states were taken; where their kind is
            another, their generators stay as they are.
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
    """The random states of a run, in its checkpoints and back: of each process its own."""

    def __init__(self) -> None:
        self._loaded: list[dict[str, Any]] | None = None

    def save(self, trainer: Trainer, checkpoint: dict[str, Any]) -> None:
        """Put the states of all processes into the checkpoint; all of them call this."""
        if _KEY in checkpoint:
            return
        states: list[Any] = [random_states(_devices(trainer))]
        if trainer.world_size > 1 and torch.distributed.is_initialized():
            mine, states = states[0], [None] * trainer.world_size
            torch.distributed.all_gather_object(states, mine)
        checkpoint[_KEY] = states

    def load(self, checkpoint: dict[str, Any]) -> None:
        """Take the states out of a checkpoint, for `restore`."""
        self._loaded = checkpoint.get(_KEY)

    def restore(self, trainer: Trainer) -> None:
        """Set the states that were loaded, and say where that does not make the run the same."""
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
    """Gives training the random numbers that it would have without validation."""

    def __init__(self) -> None:
        self._before: dict[str, Any] | None = None

    @override
    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        """Take the states before validation, whose data loader may draw before its first hook."""
        if validation_follows(trainer):
            self._before = random_states(_devices(trainer))

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._before is not None:
            restore_random_states(self._before, _devices(trainer))
            self._before = None


def _devices(trainer: Trainer) -> list[torch.device]:
    """The devices of this process, each once."""
    devices = [parameter.device for parameter in trainer.lightning_module.parameters()]
    return list(dict.fromkeys([trainer.strategy.root_device, *devices]))


def _accelerators(devices: Sequence[torch.device]) -> list[torch.device]:
    return [device for device in devices if device.type not in {"cpu", "meta"}]


def _unlike_stream(trainer: Trainer) -> str:
    """Why the batches will be other ones, empty where they are those of a stream that continues."""
    loaders = trainer.train_dataloader
    each = loaders.values() if isinstance(loaders, dict) else loaders
    for loader in each if isinstance(each, list | tuple | ValuesView) else [loaders]:
        if not hasattr(loader, "load_state_dict"):
            kind = type(loader).__name__
            return f"train_dataloader: {kind} cannot tell where it was, and starts anew"
    return ""
