"""Restoring the state of a run after a measurement, so that callbacks never change it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from toolkit.evaluation_mode import evaluation_mode


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Run the body in eval mode without gradients, then restore the run's state.

    The state consists of the flags of the submodules and the global random states of torch, numpy
    and Python. It is restored after an exception, too.
    """
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    gpus = {tensor.device for tensor in module.parameters() if tensor.is_cuda}
    try:
        with torch.random.fork_rng(gpus), evaluation_mode(module):
            yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
