"""Models wrapped by PEFT."""

from typing import Any

import peft
import pytest
import torch

from tests.lm.tiny_models import TEXTS, tiny_model, tiny_tokenizer
from toolkit.lm.architecture.families import language_model_parts
from toolkit.lm.architecture.parts import embedding_matrix, readout_matrix
from toolkit.lm.architecture.search import find_language_model
from toolkit.lm.reading.hidden_states import hidden_states

# PEFT 0.21 asks transformers 5.24 by a name that will go: its own affair.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


# transformers before 5.13 calls it embed_out.
HEAD = next(name for name, _ in tiny_model().named_children() if name != "gpt_neox")


def adapted(*targets: str, **options: Any) -> Any:
    """A LoRA model whose adapters change what it computes."""
    config = peft.LoraConfig(r=2, target_modules=list(targets), lora_dropout=0.5, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = peft.get_peft_model(tiny_model(), config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.3)
    return model.train()


def test_the_adapters_count_and_their_dropout_does_not() -> None:
    model = adapted("query_key_value", "dense_h_to_4h")
    states = hidden_states(model, tiny_tokenizer(), TEXTS)
    assert model.training
    base = hidden_states(tiny_model(), tiny_tokenizer(), TEXTS)
    merged = hidden_states(model.merge_and_unload(), tiny_tokenizer(), TEXTS)
    assert torch.equal(states["layer_00"], base["layer_00"])
    for layer, vectors in states.items():
        torch.testing.assert_close(vectors, merged[layer], atol=1e-4, rtol=1e-4)
    assert (states["final"] - base["final"]).abs().max() > 0.01


def test_the_model_is_found_inside_and_its_own_matrices_are_read() -> None:
    model = adapted("query_key_value")
    assert find_language_model(model) is model.get_base_model()
    parts = language_model_parts(model)
    unwrapped = language_model_parts(tiny_model())
    assert torch.equal(embedding_matrix(parts, "output"), embedding_matrix(unwrapped, "output"))


def test_a_matrix_that_is_trained_whole_is_the_trained_one() -> None:
    model = adapted("query_key_value", modules_to_save=[HEAD])
    trained = getattr(model.get_base_model(), HEAD).modules_to_save["default"].weight
    with torch.no_grad():
        trained += 1
    assert torch.equal(embedding_matrix(language_model_parts(model), "output"), trained)


def test_a_matrix_under_an_adapter_is_refused_until_merged() -> None:
    model = adapted(HEAD, "embed_in")
    parts = language_model_parts(model)
    matrices: tuple[Any, ...] = ("input", "output")
    for matrix in matrices:
        with pytest.raises(ValueError, match=f"{matrix}: .* an adapter on it; merge it first"):
            embedding_matrix(parts, matrix)
    states = hidden_states(model, tiny_tokenizer(), TEXTS)
    merged = language_model_parts(model.merge_and_unload())
    assert readout_matrix(merged, "final").shape[1] == states["final"].shape[1]


def test_virtual_tokens_are_refused() -> None:
    config = peft.PromptTuningConfig(num_virtual_tokens=2, task_type=peft.TaskType.CAUSAL_LM)
    model = peft.get_peft_model(tiny_model(), config)
    with pytest.raises(ValueError, match="PeftModelForCausalLM that adds virtual tokens"):
        hidden_states(model, tiny_tokenizer(), TEXTS)
