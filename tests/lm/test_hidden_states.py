"""Pooled hidden states: the same as one unpadded text at a time, for every family."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.lm.tiny_models import (
    DIM,
    FAMILY_NAMES,
    NUM_BLOCKS,
    TEXTS,
    tiny_model,
    tiny_tokenizer,
)
from toolkit.lm.families import language_model_parts, readout_matrix
from toolkit.lm.hidden_states import hidden_states, layer_names

NAMES = layer_names(NUM_BLOCKS)
# The longest of TEXTS; its tokens are cut where max_length is lower.
LONGEST = max(range(len(TEXTS)), key=lambda index: len(TEXTS[index].split()))


def token_states(model: Any, tokenizer: Any, text: str) -> dict[str, Tensor]:
    """Every token's states by Hugging Face's own outputs, for one text without padding."""
    states: dict[str, Tensor] = {}

    def keep(_: nn.Module, args: Any, output: Any) -> None:
        states[NAMES[-2]] = output if isinstance(output, Tensor) else output[0]

    handle = language_model_parts(model).blocks[-1].register_forward_hook(keep)
    with torch.no_grad():
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        output = model(input_ids=ids, output_hidden_states=True)
    handle.remove()
    states |= dict(zip(NAMES[:-2], output.hidden_states[:-1], strict=True))
    states["final"] = language_model_parts(model).body(ids)[0].detach()
    return {name: states[name][0] for name in NAMES} | {"logits": output.logits[0]}


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_equals_one_text_at_a_time(name: str) -> None:
    model = tiny_model(name)
    expected = [token_states(model, tiny_tokenizer(), text) for text in TEXTS]
    for pooling in ("last", "mean"):
        for batch_size in (1, 8):
            for side in ("left", "right"):
                tokenizer = tiny_tokenizer(padding_side=side)
                states = hidden_states(
                    model, tokenizer, TEXTS, pooling=pooling, batch_size=batch_size
                )
                assert list(states) == NAMES
                for layer, vectors in states.items():
                    tokens = [one[layer] for one in expected]
                    pooled = [t[-1] if pooling == "last" else t.mean(0) for t in tokens]
                    torch.testing.assert_close(vectors, torch.stack(pooled), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_final_times_the_unembedding_gives_the_logits(name: str) -> None:
    model: Any = tiny_model(name)
    parts: Any = language_model_parts(model)
    final = hidden_states(model, tiny_tokenizer(), TEXTS, layers=["final"])["final"]
    logits = final @ readout_matrix(parts, "final").T
    if parts.unembedding.bias is not None:
        logits = logits + parts.unembedding.bias.detach()
    cap = getattr(model.config, "final_logit_softcapping", None)
    logits = logits if cap is None else cap * torch.tanh(logits / cap)
    rows = [token_states(model, tiny_tokenizer(), text)["logits"][-1] for text in TEXTS]
    torch.testing.assert_close(logits, torch.stack(rows), atol=1e-4, rtol=1e-4)
    assert logits.std() > 0.05


@pytest.mark.parametrize("name", ["opt_projected", "opt_post_norm"])
def test_projected_readout_equals_project_then_unembed(name: str) -> None:
    model = tiny_model(name)
    parts: Any = language_model_parts(model)
    states = hidden_states(model, tiny_tokenizer(), TEXTS)
    assert [states[layer].shape[1] for layer in NAMES] == [DIM] * (NUM_BLOCKS + 1) + [12]
    last = states[NAMES[-2]]
    normed = last if parts.final_norm is None else parts.final_norm(last).detach()
    logits = normed @ readout_matrix(parts, NAMES[-2]).T
    expected = states["final"] @ readout_matrix(parts, "final").T
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_leaves_model_and_random_state_as_they_were(name: str) -> None:
    model = tiny_model(name)
    for module in model.modules():
        module.training = isinstance(module, nn.Linear | nn.Dropout | nn.ModuleList)
    flags = [module.training for module in model.modules()]
    weights = copy.deepcopy(model.state_dict())
    random = torch.get_rng_state()
    first = hidden_states(model, tiny_tokenizer(), TEXTS, batch_size=3)
    again = hidden_states(model, tiny_tokenizer(), TEXTS, batch_size=3)
    assert torch.equal(torch.get_rng_state(), random)
    assert [module.training for module in model.modules()] == flags
    assert torch.is_grad_enabled()
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(first[layer], again[layer]) for layer in NAMES)
