"""Rows that a tokenizer reaches: the same by its files, by itself and in what is measured."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.lm.tiny_models import NUM_ROWS, VOCABULARY, tiny_model, tiny_tokenizer
from toolkit.commands.epsilon.measured import measure_model
from toolkit.lm.weights.stores import Folder
from toolkit.lm.weights.vocabulary import reached_rows, tokenizer_rows, vocabulary_size
from toolkit.measures import Subject

SIZE = len(VOCABULARY)


def saved(folder: Path, vocabulary: dict[str, int], **config: Any) -> Path:
    """Save the tiny model and its tokenizer, with more tokens and other settings."""
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        content = json.loads((folder / name).read_text())
        if name == "tokenizer.json":
            content["model"]["vocab"].update(vocabulary)
        else:
            content.update(config)
        (folder / name).write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("vocabulary", "config", "rows"),
    [
        ({}, {}, SIZE),
        ({"zebra": 29}, {}, 30),
        ({}, {"pad_token": "<pad>"}, SIZE + 1),
        ({}, {"pad_token": "<end>", "additional_special_tokens": ["<a>", "<end>"]}, SIZE + 1),
        ({}, {"extra_special_tokens": {"image_token": "<image>"}}, SIZE + 1),
        ({}, {"added_tokens_decoder": {str(SIZE): {"content": "<a>"}}}, SIZE + 1),
        ({f"[PAD{index}]": index for index in range(SIZE, NUM_ROWS)}, {}, SIZE),
        ({f"word{index}": index for index in range(SIZE, NUM_ROWS + 8)}, {}, NUM_ROWS + 8),
        ({f"word{index}": index for index in range(SIZE, NUM_ROWS)}, {"pad_token": "<pad>"},
         NUM_ROWS + 1),
    ],
    ids=[
        "plain", "gap", "padding token", "special tokens", "more special tokens", "added tokens",
        "tokens that fill rows up", "more than the rows", "a padding token beyond the rows",
    ],
)  # fmt: skip
def test_one_number(
    vocabulary: dict[str, int], config: dict[str, Any], rows: int, tmp_path: Path
) -> None:
    folder = saved(tmp_path, vocabulary, **config)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert vocabulary_size(Folder(folder)) == tokenizer_rows(tokenizer) == rows
    from_files, subject = measure_model(folder), Subject(tiny_model(), tokenizer)
    used = min(rows, NUM_ROWS)
    assert (from_files.rows_used, from_files.rows_stored) == (used, NUM_ROWS)
    assert {len(matrix) for matrix in subject.matrices.values()} == {used}
    assert len(Subject(tiny_model(), tokenizer, rows="all").matrices["input"]) == NUM_ROWS


def test_only_the_last_tokens_fill_up() -> None:
    assert reached_rows({0: "a", 1: "[PAD1]", 2: "b", 3: "[PAD3]", 4: "[PAD4]"}) == 3
    assert reached_rows({0: "a", 1: "[PAD0]"}) == 2
