"""The number of threads: small work uses one, because waiting would cost more than it saves."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from threadpoolctl import ThreadpoolController
from torch import nn
from typing_extensions import override

# Measured by benchmarks/threads.py: below this number of multiply-adds in a step a second thread
# gains little on an idle machine, and loses much on a busy machine.
SMALL_WORK = 4_000_000_000
# Rows that each weight is multiplied by in a step, if a module does not state them.
_USUAL_ROWS = 1024
_VARIABLE = "OMP_NUM_THREADS"

_given_by_option = False


@contextmanager
def given(typed: str | int) -> Iterator[None]:
    """Run the body with the user's number of threads; automatic choices do not change it.

    Args:
        typed: Number of threads, the text of the option ``--threads``.

    Raises:
        ValueError: If it is no integer of at least 1.
    """
    global _given_by_option  # noqa: PLW0603 - the count of threads is the process's own, too
    number = int(typed) if str(typed).isdecimal() else 0
    if number < 1:
        raise ValueError(f"--threads: expected a whole number of at least 1, got {typed!r}")
    with restored():
        _set(number)
        _given_by_option = True
        try:
            yield
        finally:
            _given_by_option = False


@contextmanager
def restored() -> Iterator[None]:
    """Restore the numbers of threads of torch and of numpy's and scipy's BLAS after the body."""
    found = torch.get_num_threads()
    try:
        with _blas().limit(limits=None):
            yield
    finally:
        torch.set_num_threads(found)


def settle(module: nn.Module) -> None:
    """Compute with one thread from now on if the module's steps are small.

    ``--threads``, and then the environment variable ``OMP_NUM_THREADS``, have precedence.
    """
    if _given_by_option or os.environ.get(_VARIABLE):
        return
    if multiply_adds(module) <= SMALL_WORK:
        _set(1)


@contextmanager
def suited_to(module: nn.Module) -> Iterator[None]:
    """Run the body with the number of threads that `settle` chooses, then restore the number."""
    with restored():
        settle(module)
        yield


class ThreadChoice(Callback):
    """Chooses the number of threads of a run as soon as its model has weights."""

    @override
    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Choose before the first batch, also that of a sanity check."""
        settle(pl_module)

    @override
    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Choose before a stand-alone validation."""
        settle(pl_module)

    @override
    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Choose before a test."""
        settle(pl_module)

    @override
    def on_predict_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Choose before a prediction."""
        settle(pl_module)


def multiply_adds(module: nn.Module) -> int:
    """Return the approximate number of multiply-adds in the forward products of a step.

    Each weight counts once for each row: ``rows_per_step`` of the module, or 1024 rows.
    """
    known = (p for p in module.parameters() if not nn.parameter.is_lazy(p))
    rows: int = getattr(module, "rows_per_step", _USUAL_ROWS)
    return rows * sum(parameter.numel() for parameter in known)


def _set(number: int) -> None:
    torch.set_num_threads(number)
    _blas().limit(limits=number)


@cache
def _blas() -> ThreadpoolController:
    # The search for loaded libraries takes milliseconds; scipy's library is loaded already.
    import scipy.linalg  # noqa: F401, PLC0415

    return ThreadpoolController().select(user_api="blas")
