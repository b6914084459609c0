"""Bad files, and a few good ones, for command lines to be tried with."""

from pathlib import Path

import torch


def prepare(folder: Path) -> None:
    """Write the files into a folder."""
    _write_yaml(folder)
    _write_checkpoints(folder)


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
