"""A corpus of a few thousand tokens."""

from pathlib import Path
from typing import Any

import numpy as np

from toolkit.data import TextCorpus

WORDS = ("the", "cat", "sat", "on a", "mat", "while", "every", "other", "animal", "slept")


def write_folder(folder: Path, num_files: int = 40) -> Path:
    """Files that differ, of some hundred characters each."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number in range(num_files):
        text = " ".join(generator.choice(WORDS, size=60))
        (folder / f"{number:03d}.txt").write_text(f"{number}. {text}\n", encoding="utf-8")
    return folder


def tiny_corpus(source: Path, **options: Any) -> TextCorpus:
    defaults: dict[str, Any] = {
        "vocab_size": 300,
        "block_size": 16,
        "batch_size": 4,
        "held_out_fraction": 0.1,
        "cache_dir": str(source.parent / "cache"),
        "seed": 0,
    }
    return TextCorpus(str(source), **(defaults | options))
