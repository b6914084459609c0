"""Pooled hidden states: the same as one unpadded text at a time, for every family."""

import copy
from collections.abc import Iterator, Sequence
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
from toolkit.lm.architecture.families import language_model_parts
from toolkit.lm.architecture.parts import readout_matrix
from toolkit.lm.reading.hidden_states import hidden_states, layer_names

NAMES = layer_names(NUM_BLOCKS)


@pytest.fixture
def default_float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


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


@pytest.mark.parametrize("name", ["phi3_longrope", "llama_dynamic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_positions_that_depend_on_the_longest_text_of_a_batch(
    name: str, dtype: torch.dtype
) -> None:
    def read(texts: Sequence[str], model: Any) -> dict[str, Tensor]:
        return hidden_states(model.to(dtype), tiny_tokenizer(), texts)

    model: Any = tiny_model(name)
    # A model that has just been built has no memory of a longer text.
    alone = [read([text], tiny_model(name)) for text in TEXTS]
    wanted = {layer: torch.cat([one[layer] for one in alone]) for layer in NAMES}
    tolerance = 1e-4 if dtype == torch.float32 else 0.03
    for _ in range(2):
        together = read(TEXTS, model)
        for layer in NAMES:
            torch.testing.assert_close(together[layer], wanted[layer], rtol=0, atol=tolerance)
    # Without care they are far apart: the longest text alone changes the others.
    padded = tiny_tokenizer()(list(TEXTS), padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model.float().model(**padded).last_hidden_state
    last = states[range(len(TEXTS)), padded["attention_mask"].sum(1) - 1]
    assert (last - wanted["final"]).abs().max() > 0.05


def test_a_measurement_leaves_dynamic_positions_as_they_were() -> None:
    model, untouched = tiny_model("llama_dynamic"), tiny_model("llama_dynamic")
    ids = torch.tensor([tiny_tokenizer()(" ".join(["dog"] * 6))["input_ids"]])
    longer = torch.tensor([tiny_tokenizer()(TEXTS[6])["input_ids"]])
    for tokens in (ids, longer, ids):
        with torch.no_grad():
            logits, wanted = model(tokens).logits, untouched(tokens).logits
        assert torch.equal(logits, wanted)
        hidden_states(model, tiny_tokenizer(), TEXTS)
        hidden_states(model, tiny_tokenizer(), ["dog"])


def test_a_batch_that_changes_its_texts_is_found_in_any_family(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model: Any = tiny_model()
    embed = model.gpt_neox.embed_in.forward
    monkeypatch.setattr(
        model.gpt_neox.embed_in, "forward", lambda ids: embed(ids) * (1 + 0.01 * ids.shape[1])
    )
    together = hidden_states(model, tiny_tokenizer(), TEXTS)
    alone = [hidden_states(model, tiny_tokenizer(), [text]) for text in TEXTS]
    for layer in NAMES:
        wanted = torch.cat([one[layer] for one in alone])
        torch.testing.assert_close(together[layer], wanted, rtol=1e-4, atol=1e-5)


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


def test_the_default_dtype_does_not_matter(default_float64: None) -> None:
    states = hidden_states(tiny_model(), tiny_tokenizer(), TEXTS)
    assert {vectors.dtype for vectors in states.values()} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_other_precisions_are_pooled_in_float32(dtype: torch.dtype, pooling: Any) -> None:
    model: Any = tiny_model()
    model.to(dtype)
    text = TEXTS[2]
    states = hidden_states(model, tiny_tokenizer(), [text], pooling=pooling)
    ids = torch.tensor([tiny_tokenizer()(text)["input_ids"]])
    with torch.no_grad():
        tokens = model.gpt_neox(ids)[0][0].double()
    expected = tokens[-1] if pooling == "last" else tokens.mean(0)
    assert all(vectors.dtype == torch.float32 for vectors in states.values())
    torch.testing.assert_close(states["final"][0], expected.float(), atol=1e-6, rtol=1e-6)


def test_values_that_are_not_finite_are_returned() -> None:
    model: Any = tiny_model()
    with torch.no_grad():
        model.gpt_neox.layers[1].mlp.dense_4h_to_h.bias[5] = torch.nan
    for pooling in ("last", "mean"):
        states = hidden_states(model, tiny_tokenizer(), TEXTS, pooling=pooling)
        finite = {layer: bool(vectors.isfinite().all()) for layer, vectors in states.items()}
        assert finite == dict(zip(NAMES, (True, True, False, False, False), strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"pooling": "first"}, "pooling: .* got 'first'", id="pooling"),
        pytest.param({"batch_size": 0}, "batch_size: .* at least 1, got 0", id="batch_size"),
        pytest.param({"max_length": 0}, "max_length: .* at least 1, got 0", id="max_length"),
        pytest.param({"layers": []}, "layers: expected one or more strings", id="no layers"),
        pytest.param(
            {"layers": ["layer_04"]}, "layers: .* layer_03 or final, got layer_04", id="L"
        ),
    ],
)
def test_refuses_other_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hidden_states(tiny_model(), tiny_tokenizer(), TEXTS, **options)


def test_dynamic_positions_reach_beyond_those_of_training() -> None:
    model, tokenizer = tiny_model("llama_dynamic"), tiny_tokenizer()
    hidden_states(model, tokenizer, [" ".join(["dog"] * 48)])
    with pytest.raises(ValueError, match=r"max_length: .* 48 positions, got text 0 with 49 tokens"):
        hidden_states(model, tokenizer, [" ".join(["dog"] * 49)])


@pytest.mark.parametrize("name", ["gpt2", "opt", "llama"])
def test_refuses_more_tokens_than_positions(name: str) -> None:
    texts = ["cat", " ".join(["dog"] * 80)]
    model, tokenizer = tiny_model(name), tiny_tokenizer()
    with pytest.raises(ValueError, match=r"max_length: .* 64 positions, got text 1 with 80 tokens"):
        hidden_states(model, tokenizer, texts)
    assert hidden_states(model, tokenizer, texts, max_length=64)["final"].isfinite().all()


def test_refuses_ids_without_a_row() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"word{index}" for index in range(20)])
    with pytest.raises(ValueError, match="tokenizer: expected ids below the model's 32 rows"):
        hidden_states(tiny_model(), tokenizer, ["cat", "word19"])


def test_refuses_weights_that_are_not_there() -> None:
    with torch.device("meta"):
        model = tiny_model()
    with pytest.raises(ValueError, match=r"model: gpt_neox.* got the meta device"):
        hidden_states(model, tiny_tokenizer(), TEXTS)


def test_refuses_quantised_weights() -> None:
    model: Any = tiny_model()
    weight = model.gpt_neox.layers[0].mlp.dense_h_to_4h.weight
    packed = nn.Parameter(weight.detach().to(torch.uint8), requires_grad=False)
    model.gpt_neox.layers[0].mlp.dense_h_to_4h.weight = packed
    with pytest.raises(ValueError, match=r"dense_h_to_4h.weight: .* got torch.uint8"):
        hidden_states(model, tiny_tokenizer(), TEXTS)
