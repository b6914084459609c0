"""Embeddings of local models: every family in every format, and what is refused."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from tests.lm.tiny_models import FAMILY_NAMES, NUM_ROWS, VOCABULARY, tiny_model, tiny_tokenizer
from toolkit.functional import embedding_deviation
from toolkit.lm.weights.embedding import Matrix, read_embedding
from toolkit.lm.weights.gguf_header import BLOCKS
from toolkit.lm.weights.names import TIED_BY_DEFAULT, UNTIED_BY_DEFAULT, ties_matrices

gguf = pytest.importorskip("gguf")

MATRICES: tuple[Matrix, ...] = ("input", "output")
# So wide that a row of the tiny models holds whole blocks of a quantised type.
BLOCK = 32


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def live(model: PreTrainedModel, matrix: Matrix) -> Tensor:
    getter: Callable[[], Any] = getattr(model, f"get_{matrix}_embeddings")
    weight: Tensor = getter().weight.detach()
    return weight


def is_tied(model: PreTrainedModel) -> bool:
    return live(model, "input").data_ptr() == live(model, "output").data_ptr()


def assert_equal(tensor: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(tensor, expected, rtol=0, atol=0)


def save_sharded(model: PreTrainedModel, folder: Path) -> dict[str, str]:
    """One file for each few tensors; returns the index."""
    model.save_pretrained(folder, max_shard_size="4KB")
    files: dict[str, str] = json.loads((folder / "model.safetensors.index.json").read_text())[
        "weight_map"
    ]
    assert len(set(files.values())) > 2
    return files


def write_gguf(path: Path, matrices: dict[str, Tensor], kind: str = "F32", **fields: Any) -> None:
    writer = gguf.GGUFWriter(path, "unknown")
    writer.add_uint32("unknown.block_count", 3)
    writer.add_float32("unknown.scale", 0.5)
    writer.add_bool("unknown.flag", True)
    writer.add_array("unknown.numbers", [1, 2, 3])
    if "tokens" in fields:
        writer.add_token_list(fields["tokens"])
    writer.add_tensor("blk.0.attn_norm.weight", np.ones(7, np.float32))
    quantisation = gguf.GGMLQuantizationType[kind]
    for name, matrix in matrices.items():
        values = matrix.float().numpy()
        if kind != "F32":
            values = gguf.quantize(values, quantisation)
        writer.add_tensor(name, values, raw_dtype=quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_each_family_from_one_file_and_from_shards(name: str, tmp_path: Path) -> None:
    model = tiny_model(name)
    model.save_pretrained(tmp_path / "single")
    files = save_sharded(model, tmp_path / "sharded")
    for folder in ("single", "sharded"):
        for matrix in MATRICES:
            found = read_embedding(tmp_path / folder, matrix)
            assert_equal(found.tensor, live(model, matrix))
            assert (found.tied, found.vocab_size, found.dtype) == (is_tied(model), None, "float32")
    assert found.file == files[found.name]
    alone = read_embedding(tmp_path / "single" / "model.safetensors")
    assert_equal(alone.tensor, live(model, "input"))


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_each_family_from_gguf(name: str, tmp_path: Path) -> None:
    """Of the file, whatever the family: no converter and no other reader is asked."""
    model = tiny_model(name)
    matrices = {"token_embd.weight": live(model, "input")}
    if not is_tied(model):
        matrices["output.weight"] = live(model, "output")
    write_gguf(tmp_path / "model.gguf", matrices, tokens=list(VOCABULARY))
    for matrix in MATRICES:
        found = read_embedding(tmp_path / "model.gguf", matrix)
        assert_equal(found.tensor, live(model, matrix))
        assert (found.tied, found.vocab_size) == (is_tied(model), len(VOCABULARY))
        expected = embedding_deviation(live(model, matrix)).epsilon
        assert embedding_deviation(found.tensor).epsilon == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q6_K"])
def test_gguf_types(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    width = 256 if kind.endswith("K") else BLOCK
    matrix = noise(70, width)
    # Q6_K has no quantiser in Python: any bytes will do, once the scales are small numbers.
    path = tmp_path / "model.gguf"
    if kind == "Q6_K":
        packed = np.random.default_rng(0).integers(0, 256, (70, 210), dtype=np.uint8)
        packed[:, 208:] = np.float16(0.01).reshape(1).view(np.uint8)
        writer = gguf.GGUFWriter(path, "unknown")
        writer.add_tensor("token_embd.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q6_K)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    else:
        write_gguf(path, {"token_embd.weight": matrix}, kind)
    (stored,) = [t for t in gguf.GGUFReader(path).tensors if t.name == "token_embd.weight"]
    expected = torch.tensor(gguf.dequantize(stored.data, stored.tensor_type))
    monkeypatch.setattr("toolkit.lm.weights.gguf._ROWS_AT_ONCE", 32)  # 70 rows are no multiple
    found = read_embedding(path)
    assert_equal(found.tensor.float(), expected)
    names = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    assert found.dtype == names.get(kind, kind)
    header = path.stat().st_size - stored.n_bytes
    assert found.bytes_read <= header + stored.n_bytes + 4 * 2**13


def test_gguf_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = noise(8, BLOCK)
    write_gguf(tmp_path / "plain.gguf", {"token_embd.weight": matrix})
    write_gguf(tmp_path / "packed.gguf", {"token_embd.weight": matrix}, "Q8_0")
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert_equal(read_embedding(tmp_path / "plain.gguf").tensor, matrix)
    with pytest.raises(ValueError, match=r"package gguf .* got none; pip install .*\[gguf\]"):
        read_embedding(tmp_path / "packed.gguf")


def test_gguf_tokens_that_fill_rows_up_are_not_counted(tmp_path: Path) -> None:
    """Converters name them after their place; a real token of such a name stays."""
    tokens = ["a", "[PAD1]", "b", "[PAD3]", "[PAD4]"]
    write_gguf(tmp_path / "model.gguf", {"token_embd.weight": noise(5, 4)}, tokens=tokens)
    assert read_embedding(tmp_path / "model.gguf").vocab_size == 3


def test_a_tied_checkpoint_may_hold_either_name_or_both(tmp_path: Path) -> None:
    matrix = noise(9, 4)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    for stored in (["wte.weight"], ["lm_head.weight"], ["wte.weight", "lm_head.weight"]):
        save_file({name: matrix.clone() for name in stored}, tmp_path / "model.safetensors")
        for asked in MATRICES:
            found = read_embedding(tmp_path, asked)
            assert_equal(found.tensor, matrix)
            assert found.tied is True
            assert found.name in stored


def test_an_unknown_head_is_not_taken_for_the_input(tmp_path: Path) -> None:
    """OLMo's first weights: the head is ``ff_out``, and the configuration has a key of its own."""
    matrices = {
        "model.transformer.wte.weight": torch.zeros(6, 4),
        "model.transformer.ff_out.weight": torch.ones(6, 4),
        "model.transformer.blocks.0.ff_out.weight": torch.ones(6, 4),
        "model.transformer.ln_f.weight": torch.ones(4),
    }
    save_file(matrices, tmp_path / "model.safetensors")
    configs: tuple[dict[str, Any], ...] = (
        {"model_type": "hf_olmo", "weight_tying": False},
        {"model_type": "hf_olmo"},
        # The family's default is no statement of these weights.
        {"model_type": "gpt2"},
    )
    for config, tied in zip(configs, (False, None, None), strict=True):
        (tmp_path / "config.json").write_text(json.dumps(config))
        found = read_embedding(tmp_path)
        assert (found.name, found.tied) == ("model.transformer.wte.weight", tied)
        match = (
            r"expected an output .* it could be model\.transformer\.ff_out\.weight: .*--tensor\)$"
        )
        with pytest.raises(ValueError, match=match):
            read_embedding(tmp_path, "output")
    named = read_embedding(tmp_path, "output", tensor_name="model.transformer.ff_out.weight")
    assert_equal(named.tensor, torch.ones(6, 4))


