"""Bad files, and a few good ones, for command lines to be tried with."""

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from tests.callbacks.language import write_texts
from tests.lm.tiny_models import tiny_model, tiny_tokenizer

_NAME = "gpt_neox.embed_in.weight"


def prepare(folder: Path) -> None:
    """Write the files into a folder."""
    _write_yaml(folder)
    _write_checkpoints(folder)
    _write_matrices(folder)
    _write_tables(folder)
    _write_weights(folder)
    _write_models(folder)


def _write_yaml(folder: Path) -> None:
    texts = {
        "list.yaml": "- a\n- b\n",
        "word.yaml": "word\n",
        "tabs.yaml": "trainer:\n\tmax_steps: 3\n",
        "broken.yaml": "trainer: {max_steps: 3\n",
        "unknown_key.yaml": "modle: x\n",
        "wrong_type.yaml": "trainer:\n  max_steps: many\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "binary.yaml").write_bytes(bytes(range(128, 256)))


def _write_checkpoints(folder: Path) -> None:
    (folder / "empty.ckpt").touch()
    (folder / "text.ckpt").write_text("no checkpoint\n")
    torch.save(5, folder / "number.ckpt")
    torch.save([1, 2], folder / "list.ckpt")
    torch.save({"global_step": 3}, folder / "no_state.ckpt")


def _write_matrices(folder: Path) -> None:
    matrices = {
        "vector": np.ones(5, np.float32),
        "cube": np.ones((2, 3, 4), np.float32),
        "one_row": np.ones((1, 4), np.float32),
        "zeros": np.zeros((6, 4), np.float32),
        "nan": np.full((6, 4), np.nan, np.float32),
        "complex": np.ones((6, 4), np.complex64),
        "strings": np.array([["a", "b"], ["c", "d"]]),
        "no_rows": np.ones((0, 4), np.float32),
        "no_columns": np.ones((4, 0), np.float32),
        "integers": np.ones((6, 4), np.int64),
    }
    for name, matrix in matrices.items():
        np.save(folder / f"{name}.npy", matrix)
    np.save(folder / "object.npy", np.array([[{}]], object), allow_pickle=True)
    (folder / "text.npy").write_text("no matrix\n")
    (folder / "empty.npy").touch()
    (folder / "text.pt").write_text("no matrix\n")
    torch.save({"a": torch.ones(3, 3)}, folder / "dict.pt")
    torch.save(tiny_tokenizer, folder / "code.pt")


def _write_tables(folder: Path) -> None:
    write_texts(folder)
    header = "k,d,max_abs_cosine\n"
    texts = {
        "empty.csv": "",
        "no_rows.csv": header,
        "words.csv": f"{header}many,few,some\n",
        "negative.csv": f"{header}-5,4,0.5\n20,-4,0.5\n",
        "zero.csv": f"{header}0,0,0\n",
        "nan.csv": f"{header}20,4,nan\n40,4,inf\n",
        "short_line.csv": f"{header}20,4\n",
        "huge.csv": f"{header}{10**400},4,0.5\n",
        "one_packing.csv": f"{header}20,30,0.5\n",
        "packings.csv": f"{header}200,8,0.7\n400,8,0.75\n200,16,0.5\n400,16,0.55\n800,16,0.6\n",
        "four_texts.csv": "text,label\na cat,0\na dog,1\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "corpus.txt").write_text("the cat sat on the mat\n\n" * 200)
    (folder / "empty_folder").mkdir()
    (folder / "folder.png").mkdir()


def _write_weights(folder: Path) -> None:
    matrix = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    tensors = {
        "nan": torch.full((8, 4), torch.nan),
        "one_row": torch.ones(1, 4),
        "zeros": torch.zeros(8, 4),
        "vector": torch.ones(8),
        "integers": torch.ones(8, 4, dtype=torch.int64),
    }
    for name, tensor in tensors.items():
        save_file({_NAME: tensor}, folder / f"{name}.safetensors")
    save_file({"other": matrix}, folder / "no_tensor.safetensors")
    save_file({_NAME: matrix}, folder / "whole.safetensors")
    whole = (folder / "whole.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(whole[:-16])
    (folder / "huge_header.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    (folder / "text.safetensors").write_text("these are no weights, but a text\n")
    (folder / "text.gguf").write_text("these are no weights, but a text\n")
    (folder / "empty.safetensors").touch()
    (folder / "empty.gguf").touch()


def _write_models(folder: Path) -> None:
    for name, seed in (("model", 0), ("other", 1)):
        tiny_model(seed=seed).save_pretrained(folder / name)
        tiny_tokenizer().save_pretrained(folder / name)
    for name in ("bad_config", "no_weights", "bad_weights"):
        shutil.copytree(folder / "model", folder / name)
    (folder / "bad_config" / "config.json").write_text("{not json")
    (folder / "no_weights" / "model.safetensors").unlink()
    (folder / "bad_weights" / "model.safetensors").write_text("no weights at all, but a text\n")
    assert json.loads((folder / "model" / "config.json").read_text())["model_type"] == "gpt_neox"
