"""AG News: short news texts of four classes, from the Hub or from a local file."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolkit.data._tables import (
    PUBLISHED_COLUMNS,
    Columns,
    file_columns,
    part_names,
    saved_parts,
)
from toolkit.data._text_files import BYTE_ORDER_MARK, check_no_nul, say_left_out, shown_counts
from toolkit.data.labelled_texts import LabelledTexts, Pool, draw_texts
from toolkit.functional._checks import shown_list

AG_NEWS = "fancyzhx/ag_news"
CLASSES = ("World", "Sports", "Business", "Sci/Tech")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_LAYOUTS = (PUBLISHED_COLUMNS, ("text", "label"))
# The header of a widespread copy of the published files.
_OTHER_NAMES = {"class index": "label"}
# Texts that other programs write into a cell without a value.
_MISSING = frozenset(("", "#N/A", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "\\N", "nan", "null"))
_NUM_SHOWN = 6


def load_ag_news(
    source: str = AG_NEWS,
    *,
    num_train: int = 4000,
    num_test: int = 1000,
    seed: int = 0,
) -> LabelledTexts:
    """Draw training and test texts from AG News.

    Title and description are joined by a space; a backslash, which stands for a line break, and
    every run of white space become one space. A source with a training and a test part (the Hub,
    or a saved folder) gives training texts from the first and test texts from the second; a single
    file gives both without overlap. A missing cell is not a text: rows without text or without a
    label are left out, and one warning gives their number.

    Args:
        source: Name on the Hub; CSV file of rows ``label,title,description``, or with a header of
            these names (or ``Class Index`` for ``label``) or of ``text`` and ``label``; Parquet
            file or folder saved by ``datasets`` with the same columns. Labels count from 0 or
            from 1.
        num_train: Number of training texts.
        num_test: Number of test texts.
        seed: Fixes the draw.

    Raises:
        ValueError: If the source cannot be read, is ambiguous or holds too few texts; the message
            says what to do.
    """
    train, test, described = _read(source)
    return draw_texts(
        train,
        test,
        classes=CLASSES,
        source=described,
        num_train=num_train,
        num_test=num_test,
        seed=seed,
    )


def _read(source: str) -> tuple[Pool, Pool | None, str]:
    """Return the training part, the test part if the source has one, and a label of the source."""
    path = Path(source).expanduser()
    if path.is_dir():
        parts = saved_parts(path)
    elif path.is_file():
        parts = {"train": file_columns(path)}
    elif _HUB_NAME.fullmatch(source) and path.suffix.lower() not in {".csv", ".parquet"}:
        parts = _hub_parts(source)
    else:
        raise ValueError(
            "source: expected a CSV or Parquet file, a saved folder or a name on the Hub, got "
            f"{source!r}, which does not exist"
        )
    pools = _pools(parts, source)
    if len(pools) == 1:
        return next(iter(pools.values())), None, f"{path.name}, both parts from this one"
    return pools["train"], pools["test"], str(path)


def _hub_parts(name: str) -> dict[str, Columns]:
    from datasets import load_dataset  # noqa: PLC0415

    try:
        loaded = load_dataset(name)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"source: expected {name} in the cache or a network to fetch it, got neither; run once "
            "with network and without HF_HUB_OFFLINE, or give the path of a local CSV file"
        ) from error
    return {part: loaded[part][:] for part in part_names(loaded, name)}


def _pools(parts: Mapping[str, Columns], source: str) -> dict[str, Pool]:
    """Return the texts of each part with labels from 0; refuse ambiguous labels."""
    left_out: Counter[str] = Counter()
    labelled = {name: _labelled(columns, source, left_out) for name, columns in parts.items()}
    if not all(labelled.values()):
        counts = shown_counts(left_out) or "no rows"
        raise ValueError(f"source: expected rows with text and label in {source}, got {counts}")
    labels = {label for pairs in labelled.values() for _, label in pairs}
    firsts = [first for first in (0, 1) if labels == set(range(first, first + len(CLASSES)))]
    if not firsts:
        found_labels = shown_list(sorted(map(str, labels)), _NUM_SHOWN)
        raise ValueError(
            f"source: expected each of the labels 0 to 3, or each of 1 to 4, in {source}, got "
            f"{found_labels}; which class is which? renumber them"
        )
    say_left_out(left_out, source)
    return {
        name: Pool([text for text, _ in pairs], [int(label) - firsts[0] for _, label in pairs])
        for name, pairs in labelled.items()
    }


def _labelled(columns: Columns, source: str, left_out: Counter[str]) -> list[tuple[str, int | str]]:
    """Return text and label of each row that has both."""
    named = _by_known_names(columns, source)
    labels = [_label(value) for value in named.pop("label")]
    parts = [
        [_cell(value, name, number, source) for number, value in enumerate(values, start=1)]
        for name, values in named.items()
    ]
    joined = [" ".join(cells) for cells in zip(*parts, strict=True)]
    left_out["byte order marks"] += sum(text.count(BYTE_ORDER_MARK) for text in joined)
    texts = [_even(text) for text in joined]
    left_out["rows without text"] += sum(not text for text in texts)
    pairs = [(text, label) for text, label in zip(texts, labels, strict=True) if text]
    left_out["rows without a label"] += sum(label is None for _, label in pairs)
    return [(text, label) for text, label in pairs if label is not None]


def _by_known_names(columns: Columns, source: str) -> dict[str, Sequence[Any]]:
    """Return the columns of the only layout that matches, in the order of the layout."""
    lowered = [name.strip().lower() for name in columns]
    names = [_OTHER_NAMES.get(name, name) for name in lowered]
    layouts = [layout for layout in _LAYOUTS if all(names.count(name) == 1 for name in layout)]
    if len(layouts) != 1:
        raise ValueError(
            f"source: expected columns text,label or label,title,description in {source}, got "
            f"{','.join(columns)}; which is the text? rename them"
        )
    values = dict(zip(names, columns.values(), strict=True))
    return {name: values[name] for name in layouts[0]}


def _label(value: object) -> int | str | None:
    """Return a label as an integer if possible, otherwise as text; None if it is missing."""
    if _is_missing(value):
        return None
    text = str(value).strip()
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else text


def _cell(value: object, column: str, row: int, source: str) -> str:
    """Return the text of a cell, empty if the cell is missing."""
    if _is_missing(value):
        return ""
    if isinstance(value, str):
        check_no_nul(value, f"row {row} of {source}")
        return value
    raise ValueError(
        f"source: expected text under {column} in {source}, got {value!r:.40} in row {row}"
    )


def _is_missing(value: object) -> bool:
    if isinstance(value, str):
        return value.strip() in _MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


def _even(text: str) -> str:
    return " ".join(text.replace(BYTE_ORDER_MARK, "").replace("\\", " ").split())
