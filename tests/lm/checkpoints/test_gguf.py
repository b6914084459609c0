"""GGUF files as checkpoints: the same model as in memory, or one line."""

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from tests.lm.tiny_models import NUM_ROWS, SPECIAL, TEXTS, tiny_model
from tests.lm.weights.test_embedding import write_split_gguf
from toolkit.lm.architecture.families import language_model_parts
from toolkit.lm.architecture.parts import check_weights, embedding_matrix
from toolkit.lm.checkpoints.base import joined
from toolkit.lm.checkpoints.local import LocalFolders
from toolkit.lm.checkpoints.models import Models
from toolkit.lm.reading.hidden_states import hidden_states
from toolkit.lm.weights.embedding import read_embedding
from toolkit.lm.weights.gguf import GgufWeights

gguf = pytest.importorskip("gguf")
pytest.importorskip("accelerate", reason="transformers loads GGUF files with it")

NUM_HEADS, NUM_KEY_HEADS = 2, 1
# Letters, the space of byte-level tokenizers, and two merged pieces.
TOKENS = (*SPECIAL, *ascii_lowercase, "Ġ", "th", "the")


def wide_llama() -> PreTrainedModel:
    """So wide that each row of a matrix is whole blocks of a quantised type."""
    config = LlamaConfig(
        vocab_size=NUM_ROWS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=NUM_HEADS,
        num_key_value_heads=NUM_KEY_HEADS,
    )
    return LlamaForCausalLM(config)


def interleaved(weight: Tensor, num_heads: int) -> Tensor:
    """The order of the rows of queries and keys that llama.cpp expects."""
    halves = weight.view(num_heads, 2, -1, weight.shape[1])
    return halves.transpose(1, 2).reshape(weight.shape)