def test_an_encoder_without_a_head_is_not_tied(tmp_path: Path) -> None:
    name = "embeddings.word_embeddings.weight"
    save_file({name: noise(7, 4)}, tmp_path / "model.safetensors")
    config = {"model_type": "bert", "architectures": ["BertModel"], "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_embedding(tmp_path).tied is None
    with pytest.raises(ValueError, match="got none, and no file shows that the model is tied"):
        read_embedding(tmp_path, "output")


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [("nomic-bert", {}), ("qwen3", {"qwen3.pooling_type": 3}), ("t5encoder", {})],
)
def test_an_encoder_in_gguf_is_not_tied(
    architecture: str, fields: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in fields.items():
        writer.add_uint32(name, value)
    writer.add_tensor("token_embd.weight", noise(5, 4).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert read_embedding(path).tied is None
    with pytest.raises(ValueError, match="no file shows that the model is tied"):
        read_embedding(path, "output")


def test_a_missing_part_leaves_the_tie_unknown(tmp_path: Path) -> None:
    model = tiny_model("llama")
    files = save_sharded(model, tmp_path)
    (tmp_path / files["lm_head.weight"]).unlink()
    found = read_embedding(tmp_path)
    assert_equal(found.tensor, live(model, "input"))
    assert found.tied is None
    with pytest.raises(ValueError, match=rf"expected the file {files['lm_head.weight']} in "):
        read_embedding(tmp_path, "output")


@pytest.mark.parametrize("index", [True, False], ids=["with its index", "without"])
@pytest.mark.parametrize("kind", ["safetensors", "pickled"])
def test_one_part_stands_for_its_set(kind: str, index: bool, tmp_path: Path) -> None:
    model = tiny_model("llama")
    files = save_sharded(model, tmp_path)
    if kind == "pickled":
        for name in set(files.values()):
            part = tmp_path / _pickled_name(name)
            torch.save(load_file(tmp_path / name), part)
            (tmp_path / name).unlink()
        files = {tensor: _pickled_name(name) for tensor, name in files.items()}
        (tmp_path / "model.safetensors.index.json").unlink()
        text = json.dumps({"weight_map": files})
        (tmp_path / "pytorch_model.bin.index.json").write_text(text)
    if not index:
        next(tmp_path.glob("*.index.json")).unlink()
    for part_name in sorted(set(files.values())):
        for matrix, name in (("input", "model.embed_tokens.weight"), ("output", "lm_head.weight")):
            found = read_embedding(tmp_path / part_name, matrix, allow_pickle=True)  # type: ignore[arg-type]
            assert_equal(found.tensor, live(model, matrix))  # type: ignore[arg-type]
            assert (found.file, found.tied) == (files[name], False)
    last = max(files.values())
    gone = files["lm_head.weight"]
    (tmp_path / gone).unlink()
    other = last if gone != last else min(files.values())
    if index:
        # The index tells where each tensor lies: a matrix that is there can be read.
        assert read_embedding(tmp_path / other, allow_pickle=True).tied is None
    match = rf"expected the file {gone}" if index else rf"expected all \d+ parts .* named {gone}; f"
    with pytest.raises(ValueError, match=match):
        read_embedding(tmp_path / other, "output", allow_pickle=True)


def _pickled_name(name: str) -> str:
    return name.replace("model", "pytorch_model").replace("safetensors", "bin")


def write_split_gguf(folder: Path, matrices: dict[str, Tensor]) -> list[Path]:
    """One file for each matrix, as llama.cpp splits them: only the first has the tokens."""
    paths = [
        folder / f"m-{number:05}-of-{len(matrices):05}.gguf"
        for number in range(1, len(matrices) + 1)
    ]
    for number, (path, name) in enumerate(zip(paths, matrices, strict=True)):
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", len(matrices))
        writer.add_int32("split.tensors.count", len(matrices))
        if number == 0:
            writer.add_token_list(["a", "b", "c"])
        writer.add_tensor(name, matrices[name].numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths


def test_one_part_of_a_split_gguf_stands_for_all(tmp_path: Path) -> None:
    matrices = {"token_embd.weight": noise(8, 4), "output.weight": 1 + noise(8, 4)}
    paths = write_split_gguf(tmp_path, matrices)
    for source in (*paths, tmp_path):
        for matrix, name, path in zip(MATRICES, matrices, paths, strict=True):
            found = read_embedding(source, matrix)
            assert_equal(found.tensor, matrices[name])
            assert (found.tied, found.vocab_size, found.file) == (False, 3, path.name)
    for path, other in zip(paths, reversed(paths), strict=True):
        path.rename(tmp_path / "away")
        with pytest.raises(ValueError, match=rf"all 2 parts .*, got none named {path.name}; fetch"):
            read_embedding(other)
        (tmp_path / "away").rename(path)
    renamed = paths[0].rename(tmp_path / "part.gguf")
    with pytest.raises(
        ValueError,
        match=r"all 2 parts of a split GGUF .* got 1 by the name of .*part\.gguf; rename",
    ):
        read_embedding(renamed)
    shutil.copy(paths[1], paths[0])
    with pytest.raises(ValueError, match=r"got output.weight in m-00001\S+ and m-00002"):
        read_embedding(paths[1])
    other_set = tmp_path / "other"
    other_set.mkdir()
    parts = write_split_gguf(other_set, {name: noise(8, 4) for name in ("a", "b", "c")})
    shutil.copy(parts[0], parts[1])
    content = parts[0].read_bytes()
    parts[1].write_bytes(content.replace(b"\1\0\0\0\0\0\0\0a", b"\1\0\0\0\0\0\0\0b"))
    with pytest.raises(
        ValueError, match=r"parts 0 to 2 of one split .* got the parts 0, 0, 2 with 3"
    ):
        read_embedding(parts[2])


def test_what_is_stored_is_believed_before_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": true}')
    matrices = {"wte.weight": torch.zeros(5000, 2), "lm_head.weight": torch.zeros(5000, 2)}
    matrices["lm_head.weight"][4999] = 1
    save_file(matrices, tmp_path / "model.safetensors")
    for matrix, name in zip(MATRICES, matrices, strict=True):
        found = read_embedding(tmp_path, matrix)
        assert_equal(found.tensor, matrices[name])
        assert found.tied is False
    for other in (torch.zeros(5000, 2, dtype=torch.float16), torch.zeros(5001, 2)):
        matrices["lm_head.weight"] = other
        save_file(matrices, tmp_path / "model.safetensors")
        assert read_embedding(tmp_path).tied is False


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (None, None),
        ({"tie_word_embeddings": False}, False),
        ({"text_config": {"tie_word_embeddings": False}}, False),
        ({"text_config": {"tie_word_embeddings": True}, "tie_word_embeddings": False}, True),
        ({"llm_config": {"model_type": "qwen2"}, "model_type": "internvl"}, False),
        ({"model_type": "gpt2"}, True),
        ({"model_type": "llama"}, False),
        ({}, None),
        ({"model_type": "olmoid", "weight_tying": False}, False),
        ({"model_type": "olmoid"}, None),
        ({"model_type": "bert", "architectures": ["BertModel"]}, None),
        ({"tie_word_embeddings": True, "architectures": ["Gemma3TextModel"]}, None),
        ({"model_type": "gpt2", "architectures": ["GPT2ForSequenceClassification"]}, None),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, True),
        ({"architectures": ["InternVLChatModel"], "llm_config": {"model_type": "gemma2"}}, True),
        ({"model_type": ["gpt2"], "architectures": "x", "tie_word_embeddings": "no"}, None),
        ([], None),
    ],
    ids=[
        "none", "whole", "text", "either", "text family", "gpt2", "llama", "silent", "other key",
        "unknown family", "encoder", "bare model", "classifier", "head", "chat", "other types",
        "no object",
    ],
)  # fmt: skip
def test_ties_by_configuration(config: dict[str, Any] | None, expected: bool | None) -> None:
    assert ties_matrices(config) is expected


