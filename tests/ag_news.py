"""Where the AG News test part is, for tests that read it."""

import csv
import os
from pathlib import Path

import pytest

VARIABLE = "AG_NEWS_TEST_CSV"
DEFAULT = Path(__file__).parent.parent.parent / "shared" / "data" / "ag_news_test.csv"


def read_ag_news() -> tuple[list[str], list[int]]:
    """Texts (title and description) and labels 0..3; skips the test where the file is not there."""
    path = Path(os.environ.get(VARIABLE, DEFAULT))
    if not path.is_file():
        pytest.skip(f"no AG News test part at {path}; set {VARIABLE} to the path of its CSV file")
    with path.open(encoding="utf-8", newline="") as lines:
        rows = [(int(label), f"{title} {text}") for label, title, text in csv.reader(lines)]
    return [text for _, text in rows], [label - 1 for label, _ in rows]
