"""The mode of each submodule comes back; inside nothing trains."""

from pathlib import Path

import pytest
import torch
from torch import nn

from toolkit.evaluation_mode import evaluation_mode


def mixed() -> nn.Sequential:
    """A module in train mode with a submodule in eval mode."""
    linear = nn.Linear(2, 2)
    inner = nn.Sequential(nn.Dropout(), linear).eval()
    linear.train()
    return nn.Sequential(nn.Dropout(), inner)


def flags(module: nn.Module) -> list[bool]:
    return [part.training for part in module.modules()]


def test_each_flag_comes_back_also_when_nested_and_after_an_exception() -> None:
    module = mixed()
    before = flags(module)
    assert before == [True, True, False, False, True]

    def fail() -> None:
        with evaluation_mode(module), evaluation_mode(module[1]):
            assert not any(flags(module))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert flags(module) == before


def test_no_gradients_and_no_inference_tensors() -> None:
    module = mixed()
    with torch.inference_mode(), evaluation_mode(module):
        made = module(torch.ones(1, 2, dtype=torch.float32))
        assert not made.requires_grad
        assert not torch.ones(1).is_inference()
        with torch.enable_grad():
            assert module(torch.ones(1, 2)).requires_grad


def test_train_of_a_module_is_not_called() -> None:
    class Adapter(nn.Linear):
        def train(self, mode: bool = True) -> "Adapter":
            raise AssertionError(mode)

    with evaluation_mode(Adapter(2, 2)):
        pass


def test_only_one_module_sets_the_flags() -> None:
    root = Path(__file__).parent.parent
    sources = [path for top in ("toolkit", "callbacks") for path in (root / top).rglob("*.py")]
    assert {path.name for path in sources if ".training = " in path.read_text()} == {
        "evaluation_mode.py"
    }
