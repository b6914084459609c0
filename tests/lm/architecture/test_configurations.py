"""Models by configuration: what is given is used, what is unknown is named."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig

from toolkit.lm.architecture.configurations import new_language_model, plain_configuration

SMALL: dict[str, dict[str, Any]] = {
    "gpt_neox": {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2},
    "gpt2": {"n_embd": 8, "n_head": 2},
    "llama": {
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rope_theta": 500.0,
    },
}


def small(model_type: str, **options: Any) -> dict[str, Any]:
    layers = {"num_hidden_layers": 2, "vocab_size": 11}
    return {"model_type": model_type, **layers, **SMALL[model_type], **options}


@pytest.mark.parametrize("model_type", SMALL)
def test_settings_are_used_and_come_back(model_type: str) -> None:
    torch.manual_seed(0)
    model = new_language_model(small(model_type))
    assert model.get_input_embeddings().weight.shape == (11, 8)
    assert model.config.num_hidden_layers == 2
    assert model.training
    plain = plain_configuration(model.config)
    torch.manual_seed(0)
    again = new_language_model(plain)
    assert plain_configuration(again.config) == plain
    pairs = zip(again.parameters(), model.parameters(), strict=True)
    assert all(torch.equal(first, second) for first, second in pairs)


def test_dtype() -> None:
    assert new_language_model(small("gpt2"), dtype=torch.bfloat16).dtype == torch.bfloat16


def test_a_published_configuration_may_hold_more(tmp_path: Any) -> None:
    config = AutoConfig.for_model(**small("gpt_neox"), left_over="from an older version")
    assert "left_over" in config.to_dict()
    assert "left_over" not in plain_configuration(config)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({}, "config: expected model_type to be a type that transformers knows.* got None"),
        ({"model_type": "gptneox"}, "config: expected model_type .* got 'gptneox'"),
        ({"model_type": "vit"}, "config: expected a causal language model, got vit"),
        (small("gpt_neox", hiden_size=8), "got 'hiden_size'; did you mean hidden_size?"),
        (small("gpt_neox", qqqq=8), "config: expected settings of gpt_neox, got 'qqqq'$"),
        (small("gpt_neox", hidden_size=9), "config: expected settings of gpt_neox that fit togeth"),
    ],
    ids=["none", "unknown", "vision", "typo", "other", "indivisible"],
)
def test_bad_configurations(config: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        new_language_model(config)
    assert "\n" not in str(caught.value)