def test_family_defaults_are_those_of_transformers() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    known = [
        family for family in (*UNTIED_BY_DEFAULT, *TIED_BY_DEFAULT) if family in CONFIG_MAPPING
    ]
    assert len(known) > 80
    for family in known:
        default = CONFIG_MAPPING[family]().get_text_config().tie_word_embeddings
        assert default is ties_matrices({"model_type": family}), family


@pytest.mark.parametrize(
    ("names", "matrix", "expected"),
    [
        (["model.embed_tokens.weight"], "input", 0),
        (["language_model.model.embed_tokens.weight"], "input", 0),
        (["model.language_model.embed_tokens.weight"], "input", 0),
        (["model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight"], "input", 0),
        (["student._orig_mod.gpt_neox.embed_in.weight"], "input", 0),
        (["transformer.wpe.weight", "transformer.wte.weight"], "input", 1),
        (["wte.weight"], "input", 0),
        (["transformer.word_embeddings_layernorm.weight", "word_embeddings.weight"], "input", 1),
        (["model.layers.61.embed_tokens.weight", "model.embed_tokens.weight"], "input", 1),
        (["base_model.model.model.embed_tokens.weight"], "input", 0),
        (["embed_out.weight"], "output", 0),
        (["model.lm_head.weight"], "output", 0),
        (["layers.0.attention.output.weight", "output.weight"], "output", 1),
        (["encoder.attention.output.weight", "lm_head.bias", "lm_head.weight"], "output", 2),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else str(value),
)
def test_known_names(names: list[str], matrix: Matrix, expected: int, tmp_path: Path) -> None:
    save_file({name: noise(5, 3) for name in names}, tmp_path / "model.safetensors")
    assert read_embedding(tmp_path, matrix).name == names[expected]


def test_only_the_matrix_is_read_of_a_large_file(tmp_path: Path) -> None:
    """The other shards are not there at all, and of this one only header and matrix are read."""
    model = tiny_model("llama")
    files = save_sharded(model, tmp_path)
    holder = files["lm_head.weight"]
    for file in set(files.values()) - {holder, files["model.embed_tokens.weight"]}:
        (tmp_path / file).unlink()
    tensors = load_file(tmp_path / holder)
    save_file({"a": torch.zeros(1000, 1000), **tensors}, tmp_path / holder)
    found = read_embedding(tmp_path, "output")
    assert_equal(found.tensor, live(model, "output"))
    assert found.bytes_read < 2 * found.tensor.nbytes + 2**16 < 100_000


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counted by Linux only")
def test_the_count_is_that_of_the_system(tmp_path: Path) -> None:
    save_file(
        {"a": torch.zeros(3000, 1000), "wte.weight": torch.ones(500, 1000)},
        tmp_path / "model.safetensors",
    )
    read_embedding(tmp_path)
    counts = [_bytes_by_system()]
    found = read_embedding(tmp_path)
    counts.append(_bytes_by_system())
    own = 2000  # reading the count itself
    assert 2_000_000 <= found.bytes_read <= counts[1] - counts[0] <= found.bytes_read + own


def _bytes_by_system() -> int:
    text = Path("/proc/self/io").read_text()
    return int(text.partition("rchar: ")[2].split()[0])


def test_dtypes_are_kept(tmp_path: Path) -> None:
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        matrix = noise(6, 4).to(dtype)
        save_file({"wte.weight": matrix}, tmp_path / "model.safetensors")
        found = read_embedding(tmp_path)
        assert_equal(found.tensor, matrix)
        assert found.dtype == str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "old format"])
