"""The language model is found inside whatever holds it."""

from typing import Any

import lightning as L
import pytest
import torch
import transformers
from torch import nn

from tests.lm.tiny_models import tiny_model
from toolkit.lm.architecture.search import find_language_model


class Holder(L.LightningModule):
    """A user's own module."""

    def __init__(self, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)


def vision_encoder() -> Any:
    """A Hugging Face model without a head."""
    model: Any = tiny_model("gemma3_with_images")
    return model.model.vision_tower


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda model: model, id="itself"),
        pytest.param(lambda model: Holder(net=model), id="any name"),
        pytest.param(lambda model: Holder(a=Holder(b=nn.Sequential(model))), id="nested"),
        pytest.param(lambda model: Holder(net=compiled(model)), id="compiled"),
        pytest.param(lambda model: Holder(first=model.base_model, net=model), id="part first"),
        pytest.param(lambda model: Holder(net=model, again=model), id="two names"),
        pytest.param(lambda model: Holder(eye=vision_encoder(), net=model), id="an encoder"),
    ],
)
def test_finds_the_model(wrap: Any) -> None:
    model = tiny_model("gpt_neox")
    assert find_language_model(wrap(model)) is model


def test_of_several_models_one_is_named() -> None:
    holder = Holder(student=tiny_model("gpt2"), teacher=tiny_model("gpt_neox"))
    with pytest.raises(ValueError, match=r"student \(GPT2LMHeadModel\), teacher .*attribute"):
        find_language_model(holder)
    assert find_language_model(holder, attribute="teacher") is holder.teacher
    with pytest.raises(
        ValueError, match=r"attribute: .* 'tutor'; it starts with .* student, teach"
    ):
        find_language_model(holder, attribute="tutor")


def test_refuses_what_is_no_causal_language_model() -> None:
    with pytest.raises(TypeError, match=r"module: expected a torch.nn.Module, got str"):
        find_language_model("gpt2")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="inside Holder, got none; keep it as an attribute"):
        find_language_model(Holder(net=nn.Linear(2, 2)))
    sizes = transformers.T5Config(
        vocab_size=9, d_model=8, d_ff=8, d_kv=4, num_layers=1, num_heads=2
    )
    t5 = transformers.T5ForConditionalGeneration(sizes)
    with pytest.raises(ValueError, match="T5ForConditionalGeneration, which is an encoder-decoder"):
        find_language_model(t5)
