"""Small valid weight files of each kind, and what may be done to their bytes."""

import json
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import torch
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

WRITTEN, READ = "model.embed_tokens.weight", "lm_head.weight"
_EXTREMES = (0, 1, 2**7, 2**31 - 1, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


class Sample(NamedTuple):
    """A model's files, one of which is to be damaged.

    Attributes:
        source: What is read: the folder, or a file in it.
        file: The file that is damaged.
        content: Its bytes while it is whole.
        header: How many of them, from the first, are worth damaging.
    """

    source: Path
    file: Path
    content: bytes
    header: int


def matrices() -> dict[str, Tensor]:
    """The two matrices, each value in them another one."""
    values = torch.arange(2 * 6 * 32, dtype=torch.float32).reshape(2, 6, 32) / 7
    return {WRITTEN: values[0].clone(), READ: values[1].clone()}


def safetensors_file(folder: Path) -> Sample:
    """One file with both matrices and a vector."""
    file = folder / "model.safetensors"
    save_file({**matrices(), "model.norm.weight": torch.ones(32)}, file, {"format": "pt"})
    content = file.read_bytes()
    return Sample(file, file, content, 8 + int.from_bytes(content[:8], "little"))


def gguf_file(folder: Path) -> Sample:
    """One file with both matrices, one of them quantised, fields of all kinds, and tokens."""
    file = folder / "model.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_uint32("llama.block_count", 1)
    writer.add_float32("llama.scale", 0.5)
    writer.add_bool("llama.flag", True)
    writer.add_array("llama.numbers", [1, 2, 3])
    writer.add_token_list(["a", "b", "c"])
    written, read = matrices().values()
    writer.add_tensor("token_embd.weight", written.numpy())
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("output.weight", gguf.quantize(read.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    content = file.read_bytes()
    return Sample(file, file, content, len(content) - written.nbytes - 6 * 34)


def zip_checkpoint(folder: Path) -> Sample:
    """A file of ``torch.save``, every byte of which is worth damaging."""
    file = folder / "last.ckpt"
    torch.save({"state_dict": matrices(), "epoch": 3, "loops": {"a": [1, 2.5, "b"]}}, file)
    content = file.read_bytes()
    return Sample(file, file, content, len(content))


def shard_index(folder: Path) -> Sample:
    """The index of two shards."""
    parts = {name: f"model-{i:05}-of-00002.safetensors" for i, name in enumerate(matrices(), 1)}
    for name, part in parts.items():
        save_file({name: matrices()[name]}, folder / part)
    file = folder / "model.safetensors.index.json"
    file.write_text(json.dumps({"metadata": {"total_size": 1536}, "weight_map": parts}))
    return Sample(folder, file, file.read_bytes(), file.stat().st_size)


def configuration(folder: Path) -> Sample:
    """What tells of a tie, beside a model's weights."""
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "text_config": {}}
    return _beside_weights(folder, "config.json", {**config, "tie_word_embeddings": False})


def tokenizer(folder: Path) -> Sample:
    """What tells how many rows count, beside a model's weights."""
    content = {
        "model": {"vocab": {"a": 0, "b": 1}},
        "added_tokens": [{"id": 2, "content": "<end>"}],
    }
    return _beside_weights(folder, "tokenizer.json", content)


def _beside_weights(folder: Path, name: str, content: dict[str, Any]) -> Sample:
    save_file(matrices(), folder / "model.safetensors")
    file = folder / name
    file.write_text(json.dumps(content))
    return Sample(folder, file, file.read_bytes(), file.stat().st_size)


def with_pickle(content: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The zip file with another pickle in it, all checksums right."""
    target = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as whole, zipfile.ZipFile(target, "w") as file:
        for record in whole.infolist():
            raw = whole.read(record)
            file.writestr(
                record.filename, change(raw) if record.filename.endswith("data.pkl") else raw
            )
    return target.getvalue()


def damages(length: int) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    """One to six changes: what is done, where, and a number that says how."""
    one = st.tuples(
        st.sampled_from(list(_CHANGES)), st.integers(0, max(length - 1, 0)), st.integers(0, 255)
    )
    return st.lists(one, min_size=1, max_size=6)


def damaged(content: bytes, changes: list[tuple[str, int, int]]) -> bytes:
    """The bytes after the changes."""
    for kind, place, number in changes:
        at = min(place, len(content))
        content = _CHANGES[kind](content[:at], content[at:], number)
    return content


# Each gets what stands before the place, what stands from it on, and the number.
_CHANGES: dict[str, Callable[[bytes, bytes, int], bytes]] = {
    "set": lambda before, after, number: before + bytes([number]) + after[1:],
    "flip": lambda before, after, number: (
        before + bytes(byte ^ (1 << number % 8) for byte in after[:1]) + after[1:]
    ),
    "insert": lambda before, after, number: before + bytes([number]) * (number % 5 + 1) + after,
    "delete": lambda before, after, number: before + after[number % 9 + 1 :],
    "repeat": lambda before, after, number: before + after[:number] + after,
    "cut": lambda before, after, number: before,
    "number": lambda before, after, number: (
        before + _EXTREMES[number % len(_EXTREMES)].to_bytes(8, "little") + after[8:]
    ),
    "digit": lambda before, after, number: (
        before + b'0123456789-.eE[]{},:"\\'[number % 22 :][:1] + after[1:]
    ),
}


def json_values() -> st.SearchStrategy[Any]:
    """Any value that JSON can hold, sizes of tensors among them."""
    numbers = st.integers(-(2**70), 2**70) | st.sampled_from(_EXTREMES) | st.floats()
    names = st.sampled_from([WRITTEN, READ, "dtype", "shape", "data_offsets", "weight_map"])
    texts = st.text(max_size=5) | names | st.sampled_from(["F32", "BF16", "I8", "../x"])
    plain = st.none() | st.booleans() | numbers | texts
    return st.recursive(
        plain,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=8,
    )


def replaced(value: Any, path: list[int], new: Any) -> Any:
    """A JSON value with what lies at the end of a path of places replaced."""
    if not path or not isinstance(value, list | dict) or not value:
        return new
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[path[0] % len(keys)]
    changed = value.copy()
    changed[key] = replaced(value[key], path[1:], new)
    return changed
