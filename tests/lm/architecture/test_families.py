"""Parts of language models: every family of the table, wrappers, and what is refused."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from tests.lm.tiny_models import (
    DIM,
    FAMILY_NAMES,
    NUM_BLOCKS,
    NUM_ROWS,
    OTHER_FAMILY_NAMES,
    OTHER_FAMILY_PATHS,
    other_family,
    tiny_model,
)
from tests.test_layering import loaded_after
from toolkit.lm.architecture.families import FAMILIES, language_model_parts
from toolkit.lm.architecture.norm_gain import norm_gain
from toolkit.lm.architecture.parts import (
    LanguageModelParts,
    check_weights,
    embedding_matrix,
    is_tied,
    readout_matrix,
)

TIED = {"gpt2", "opt", "opt_projected", "opt_post_norm", "gemma", "gemma2", "gemma3"}
TIED |= {"gemma3_with_images"}
IDS = torch.tensor([[3, 7, 4, 9, 12]])


def bloom() -> Any:
    """A family that is not in the table."""
    config = transformers.BloomConfig(vocab_size=NUM_ROWS, hidden_size=DIM, n_layer=2, n_head=2)
    return transformers.BloomForCausalLM(config)


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_parts_of_each_family(name: str) -> None:
    model: Any = tiny_model(name)
    parts = language_model_parts(model)
    assert parts.embedding is model.get_input_embeddings()
    assert parts.unembedding is model.get_output_embeddings()
    assert len(parts.blocks) == NUM_BLOCKS
    assert set(parts.blocks) <= set(parts.body.modules())
    assert parts.unembedding not in set(parts.body.modules())
    assert (parts.final_norm is None) == (name == "opt_post_norm")
    assert (parts.project_out is None) == (name not in {"opt_projected", "opt_post_norm"})
    assert is_tied(parts) == (name in TIED)
    for matrix in ("input", "output"):
        assert embedding_matrix(parts, matrix).shape[0] == NUM_ROWS


def test_every_row_of_the_table_has_a_tiny_model() -> None:
    built = {tiny_model(name).config.get_text_config().model_type for name in FAMILY_NAMES}
    assert built == set(FAMILIES)


def test_matrices_are_the_stored_ones() -> None:
    model: Any = tiny_model("gpt_neox")
    parts = language_model_parts(model)
    stored = {"input": model.gpt_neox.embed_in.weight, "output": parts.unembedding.weight}
    for matrix, weight in stored.items():
        read = embedding_matrix(parts, matrix)  # type: ignore[arg-type]
        assert isinstance(weight, Tensor)
        assert read.data_ptr() == weight.data_ptr()
        assert not read.requires_grad
    assert not is_tied(parts)
    assert readout_matrix(parts, "layer_02").data_ptr() == stored["output"].data_ptr()


def test_equal_matrices_apart_in_memory_are_not_tied() -> None:
    model: Any = tiny_model("gpt2")
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    assert not is_tied(language_model_parts(model))


def residual_and_final(parts: LanguageModelParts) -> tuple[Tensor, Tensor]:
    """What enters the final norm, and what comes out of it, for every token of `IDS`."""
    seen: dict[str, Tensor] = {}

    def keep(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        seen["before"], seen["after"] = args[0].detach(), output.detach()

    assert parts.final_norm is not None
    handle = parts.final_norm.register_forward_hook(keep)
    with torch.no_grad():
        parts.body(IDS, use_cache=False)
    handle.remove()
    return seen["before"], seen["after"]


def assert_folded(parts: LanguageModelParts, *, centred: bool) -> None:
    """The model's logits are the folded matrix times the plainly normalised residual."""
    before, after = residual_and_final(parts)
    plain = before - before.mean(-1, keepdim=True) if centred else before
    plain = plain / (plain.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    logits = plain @ readout_matrix(parts, "layer_00", fold_norm=True).T
    unfolded = readout_matrix(parts, "layer_00")
    bias = getattr(parts.final_norm, "bias", None)
    if bias is not None:
        logits = logits + unfolded @ bias.detach()
    torch.testing.assert_close(logits, after @ unfolded.T, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", sorted(set(FAMILY_NAMES) - {"opt_post_norm"}))
def test_folded_readout_reads_the_logits_off_the_residual_stream(name: str) -> None:
    """W_U diag(gain) times the plainly normalised last residual is W_U times ``final``."""
    model: Any = tiny_model(name)
    parts = language_model_parts(model)
    centred = getattr(parts.final_norm, "bias", None) is not None or name == "olmo"
    assert_folded(parts, centred=centred)
    _, after = residual_and_final(parts)
    projected = (parts.project_out or nn.Identity())(after)
    with torch.no_grad():
        torch.testing.assert_close(projected, parts.body(IDS)[0])


@pytest.mark.parametrize("name", sorted(OTHER_FAMILY_NAMES))
def test_the_gain_of_a_named_norm_is_measured(name: str) -> None:
    """Families that multiply by 1 + w, of which the table knows nothing."""
    model: Any = other_family(name)
    if model is None:
        pytest.skip("the installed transformers lacks this family")
    body, norm = OTHER_FAMILY_PATHS[name]
    paths = {"blocks": f"{body}.layers", "final_norm": f"{body}.{norm}"}
    parts = language_model_parts(model, paths=paths)
    final_norm: Any = parts.final_norm
    expected = embedding_matrix(parts, "output") * (1 + final_norm.weight.detach())
    torch.testing.assert_close(readout_matrix(parts, "layer_00", fold_norm=True), expected)
    assert_folded(parts, centred=name == "nemotron")


@pytest.mark.parametrize("name", sorted(OTHER_FAMILY_NAMES))
def test_blocks_alone_say_nothing_about_the_norm(name: str) -> None:
    model: Any = other_family(name)
    if model is None:
        pytest.skip("the installed transformers lacks this family")
    parts = language_model_parts(model, paths={"blocks": f"{OTHER_FAMILY_PATHS[name][0]}.layers"})
    message = r"fold_norm: expected the final norm of a family .* got none; name it, .* leave fold"
    with pytest.raises(ValueError, match=message):
        readout_matrix(parts, "layer_01", fold_norm=True)
    # What the norm has gone through needs no folding, and the plain matrix no norm.
    stored = embedding_matrix(parts, "output")
    assert torch.equal(readout_matrix(parts, "final", fold_norm=True), stored)
    assert torch.equal(readout_matrix(parts, "layer_01"), stored)


def test_the_gain_is_folded_once() -> None:
    """Half precision is lifted, Gemma multiplies by 1 + weight, and ``final`` holds it already."""
    model: Any = tiny_model("gemma2").bfloat16()
    parts = language_model_parts(model)
    stored = embedding_matrix(parts, "output")
    folded = readout_matrix(parts, "layer_00", fold_norm=True)
    torch.testing.assert_close(folded, stored.float() * (1 + model.model.norm.weight.float()))
    assert torch.equal(readout_matrix(parts, "final", fold_norm=True), stored)


class Gated(nn.Module):
    """Takes what no final norm takes."""

    def forward(self, hidden: Tensor, gate: Tensor) -> Tensor:
        return hidden * gate


class Saturating(nn.Module):
    """Bounded, but by no common size of its input."""

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden.tanh() * 3


@pytest.mark.parametrize(
    ("norm", "message"),
    [
        pytest.param(Gated(), "Gated, which cannot be run on vectors of width 16", id="arguments"),
        pytest.param(nn.LayerNorm(8), "LayerNorm, which cannot be run on vectors", id="width"),
        pytest.param(nn.Linear(16, 8), "Linear, which does not return vectors of w", id="output"),
        pytest.param(Saturating(), "Saturating, which multiplies different inputs by", id="tanh"),
        pytest.param(nn.Linear(16, 16), "Linear, which multiplies different inputs", id="matrix"),
        pytest.param(nn.Softmax(-1), "Softmax, which multiplies different inputs", id="softmax"),
    ],
)
def test_what_has_no_gain_is_refused(norm: nn.Module, message: str) -> None:
    parts = language_model_parts(tiny_model("llama"))._replace(final_norm=norm)
    with pytest.raises(ValueError, match=rf"fold_norm: expected a final norm .* got {message}"):
        readout_matrix(parts, "layer_01", fold_norm=True)


@pytest.mark.parametrize("dim", [2, 3, 16, 17])
@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_gains_are_measured_to_the_last_digits(kind: Any, dim: int) -> None:
    """Whatever the epsilon, the bias, the precision, and the hooks of others."""
    norm = kind(dim, eps=1e-3).bfloat16()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(dim, generator=torch.Generator().manual_seed(dim)))
    calls: list[nn.Module] = []
    norm.register_forward_hook(lambda module, *_: calls.append(module))
    gain = norm_gain(norm, dim)
    torch.testing.assert_close(gain, norm.weight.detach().double(), rtol=1e-7, atol=1e-7)
    assert not calls
    norm.weight.data[1] = torch.nan
    assert norm_gain(norm, dim).isnan().tolist() == norm.weight.isnan().tolist()


@pytest.mark.parametrize("name", ["olmo", "opt_post_norm"])
def test_without_a_gain_nothing_is_folded(name: str) -> None:
    parts = language_model_parts(tiny_model(name))
    plain, folded = (readout_matrix(parts, "layer_01", fold_norm=fold) for fold in (False, True))
    assert torch.equal(plain, folded)


def test_paths_name_what_the_table_does_not_know() -> None:
    model = bloom()
    paths = {"blocks": "transformer.h", "final_norm": "transformer.ln_f"}
    parts = language_model_parts(nn.Sequential(model), paths=paths)
    assert parts.blocks is model.transformer.h
    assert parts.final_norm is model.transformer.ln_f
    assert parts.embedding is model.transformer.word_embeddings
    assert parts.unembedding is model.lm_head
    assert parts.body is model


def test_paths_overrule_the_table() -> None:
    model: Any = tiny_model("gpt2")
    parts = language_model_parts(model, paths={"final_norm": "transformer.h.0.ln_1"})
    assert parts.final_norm is model.transformer.h[0].ln_1
    assert parts.blocks is model.transformer.h


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        pytest.param(None, r"got BloomForCausalLM without known blocks; .* paths=", id="none"),
        pytest.param({"layers": "transformer.h"}, r"paths: .* got \['layers'\]", id="key"),
        pytest.param({"blocks": "model.h"}, r"paths\['blocks'\]: .* transformer, lm", id="name"),
        pytest.param({"blocks": "lm_head"}, r"paths\['blocks'\]: .* got Linear", id="no list"),
    ],
)
def test_unknown_family_is_told_what_to_name(paths: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        language_model_parts(bloom(), paths=paths)
    assert "\n" not in str(refusal.value)


def test_a_body_without_its_head_is_refused() -> None:
    with pytest.raises(ValueError, match="GPTNeoXModel without known unembedding"):
        language_model_parts(tiny_model("gpt_neox").base_model)


def on_meta() -> Any:
    with torch.device("meta"):
        return tiny_model("gpt2")


def with_weight(weight: Any) -> Any:
    model: Any = tiny_model("gpt_neox")
    model.get_output_embeddings().weight = nn.Parameter(weight, requires_grad=False)
    return model


@pytest.mark.parametrize(
    ("build", "message"),
    [
        pytest.param(on_meta, "meta device; load the weights", id="meta"),
        pytest.param(
            lambda: with_weight(torch.zeros(NUM_ROWS, DIM, dtype=torch.int8)),
            "torch.int8",
            id="int8",
        ),
        pytest.param(
            lambda: with_weight(torch.zeros(NUM_ROWS, DIM).to(torch.float8_e4m3fn)),
            "float8",
            id="float8",
        ),
        pytest.param(lambda: with_weight(torch.zeros(0)), "sharded", id="sharded"),
    ],
)
def test_weights_that_are_no_plain_numbers_are_refused(build: Any, message: str) -> None:
    model = build()
    parts = language_model_parts(model)
    for refused in (lambda: check_weights(model), lambda: embedding_matrix(parts, "output")):
        with pytest.raises(ValueError, match=message) as refusal:
            refused()
        assert "\n" not in str(refusal.value)


def test_distributed_tensors_are_refused() -> None:
    weight: Any = torch.zeros(NUM_ROWS, DIM)
    weight.device_mesh = None
    parts = language_model_parts(tiny_model("gpt2"))
    with pytest.raises(ValueError, match="output: expected the whole tensor, got a sharded one"):
        embedding_matrix(parts._replace(unembedding=SimpleNamespace(weight=weight)), "output")  # type: ignore[arg-type]


class OtherTensor(Tensor):
    """Plain to the eye, as the tensors of quantising packages are."""


def test_a_quantised_model_is_refused_by_its_own_flag() -> None:
    model: Any = tiny_model("gpt2")
    model.is_quantized = True
    # What has been unpacked keeps the flag.
    check_weights(model)
    model.transformer.h[0].register_buffer("qweight", torch.ones(4, 4, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"model: .* got a quantised model; load it unquantised"):
        check_weights(model)
    model = tiny_model("gpt2")
    model.is_quantized = True
    weight = model.transformer.ln_f.weight.detach().as_subclass(OtherTensor)
    model.transformer.ln_f.weight = nn.Parameter(weight)
    with pytest.raises(ValueError, match=r"model: .* got a quantised model; load it unquantised"):
        check_weights(model)


def test_refuses_other_names_and_modules() -> None:
    parts = language_model_parts(tiny_model("gpt2"))
    with pytest.raises(ValueError, match="matrix: expected 'input' or 'output', got 'both'"):
        embedding_matrix(parts, "both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="layer: expected layer_00 to layer_03 or final, got 3"):
        readout_matrix(parts, "3")
    with pytest.raises(ValueError, match="input: expected a module with a weight, got Identity"):
        embedding_matrix(parts._replace(embedding=nn.Identity()), "input")
    with pytest.raises(ValueError, match=r"input: expected a matrix as weight, got shape \(4,\)"):
        embedding_matrix(parts._replace(embedding=nn.LayerNorm(4)), "input")


def test_the_modules_themselves_load_nothing_heavy() -> None:
    loaded = loaded_after(
        "import toolkit.lm.architecture.families, toolkit.lm.reading.hidden_states"
    )
    assert not loaded & {"lightning", "rich", "tokenizers", "transformers"}