def write_llama(
    path: Path,
    model: PreTrainedModel,
    *,
    architecture: str = "llama",
    without: tuple[str, ...] = (),
    tokens: tuple[str, ...] = TOKENS,
    kind: str = "F32",
) -> Path:
    """Write a tiny Llama as the converters of llama.cpp do."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(NUM_HEADS)
    writer.add_head_count_kv(NUM_KEY_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if tokens:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(list(tokens))
        writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))
        writer.add_token_merges(["t h", "th e"])
        writer.add_eos_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_unk_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        if name in without:
            continue
        weight = value
        if "q_proj" in name or "k_proj" in name:
            weight = interleaved(value, NUM_HEADS if "q_proj" in name else NUM_KEY_HEADS)
        stored = names.get_name(name.removesuffix(".weight"))
        stored_as = gguf.GGMLQuantizationType[kind if weight.ndim == 2 else "F32"]
        values = gguf.quantize(weight.contiguous().numpy(), stored_as)
        writer.add_tensor(f"{stored}.weight", values, raw_dtype=stored_as)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_file_is_the_model_it_was_written_from(tmp_path: Path) -> None:
    model = tiny_model("llama")
    path = write_llama(tmp_path / "model.gguf", model)
    (checkpoint,) = Models([str(path)]).checkpoints()
    assert (checkpoint.name, checkpoint.step, checkpoint.missing()) == (str(path), 0, [])
    opened = checkpoint.open()
    found = opened.model.state_dict()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=0)
    assert opened.tokenizer is not None
    states = [
        hidden_states(one, opened.tokenizer, TEXTS, max_length=16) for one in (model, opened.model)
    ]
    for name, expected in states[0].items():
        torch.testing.assert_close(states[1][name], expected)
    opened.model.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "model.safetensors").is_file()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_quantised_weights_become_what_is_asked_for(tmp_path: Path, dtype: torch.dtype) -> None:
    path = write_llama(tmp_path / "model.gguf", wide_llama(), kind="Q8_0")
    opened = Models([str(path)]).checkpoints()[0].open(dtype)
    assert {parameter.dtype for parameter in opened.model.parameters()} == {dtype}
    matrix = opened.model.state_dict()["model.embed_tokens.weight"]
    assert torch.equal(matrix, read_embedding(path).tensor.to(dtype))


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_a_model_that_transformers_has_unpacked_is_dense(kind: str, tmp_path: Path) -> None:
    path = write_llama(tmp_path / "model.gguf", wide_llama(), kind=kind)
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name)
    assert model.is_quantized
    check_weights(model)
    matrix = embedding_matrix(language_model_parts(model), "input")
    assert torch.equal(matrix, read_embedding(path).tensor)


def test_files_of_a_series_have_their_steps(tmp_path: Path) -> None:
    for name in ("step-20.Q4_1.gguf", "step-3.Q4_1.gguf", "notes-step-4.txt"):
        (tmp_path / name).touch()
    checkpoints = LocalFolders(f"{tmp_path}/*").checkpoints()
    assert [(one.name, one.step) for one in checkpoints] == [(str(tmp_path), s) for s in (3, 20)]
    (tmp_path / "model.Q4_1.gguf").touch()
    with pytest.raises(ValueError, match=r"expected the step in each name, got .*model.Q4_1.gguf"):
        LocalFolders(f"{tmp_path}/model*").checkpoints()


def test_a_file_without_tokenizer(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "model.gguf", tiny_model("llama"), tokens=())
    assert joined(Models([str(path)]))[0].open().tokenizer is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": "mpt"}, r"expected a whole model in .*gguf, got .*mpt is not supported"),
        (
            {"without": ("model.norm.weight",)},
            r"expected all weights in .*model.gguf, got none for model.norm.weight",
        ),
    ],
    ids=["a family that transformers does not load", "a tensor is lacking"],
)
def test_a_file_that_is_no_whole_model(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write_llama(tmp_path / "model.gguf", tiny_model("llama"), **options)
    with pytest.raises(ValueError, match=message):
        Models([str(path)]).checkpoints()[0].open()


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("text")
    with pytest.raises(ValueError, match=r"expected a GGUF file .*it does not begin with GGUF"):
        Models([str(tmp_path / "model.gguf")]).checkpoints()[0].open()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_shows_how_far_the_weights_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_llama(tmp_path / "model.gguf", wide_llama(), kind="Q8_0")
    told: list[tuple[int, int]] = []

    @contextmanager
    def bar(description: str) -> Iterator[Any]:
        assert description == "dequantising model.gguf (0.00 GiB)"
        yield lambda done, whole: told.append((done, whole))

    monkeypatch.setattr("toolkit.lm.checkpoints.loading.counting_bar", bar)
    Models([str(path)]).checkpoints()[0].open()
    assert told[-1][0] == told[-1][1] == len(GgufWeights(path).names)
    monkeypatch.undo()
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    # Else a terminal of no abilities is assumed, or none at all.
    monkeypatch.setenv("TERM", "xterm")
    Models([str(path)]).checkpoints()[0].open()
    assert "dequantising model.gguf" in terminal.getvalue()
    assert re.search(r"0:00:0\d", terminal.getvalue())
    assert sys.stderr is terminal
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    Models([str(path)]).checkpoints()[0].open()
    assert not file.getvalue()


def test_stages_tell_their_time_and_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_llama(tmp_path / "model.gguf", wide_llama(), kind="Q8_0")
    checkpoint = Models([str(path)]).checkpoints()[0]
    checkpoint.open()
    assert not caplog.messages
    with caplog.at_level("DEBUG", logger="toolkit.console.stages"):
        checkpoint.open()
    stages = [re.fullmatch(r"(.*): \d+\.\d s, .*\d GiB.*", line) for line in caplog.messages]
    names = [f"{path}: {name}" for name in ("header", "weights", "tokenizer")]
    assert [match and match[1] for match in stages] == names


def test_a_part_of_a_split_file_is_no_model(tmp_path: Path) -> None:
    matrices = {"token_embd.weight": torch.ones(4, 4), "output.weight": torch.zeros(4, 4)}
    path = write_split_gguf(tmp_path, matrices)[1]
    with pytest.raises(
        ValueError, match=r"a model in one GGUF file, got .*one of 2 parts; join them"
    ):
        Models([str(path)]).checkpoints()[0].open()


def test_the_package_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_llama(tmp_path / "model.gguf", tiny_model("llama"))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match=r"package gguf .* got none; pip install .*\[gguf\]"):
        Models([str(path)]).checkpoints()[0].open()


def test_a_folder_of_one_file_names_it(tmp_path: Path) -> None:
    model = tiny_model("llama")
    model.config.save_pretrained(tmp_path)
    write_llama(tmp_path / "model.gguf", model)
    with pytest.raises(ValueError, match=r"expected safetensors .*got model.gguf; .* file itself"):
        Models([str(tmp_path)]).checkpoints()[0].open()