def test_pickles_when_allowed(legacy: bool, tmp_path: Path) -> None:
    model = tiny_model("gpt2")
    model.config.save_pretrained(tmp_path)
    path = tmp_path / "pytorch_model.bin"
    torch.save(model.state_dict(), path, _use_new_zipfile_serialization=not legacy)
    for source in (tmp_path, path):
        with pytest.raises(
            ValueError, match=r"expected safetensors, got the pickled .*\.bin; conv"
        ):
            read_embedding(source)
        for matrix in MATRICES:
            found = read_embedding(source, matrix, allow_pickle=True)
            assert_equal(found.tensor, live(model, matrix))
            assert found.tied is True
    path.rename(tmp_path / "part.bin")
    (tmp_path / "pytorch_model.bin.index.json").write_text(
        json.dumps({"weight_map": dict.fromkeys(model.state_dict(), "part.bin")})
    )
    assert_equal(read_embedding(tmp_path, allow_pickle=True).tensor, live(model, "input"))


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_whole_file_counts_before_an_index(name: str, tmp_path: Path) -> None:
    """As in transformers: saving a model once more leaves the index of its earlier parts."""
    model = tiny_model("llama")
    model.config.save_pretrained(tmp_path)
    (tmp_path / f"{name}.index.json").write_text(
        json.dumps({"weight_map": {"model.embed_tokens.weight": "gone"}})
    )
    if name.endswith("bin"):
        torch.save(model.state_dict(), tmp_path / name)
    else:
        save_file(model.state_dict(), tmp_path / name)
    for matrix in MATRICES:
        found = read_embedding(tmp_path, matrix, allow_pickle=True)
        assert (found.file, found.tied) == (name, False)
        assert_equal(found.tensor, live(model, matrix))


