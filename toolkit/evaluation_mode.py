"""Eval mode of modules while they are measured."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Run the body in eval mode without gradients, then restore the flag of each submodule.

    The flags are restored after an exception, too. The body may enable gradients.
    """
    flags = [(part, part.training) for part in module.modules()]
    try:
        # The attribute, not eval(): some adapters merge their weights in train().
        for part, _ in flags:
            part.training = False
        # A probe may be trained on the results: inference tensors do not allow that.
        with torch.inference_mode(mode=False), torch.no_grad():
            yield
    finally:
        for part, training in flags:
            part.training = training
