"""Computation in the operands' precision, also inside a caller's autocast."""

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")

_DEVICES = ("cpu", "cuda", "mps", "xpu")


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Keep autocast out of ``function``: it would round float32 products to half precision."""

    @functools.wraps(function)
    def outside_autocast(*args: P.args, **kwargs: P.kwargs) -> R:
        enabled = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
        if not enabled:
            return function(*args, **kwargs)
        with ExitStack() as stack:
            for device in enabled:
                stack.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)

    return outside_autocast