@pytest.mark.parametrize(
    ("index", "match"),
    [
        ({"weight_map": {"wte.weight": "missing.bin"}}, r"expected the file missing\.bin in "),
        ({"weight_map": {"wte.weight": "a.bin"}}, r"expected wte\.weight in .*/a\.bin, got none"),
        (
            {"weight_map": {"wte.weight": "cut.bin"}},
            r"got .*/cut\.bin, which is another or damaged",
        ),
        ([], "expected a weight_map in"),
    ],
    ids=["missing file", "missing tensor", "cut", "no index"],
)
def test_pickles_in_shards(index: object, match: str, tmp_path: Path) -> None:
    torch.save({"b": torch.ones(2)}, tmp_path / "a.bin")
    (tmp_path / "cut.bin").write_bytes((tmp_path / "a.bin").read_bytes()[:300])
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=match) as caught:
        read_embedding(tmp_path, allow_pickle=True)
    assert "\n" not in str(caught.value)


class Malicious:
    """Touches a file when it is unpickled without care."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.victim}",)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "old format"])
@pytest.mark.parametrize("file", ["pytorch_model.bin", "last.ckpt"])
def test_a_pickle_that_runs_code_is_refused(file: str, legacy: bool, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    content = {"wte.weight": torch.ones(4, 4), "extra": Malicious(victim)}
    torch.save(content, tmp_path / file, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(ValueError, match=r"asks for \S*system; refused, nothing in it was run"):
        read_embedding(tmp_path / file, allow_pickle=True)
    assert not victim.exists()
    torch.load(tmp_path / file, weights_only=False)
    assert victim.exists()  # it would have run


def test_lightning_checkpoint(tmp_path: Path) -> None:
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters({"size": 3})
            self.network = tiny_model("llama")

    module = Module()
    trainer = L.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    trainer.strategy.connect(module)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    for matrix in MATRICES:
        found = read_embedding(tmp_path / "last.ckpt", matrix)
        assert_equal(found.tensor, live(module.network, matrix))
        assert (found.tied, found.vocab_size) == (False, None)
        assert found.bytes_read <= found.tensor.nbytes + 2 * 16 * 4  # and a first row of each
    module.network = tiny_model("gpt2")
    trainer.save_checkpoint(tmp_path / "tied.ckpt")
    assert read_embedding(tmp_path / "tied.ckpt").tied is True


def test_two_models_in_one_checkpoint_are_named(tmp_path: Path) -> None:
    state = {"student.wte.weight": torch.ones(4, 4), "teacher.wte.weight": torch.zeros(4, 4)}
    torch.save({"state_dict": state}, tmp_path / "last.ckpt")
    match = r"expected one input embedding in .*, got student\.wte\.weight, teacher\.wte\.weight; "
    with pytest.raises(ValueError, match=match):
        read_embedding(tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match=r"expected the tensor wte\.weight in .*, got 2 tensors"):
        read_embedding(tmp_path / "last.ckpt", tensor_name="wte.weight")
    found = read_embedding(tmp_path / "last.ckpt", tensor_name="teacher.wte.weight")
    assert_equal(found.tensor, torch.zeros(4, 4))
    state["teacher.wte.weight"] = state["student.wte.weight"]
    torch.save({"state_dict": state}, tmp_path / "same.ckpt")
    assert_equal(read_embedding(tmp_path / "same.ckpt").tensor, torch.ones(4, 4))


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
def test_vocabulary_of_the_tokenizer(fast: bool, tmp_path: Path) -> None:
    tiny_model("gpt2").save_pretrained(tmp_path)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<extra>"])
    tokenizer.save_pretrained(tmp_path)
    if not fast:
        content = json.loads((tmp_path / "tokenizer.json").read_text())
        (tmp_path / "tokenizer.json").unlink()
        (tmp_path / "vocab.json").write_text(json.dumps(content["model"]["vocab"]))
        (tmp_path / "added_tokens.json").write_text(json.dumps({"<extra>": len(VOCABULARY)}))
    assert read_embedding(tmp_path).vocab_size == len(tokenizer) == len(VOCABULARY) + 1


def _vocabulary(index: str) -> str:
    return f'{{"model": {{"vocab": {{"a": 7, "b": {index}}}}}}}'


def test_vocabularies_of_other_forms(tmp_path: Path) -> None:
    tiny_model("gpt2").save_pretrained(tmp_path)
    unigram = {
        "model": {"vocab": [["a", -1.0], ["b", -2.0]]},
        "added_tokens": [{"id": 7, "content": "c"}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(unigram))
    assert read_embedding(tmp_path).vocab_size == 8
    for content in ('{"model": {}}', *(_vocabulary(index) for index in ("-1", "1.5", "true"))):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(ValueError, match=r"a tokenizer with token ids in .*tokenizer\.json"):
            read_embedding(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1}')
    config = {"added_tokens_decoder": {"4": {"content": "<end>"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert read_embedding(tmp_path).vocab_size == 5


@pytest.mark.parametrize(
    ("tensors", "matrix", "match"),
    [
        ({"wte.weight": torch.ones(4, 4, dtype=torch.int8)}, "input", "packed I8 in wte.weight"),
        ({"lm_head.qweight": torch.ones(4, 4).int(), "wte.weight": torch.ones(4, 4)}, "output",
         "got packed integers in lm_head.qweight; give the unquantised model"),
        ({"wte.weight": torch.ones(4)}, "input", r"a matrix under wte.weight in .*shape \(4,\)"),
        ({"wte.weight": torch.ones(4, 4)}, "output", "and the configuration says that"),
        ({"a.weight": torch.ones(2), "b.weight": torch.ones(2)}, "input",
         r"input embedding \(embed_tokens, .*\) in .*, got 2 tensors: a.weight, b.weight; give"),
        ({"wte.weight": torch.ones(4, 4)}, "both", "matrix: expected 'input' or 'output', got 'b"),
    ],
    ids=["int8", "packed", "vector", "no head", "no name", "no matrix"],
)  # fmt: skip
def test_what_cannot_be_measured_is_named(
    tensors: dict[str, Tensor], matrix: Any, match: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt_neox"}')
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=match) as caught:
        read_embedding(tmp_path, matrix)
    assert "\n" not in str(caught.value)


def test_packed_weights_in_a_pickle(tmp_path: Path) -> None:
    torch.save({"wte.weight": torch.ones(4, 4).char()}, tmp_path / "model.ckpt")
    with pytest.raises(ValueError, match=r"packed int8 in wte\.weight"):
        read_embedding(tmp_path / "model.ckpt")
    torch.save({"wte.weight": torch.ones(4, 4)}, tmp_path / "model.ckpt")
    with pytest.raises(
        ValueError, match="got none, and no file shows that the model is tied; give the w"
    ):
        read_embedding(tmp_path / "model.ckpt", "output")
    assert read_embedding(tmp_path / "model.ckpt").tied is None


def _without(tmp_path: Path, name: str) -> None:
    files = save_sharded(tiny_model("llama"), tmp_path)
    (tmp_path / files[name]).unlink()


def _damaged_index(content: Any) -> Callable[[Path], None]:
    def prepare(path: Path) -> None:
        (path / "model.safetensors.index.json").write_text(content)

    return prepare


def _cut(path: Path, size: int) -> None:
    save_file({"wte.weight": torch.ones(400, 40)}, path / "model.safetensors")
    with (path / "model.safetensors").open("r+b") as file:
        file.truncate(size)


def _cut_gguf(path: Path) -> None:
    write_gguf(path / "model.gguf", {"token_embd.weight": torch.ones(400, 40)})
    with (path / "model.gguf").open("r+b") as file:
        file.truncate(50_000)


def _two_files(path: Path) -> None:
    for name in ("first.safetensors", "second.safetensors"):
        save_file({"wte.weight": torch.ones(4, 4)}, path / name)


def _wrong_shard(path: Path) -> None:
    files = save_sharded(tiny_model("llama"), path)
    shutil.copy(path / files["model.norm.weight"], path / files["model.embed_tokens.weight"])


@pytest.mark.parametrize(
    ("prepare", "match"),
    [
        (lambda path: _without(path, "model.embed_tokens.weight"), r"expected the file model-0000"),
        (_wrong_shard, "the index says that it holds model.embed_tokens.weight"),
        (_damaged_index("{"), r"expected JSON in .*index\.json"),
        (_damaged_index("[]"), r"expected a weight_map in .*index\.json, got none"),
        (_damaged_index('{"weight_map": {"wte.weight": "../x"}}'),
         r"a plain file name in .*json, got '\.\./x'"),
        (lambda path: _cut(path, 10_000), "it ends inside wte.weight; fetch it again"),
        (lambda path: _cut(path, 30), "its header of 72 bytes ends beyond the file; fetch"),
        (lambda path: _cut(path, 4), "it has no safetensors header"),
        (_cut_gguf, r"a GGUF file of version 2 or 3, got .*m\S+: it ends inside token_embd.weight"),
        (lambda path: (path / "m.gguf").write_bytes(b"GGUF"), "expected a GGUF file of version 2"),
        (lambda path: (path / "m.gguf").write_bytes(b"text"), "it does not begin with GGUF"),
        (lambda path: (path / "m.gguf").write_bytes(b"GGUF" + bytes(20)), "its version is 0"),
        (_two_files, "one weight file in .*, got first.safetensors, second.safetensors; name one"),
        (lambda path: None, "expected model.safetensors or its index in .*, got neither"),
    ],
    ids=[
        "missing shard", "wrong shard", "broken index", "no index", "path in index", "cut data",
        "cut header", "cut length", "cut gguf", "short gguf", "no gguf", "old gguf", "two files",
        "empty",
    ],
)  # fmt: skip
def test_damage_is_named(prepare: Callable[[Path], object], match: str, tmp_path: Path) -> None:
    prepare(tmp_path)
    with pytest.raises(ValueError, match=match) as caught:
        read_embedding(tmp_path)
    assert "\n" not in str(caught.value)


def test_files_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(ValueError, match=r"a folder or a file of \.safetensors, .*notes\.txt"):
        read_embedding(tmp_path / "notes.txt")
    (tmp_path / "last.ckpt").write_text("nothing")
    with pytest.raises(
        ValueError, match=r"expected a file of torch\.save, got .*last\.ckpt, which"
    ):
        read_embedding(tmp_path / "last.ckpt")
    torch.save([1, 2], tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match=r"expected named tensors in .*, got none"):
        read_embedding(tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match="revision: expected none for a local path, got 'main'"):
        read_embedding(tmp_path, revision="main")


def test_a_folder_with_one_unusual_file(tmp_path: Path) -> None:
    save_file({"wte.weight": torch.ones(NUM_ROWS, 4)}, tmp_path / "consolidated.safetensors")
    assert read_embedding(tmp_path).file == "consolidated.safetensors"


def _entry(**fields: Any) -> dict[str, Any]:
    return {"wte.weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16], **fields}}


@pytest.mark.parametrize(
    ("header", "match"),
    [
        ([], "its safetensors header is a list, no object"),
        ("[" * 100_000, r"its safetensors header cannot be read \(maximum recursion"),
        ('{"a": ', r"its safetensors header cannot be read \(Expecting value"),
        ('{"a": 1, "a": 1}', r"its safetensors header cannot be read \(a occurs tw"),
        ({"wte.weight": 3}, "wte.weight: dtype is no text"),
        ({"a\nb": 3}, r"'a\\nb': dtype is no text"),
        (_entry(dtype=3), "wte.weight: dtype is no text"),
        (_entry(shape=[2.0, 2]), "wte.weight: shape is no list of sizes"),
        (_entry(shape=[True, 4]), "wte.weight: shape is no list of sizes"),
        (_entry(shape=[-2, -2]), "wte.weight: shape is no list of sizes"),
        (_entry(shape={}), "wte.weight: shape is no list of sizes"),
        (_entry(data_offsets=[0]), "wte.weight: data_offsets are no two rising numbers"),
        (_entry(data_offsets=[16, 0]), "wte.weight: data_offsets are no two rising numbers"),
        (_entry(data_offsets=[-16, 0]), "wte.weight: data_offsets are no two rising numbers"),
        (_entry(data_offsets=[0, "16"]), "wte.weight: data_offsets are no two rising numbers"),
        (_entry(shape=[2**40, 2**40]), "wte.weight: shape and dtype do not fill data_offsets"),
        (_entry(shape=[2**40, 1], data_offsets=[0, 2**42]), "it ends inside wte.weight"),
        (_entry(data_offsets=[4, 20]), "wte.weight: data_offsets leave a hole or overlap"),
        (_entry(shape=[2, 1], data_offsets=[0, 8]), "8 bytes after the last tensor belong to n"),
        (_entry() | {"b": _entry()["wte.weight"]}, "b: data_offsets leave a hole or overlap"),
    ],
    ids=str,
)
def test_each_field_of_a_safetensors_header(header: object, match: str, tmp_path: Path) -> None:
    text = header if isinstance(header, str) else json.dumps(header)
    content = len(text).to_bytes(8, "little") + text.encode() + bytes(16)
    (tmp_path / "model.safetensors").write_bytes(content)
    expected = rf"expected a whole safetensors file, got .*/model\.safetensors: {match}.*; fetch it"
    with pytest.raises(ValueError, match=expected) as caught:
        read_embedding(tmp_path)
    assert "\n" not in str(caught.value)


def _words(*values: int | bytes) -> bytes:
    """Numbers of 8 bytes, bytes as they are."""
    return b"".join(v if isinstance(v, bytes) else v.to_bytes(8, "little") for v in values)


def _field(name: bytes, kind: int, value: bytes) -> bytes:
    return _words(len(name), name) + kind.to_bytes(4, "little") + value


def _tensor(name: bytes, *dims: int, kind: int = 0, offset: int = 0) -> bytes:
    small = [number.to_bytes(4, "little") for number in (len(dims), kind)]
    return _words(len(name), name, small[0], *dims, small[1], offset)


U32 = 4
MATRIX = _tensor(b"token_embd.weight", 2, 2)
ARRAY_OF_ARRAYS = (9).to_bytes(4, "little") + _words(1)


@pytest.mark.parametrize(
    ("num_tensors", "num_fields", "content", "match"),
    [
        (2**60, 0, b"", "the number of tensors is 1152921504606846976, more than the remaining"),
        (1, 2**60, MATRIX, "the number of fields is 1152921504606846976, more than the rem"),
        (1, 1, _field(b"a", 8, _words(2**62, b"x")), "the length of a is 4611686018427387904, mor"),
        (1, 1, _field(b"a", 99, b"0" * 8), "a has a value of type 99"),
        (1, 1, _field(b"a", 9, ARRAY_OF_ARRAYS * 9), "a has a value of type 9 in arrays"),
        (1, 1, _field(b"a", 9, _words(b"\4\0\0\0", 2**61)), "the length of a is 23058430092136939"),
        (1, 1, _field(b"\xff", U32, b"0000"), "the name of field 0 is no UTF-8"),
        (1, 2, _field(b"a", U32, b"0000") * 2, "the field a occurs twice"),
        (1, 1, _field(b"general.alignment", U32, bytes(4)), "general.alignment is no power of two"),
        (1, 1, _field(b"general.alignment", 8, _words(1, b"x")), "general.alignment is no power"),
        (1, 0, _tensor(b"a", *[1] * 9), "the tensor a has 9 dimensions"),
        (1, 0, _tensor(b"a\nb", 2, 2), r"the name of tensor 0 is 'a\\nb'"),
        (1, 0, _tensor(b"a", 2**40, 2**40), "it ends inside a"),
        (1, 0, _tensor(b"a", 2, 2, offset=2**62), "the tensor a has offset 4611686018427387904, n"),
        (1, 0, _tensor(b"a", 3, 2, kind=8), "the tensor a: rows of 3 are not whole blocks of 32"),
        (2, 0, _tensor(b"a", 2, 2) * 2, "the tensor a occurs twice"),
        (2, 0, _tensor(b"a", 2, 2) + _tensor(b"b", 2, 2), "the tensor b has offset 0, not 32"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_each_field_of_a_gguf_header(
    num_tensors: int, num_fields: int, content: bytes, match: str, tmp_path: Path
) -> None:
    start = _words(b"GGUF\3\0\0\0", num_tensors, num_fields)
    (tmp_path / "model.gguf").write_bytes(start + content + bytes(80))
    with pytest.raises(ValueError, match=rf"a GGUF file .*, got .*model.gguf: .*{match}") as caught:
        read_embedding(tmp_path)
    assert "\n" not in str(caught.value)


def test_fields_of_gguf_that_are_no_numbers(tmp_path: Path) -> None:
    """Types that no reader here unpacks, and tokens that are none."""
    start = _words(b"GGUF\3\0\0\0", 1, 0)
    for kind, rows in ((24, 2), (99, 2)):
        content = start + _tensor(b"token_embd.weight", 2, rows, kind=kind)
        (tmp_path / "model.gguf").write_bytes(content + bytes(80))
        with pytest.raises(ValueError, match=rf"got packed numbers of type {kind} in token_embd"):
            read_embedding(tmp_path)
    tokens = _field(b"tokenizer.ggml.tokens", 9, _words(b"\4\0\0\0", 1, b"1234"))
    content = _words(b"GGUF\3\0\0\0", 1, 1) + tokens + MATRIX
    (tmp_path / "model.gguf").write_bytes(content + bytes(80))
    with pytest.raises(
        ValueError, match=r"a list of texts in .*: tokenizer\.ggml\.tokens, got oth"
    ):
        read_embedding(tmp_path)


def test_sizes_of_blocks_are_those_of_the_package() -> None:
    known = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {kind: BLOCKS.get(kind) for kind in known} == known


def flipped(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["last.ckpt", "pytorch_model.bin"])
def test_a_flipped_bit_is_found_by_the_checksums(file: str, tmp_path: Path) -> None:
    matrix = noise(50, 8)
    state = {"wte.weight": matrix, "other.weight": 1 + noise(9, 5)}
    torch.save(state if file.endswith("bin") else {"state_dict": state}, tmp_path / file)
    whole = (tmp_path / file).read_bytes()
    raw = matrix.numpy().tobytes()
    flipped(tmp_path / file, whole.index(raw) + len(raw) // 2)
    match = rf"got .*{file}, which is damaged: the values of wte\.weight do not fit their checksum"
    with pytest.raises(ValueError, match=match):
        read_embedding(tmp_path / file, allow_pickle=True)
    (tmp_path / file).write_bytes(whole)
    flipped(tmp_path / file, whole.index(b"wte.weight"))
    with pytest.raises(ValueError, match=r"which is damaged: Bad CRC-32 for file '\w*/data\.pkl'"):
        read_embedding(tmp_path / file, allow_pickle=True)
    # Of what is not read nothing is said.
    (tmp_path / file).write_bytes(whole)
    flipped(tmp_path / file, whole.index((1 + noise(9, 5)).numpy().tobytes()))
    assert_equal(read_embedding(tmp_path / file, allow_pickle=True).tensor, matrix)


def test_a_zip_file_whose_end_is_damaged(tmp_path: Path) -> None:
    """Python's own question whether it is one raises an error of its own."""
    torch.save({"wte.weight": torch.ones(2, 2)}, tmp_path / "last.ckpt")
    content = (tmp_path / "last.ckpt").read_bytes()
    at = content.index(b"PK\6\7") + 16
    (tmp_path / "last.ckpt").write_bytes(content[:at] + b"0" + content[at + 1 :])
    with pytest.raises(ValueError, match=r"got .*last\.ckpt, which is damaged: zipfiles that span"):
        read_embedding(tmp_path / "last.ckpt")


def test_files_without_checksums_are_read(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"wte.weight": noise(5, 4)}, tmp_path / "last.ckpt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert_equal(read_embedding(tmp_path / "last.ckpt").tensor, noise(5, 4))


def test_a_pickled_tensor_larger_than_its_values(tmp_path: Path) -> None:
    torch.save({"wte.weight": torch.zeros(1, 1).expand(2**20, 2**20)}, tmp_path / "last.ckpt")
    with pytest.raises(
        ValueError, match=r"expected 4398046511104 bytes of wte\.weight in .*, got f"
    ):
        read_embedding(tmp_path / "last.ckpt")
    torch.save({"wte.weight": torch.ones(2, 2, device="meta")}, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match=r"expected 16 bytes of wte\.weight in .*, got fewer"):
        read_embedding(tmp_path / "last.ckpt")
    torch.save({"wte.weight": torch.eye(3).to_sparse()}, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match=r"packed float32 in wte\.weight"):
        read_embedding(tmp_path / "last.ckpt")
