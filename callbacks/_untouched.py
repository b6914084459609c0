"""Give everything back as it was, so that watching a run never changes it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Run the body in eval mode without gradients, then restore what it may have changed.

    Train and eval flags come back for each submodule by itself, and the global random states of
    torch, numpy and Python with them, also after an exception. Gradients can be enabled inside.
    """
    flags = [(part, part.training) for part in module.modules()]
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    gpus = {tensor.device for tensor in module.parameters() if tensor.is_cuda}
    try:
        # inference_mode(False): a stand-alone validation would hand out tensors unfit for a probe.
        with torch.random.fork_rng(gpus), torch.inference_mode(mode=False), torch.no_grad():
            for part, _ in flags:
                # The attribute, not eval(): some adapters merge their weights in train().
                part.training = False
            yield
    finally:
        for part, training in flags:
            part.training = training
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
