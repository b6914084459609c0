"""Parts of language models: every family of the table, wrappers, and what is refused."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from tests.lm.tiny_models import DIM, FAMILY_NAMES, NUM_BLOCKS, NUM_ROWS, tiny_model
from toolkit.lm.families import (
    FAMILIES,
    embedding_matrix,
    is_tied,
    language_model_parts,
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


@pytest.mark.parametrize("name", sorted(set(FAMILY_NAMES) - {"opt_post_norm"}))
def test_folded_readout_reads_the_logits_off_the_residual_stream(name: str) -> None:
    """W_U diag(gain) times the plainly normalised last residual is W_U times ``final``."""
    model: Any = tiny_model(name)
    parts = language_model_parts(model)
    seen: dict[str, Tensor] = {}

    def keep(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        seen["before"], seen["after"] = args[0].detach(), output.detach()

    assert parts.final_norm is not None
    handle = parts.final_norm.register_forward_hook(keep)
    with torch.no_grad():
        final = parts.body(IDS)[0]
    handle.remove()
    before = seen["before"]
    bias = getattr(parts.final_norm, "bias", None)
    centred = bias is not None or name == "olmo"
    plain = before - before.mean(-1, keepdim=True) if centred else before
    plain = plain / (plain.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    logits = plain @ readout_matrix(parts, "layer_03", fold_norm=True).T
    if bias is not None:
        logits = logits + readout_matrix(parts, "layer_03") @ bias.detach()
    expected = final @ readout_matrix(parts, "final", fold_norm=True).T
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
