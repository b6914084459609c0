"""Limits of the Trainer's options that Lightning does not check."""

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import lightning as L
from lightning.pytorch.accelerators import AcceleratorRegistry

from toolkit.functional._checks import at_most

_DURATION = re.compile(r"\d+:\d\d:\d\d:\d\d")
_LARGEST_SEED = 2**32 - 1
# More processes would only wait for each other.
_PROCESSES_PER_PROCESSOR = 8


class _Least(NamedTuple):
    """The smallest value of an option, or the bound that it must exceed."""

    value: int
    excluded: bool = False

    def allows(self, value: float) -> bool:
        return value > self.value if self.excluded else value >= self.value

    def __str__(self) -> str:
        return f"more than {self.value}" if self.excluded else f"at least {self.value}"


_LEAST = {
    "min_steps": _Least(0),
    "min_epochs": _Least(0),
    "accumulate_grad_batches": _Least(1),
    "gradient_clip_val": _Least(0),
    "val_check_interval": _Least(0, excluded=True),
    "check_val_every_n_epoch": _Least(1),
    "log_every_n_steps": _Least(1),
    "num_sanity_val_steps": _Least(-1),
    "reload_dataloaders_every_n_epochs": _Least(0),
    "num_nodes": _Least(1),
    "limit_train_batches": _Least(0),
    "limit_val_batches": _Least(0),
    "limit_test_batches": _Least(0),
    "limit_predict_batches": _Least(0),
    "overfit_batches": _Least(0),
}

_BATCHES = {
    "fit": "limit_train_batches",
    "validate": "limit_val_batches",
    "test": "limit_test_batches",
    "predict": "limit_predict_batches",
}


def check_options(config: Mapping[str, Any], command: str = "fit") -> None:
    """Refuse values that Lightning would divide by or misread.

    Args:
        config: The Trainer's arguments by name.
        command: ``fit``, ``validate``, ``test`` or ``predict``; each needs at least one batch.

    Raises:
        ValueError: If a value is out of range, or the machine lacks the accelerator.
    """
    needed = {_BATCHES[command]: _Least(0, excluded=True)}
    for name, least in {**_LEAST, **needed}.items():
        value = config.get(name)
        # A text is a duration or an error.
        if isinstance(value, int | float) and not least.allows(value):
            raise ValueError(f"trainer.{name}: expected {least}, got {value}")
    duration = config.get("max_time")
    if isinstance(duration, str) and not _DURATION.fullmatch(duration):
        raise ValueError(f"trainer.max_time: expected DD:HH:MM:SS, got {duration!r}")
    check_accelerator(config.get("accelerator"), "trainer.accelerator")


def check_accelerator(name: object, option: str) -> None:
    """Refuse an accelerator that Lightning knows and this machine lacks.

    Args:
        name: Its name, or another value that Lightning accepts.
        option: Name of the option.

    Raises:
        ValueError: If the machine lacks it.
    """
    known = AcceleratorRegistry.available_accelerators()
    if not isinstance(name, str) or name not in {*known, "gpu"}:
        return
    available = [key for key in known if AcceleratorRegistry[key]["accelerator"].is_available()]
    if {"cuda", "mps"} & set(available):
        available.append("gpu")
    if name not in available:
        raise ValueError(
            f"{option}: expected one that this machine has ({', '.join(available)}), got "
            f"{name!r}; auto takes the best"
        )


def check_processes(trainer: L.Trainer) -> None:
    """Refuse numbers of CPU processes that would overload the machine.

    Raises:
        ValueError: If there are more than eight processes for each core.
    """
    most = _PROCESSES_PER_PROCESSOR * (os.cpu_count() or 1)
    if trainer.strategy.root_device.type == "cpu":
        limit = f"{most} processes on this machine's processors"
        at_most("trainer.devices", trainer.num_devices, most, limit=limit)


def check_seed(seed: int | bool | None) -> None:  # noqa: FBT001 - as Lightning has it
    """Refuse a value that is no seed of numpy.

    Raises:
        ValueError: If it is negative or has more than 32 bits.
    """
    if seed is not None and not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"seed_everything: expected 0 to {_LARGEST_SEED}, got {seed}")
