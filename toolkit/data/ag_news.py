"""AG News: short news texts of four classes, from the Hub or from a local file."""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolkit.data.labelled_texts import LabelledTexts, Pool, draw_texts

AG_NEWS = "fancyzhx/ag_news"
CLASSES = ("World", "Sports", "Business", "Sci/Tech")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
# The first label, by the columns: the published CSV files count from 1, the Hub's from 0.
_FIRST_LABELS = {("label", "title", "description"): 1, ("text", "label"): 0}


def load_ag_news(
    source: str = AG_NEWS,
    *,
    num_train: int = 4000,
    num_test: int = 1000,
    seed: int = 0,
) -> LabelledTexts:
    """Draw training and test texts from AG News.

    Title and description are joined by a space; a backslash, which stands for a line break, and
    every run of white space become one space. From the Hub, or from a saved folder that has both
    parts, the two are drawn from their own part; a single file serves for both, disjointly.

    Args:
        source: Name on the Hub; CSV file, either of rows ``label,title,description`` without a
            header and with labels from 1, or with a header ``text,label`` and labels from 0;
            Parquet file or folder saved by ``datasets`` with such columns.
        num_train: Number of training texts.
        num_test: Number of test texts.
        seed: Fixes the draw.

    Raises:
        ValueError: If the source cannot be had, is ambiguous or holds too few texts; the message
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
    """Training part, test part if it is another one, and what to call them."""
    path = Path(source)
    if path.is_dir():
        parts = _saved_parts(path)
    elif path.is_file():
        parts = {"train": _file_columns(path)}
    elif _HUB_NAME.fullmatch(source) and path.suffix.lower() not in {".csv", ".parquet"}:
        parts = _hub_parts(source)
    else:
        raise ValueError(
            "source: expected a CSV or Parquet file, a saved folder or a name on the Hub, got "
            f"{source!r}, which does not exist"
        )
    pools = {name: _pool(columns, source) for name, columns in parts.items()}
    if len(pools) == 1:
        return next(iter(pools.values())), None, f"{path.name}, both parts from this one"
    return pools["train"], pools["test"], source


def _hub_parts(name: str) -> dict[str, Mapping[str, Sequence[Any]]]:
    from datasets import load_dataset  # noqa: PLC0415

    try:
        loaded = load_dataset(name)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"source: expected {name} in the cache or a network to fetch it, got neither; run once "
            "with network and without HF_HUB_OFFLINE, or give the path of a local CSV file"
        ) from error
    return _parts(loaded, name)


def _saved_parts(folder: Path) -> dict[str, Mapping[str, Sequence[Any]]]:
    from datasets import load_from_disk  # noqa: PLC0415

    try:
        loaded = load_from_disk(str(folder))
    except OSError as error:
        raise ValueError(
            f"source: expected a folder written by datasets' save_to_disk, got {folder}; "
            "give a CSV or Parquet file, or such a folder"
        ) from error
    return _parts(loaded, str(folder)) if isinstance(loaded, dict) else {"train": loaded[:]}


def _parts(loaded: Mapping[str, Any], source: str) -> dict[str, Mapping[str, Sequence[Any]]]:
    if len(loaded) > 1 and not {"train", "test"} <= set(loaded):
        raise ValueError(
            f"source: expected parts named train and test, got {sorted(loaded)} in {source}; "
            "give a folder or file with one part"
        )
    names = ("train", "test") if len(loaded) > 1 else tuple(loaded)
    return {name: loaded[name][:] for name in names}


def _file_columns(path: Path) -> Mapping[str, Sequence[Any]]:
    readers: dict[str, Callable[[Path], Mapping[str, Sequence[Any]]]] = {
        ".csv": _csv_columns,
        ".parquet": _parquet_columns,
    }
    if path.suffix.lower() not in readers:
        raise ValueError(f"source: expected a .csv or .parquet file, got {path}; convert it")
    try:
        return readers[path.suffix.lower()](path)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"source: expected UTF-8 text in {path}, got {error}") from error


def _csv_columns(path: Path) -> dict[str, list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        rows = [row for row in csv.reader(lines) if row]
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if rows and not rows[0][0].strip().isdigit():
        rows = rows[1:]
    else:
        header = ["label", "title", "description"]
    uneven = next((row for row in rows if len(row) != len(header)), None)
    if uneven is not None:
        raise ValueError(
            f"source: expected rows of {','.join(header)} in {path}, got one with {len(uneven)} "
            "columns; give label,title,description without a header, or text,label with it"
        )
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def _parquet_columns(path: Path) -> dict[str, list[Any]]:
    from pyarrow import (  # type: ignore[import-untyped]  # noqa: PLC0415
        ArrowInvalid,
        parquet,
    )

    try:
        columns: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
    except ArrowInvalid as error:
        raise ValueError(f"source: expected a Parquet file, got {path}, which is none") from error
    return columns


def _pool(columns: Mapping[str, Sequence[Any]], source: str) -> Pool:
    """The texts, and labels from 0; anything that could be read in two ways is refused."""
    layouts = [names for names in _FIRST_LABELS if set(names) <= set(columns)]
    if len(layouts) != 1:
        raise ValueError(
            f"source: expected columns text,label or label,title,description in {source}, got "
            f"{','.join(columns)}; which is the text? rename them"
        )
    (layout,) = layouts
    first = _FIRST_LABELS[layout]
    wanted = range(first, first + len(CLASSES))
    labels = [str(label).strip() for label in columns["label"]]
    if set(labels) != {str(label) for label in wanted}:
        found = sorted(set(labels))
        shown = ", ".join(found[:6]) + (", ..." if len(found) > 6 else "")
        raise ValueError(
            f"source: expected each of the labels {wanted[0]} to {wanted[-1]} in {source}, as is "
            f"usual for columns {','.join(layout)}, got {shown or 'none'}; which class is which? "
            "renumber them"
        )
    parts = zip(*(columns[name] for name in layout if name != "label"), strict=True)
    texts = [" ".join(" ".join(map(str, part)).replace("\\", " ").split()) for part in parts]
    return Pool(texts, [int(label) - first for label in labels])
