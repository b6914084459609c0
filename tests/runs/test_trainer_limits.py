"""Options of the Trainer that Lightning takes and that make no run."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from toolkit.runs.trainer_limits import check_options, check_processes, check_seed


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("val_check_interval", 0, "more than 0"),
        ("val_check_interval", float("nan"), "more than 0"),
        ("accumulate_grad_batches", 0, "at least 1"),
        ("num_sanity_val_steps", -2, "at least -1"),
        ("limit_val_batches", -0.5, "at least 0"),
    ],
)
def test_numbers_out_of_range(option: str, value: float, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"^trainer.{option}: expected {expected}, got {value}$"):
        check_options({option: value})


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"val_check_interval": 0.25, "limit_val_batches": 0, "num_sanity_val_steps": -1},
        {"val_check_interval": "00:00:10:00", "max_time": "00:12:00:00", "accelerator": "cpu"},
        {"gradient_clip_val": None, "accelerator": "auto"},
    ],
)
def test_values_at_the_edge(config: dict[str, Any]) -> None:
    check_options(config)


@pytest.mark.parametrize(
    ("command", "batches"),
    [("fit", "train"), ("validate", "val"), ("test", "test"), ("predict", "predict")],
)
def test_a_command_needs_batches_of_its_own(command: str, batches: str) -> None:
    for other in ("train", "val", "test", "predict"):
        if other != batches:
            check_options({f"limit_{other}_batches": 0}, command)
    message = rf"^trainer.limit_{batches}_batches: expected more than 0, got 0$"
    with pytest.raises(ValueError, match=message):
        check_options({f"limit_{batches}_batches": 0}, command)


def test_a_duration_and_an_accelerator_are_named() -> None:
    with pytest.raises(ValueError, match=r"^trainer.max_time: expected DD:HH:MM:SS, got '5 min'$"):
        check_options({"max_time": "5 min"})
    with pytest.raises(ValueError, match=r"^trainer.accelerator: expected one .*cpu.*, got 'tpu'"):
        check_options({"accelerator": "tpu"})


@pytest.mark.parametrize(
    ("seed", "right"), [(0, True), (2**32 - 1, True), (None, True), (2**32, False), (-1, False)]
)
def test_seeds(seed: int | None, right: bool) -> None:
    if right:
        check_seed(seed)
    else:
        with pytest.raises(ValueError, match=r"^seed_everything: expected 0 to 4294967295, got"):
            check_seed(seed)


@pytest.mark.parametrize(
    ("kind", "to_a_processor", "right"), [("cpu", 8, True), ("cpu", 9, False), ("cuda", 9, True)]
)
def test_the_number_of_processes_on_a_cpu(kind: str, to_a_processor: int, right: bool) -> None:
    processes = to_a_processor * (os.cpu_count() or 1)
    strategy = SimpleNamespace(root_device=torch.device(kind))
    trainer: Any = SimpleNamespace(strategy=strategy, num_devices=processes)
    if right:
        check_processes(trainer)
    else:
        with pytest.raises(ValueError, match=rf"^trainer.devices: .*, got {processes}$"):
            check_processes(trainer)
