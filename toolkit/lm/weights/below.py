"""Models in the subfolders of a folder without weights."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from toolkit.functional._checks import shown_list
from toolkit.lm.weights import pickled as _pickled
from toolkit.lm.weights import safetensors as _safetensors

_DEEPEST = 5
_MOST_FOLDERS = 2000
_SHOWN = 3
_NAMES = frozenset({_safetensors.SINGLE, _safetensors.INDEX, _pickled.SINGLE, _pickled.INDEX})
_SUFFIXES = (".gguf", ".ckpt")


def check_models_below(folder: Path) -> None:
    """Raise a ValueError that lists the models in subfolders, if there are any.

    Args:
        folder: A folder that holds no weights itself, such as the folder of a run.

    Raises:
        ValueError: If subfolders hold models or, without such subfolders, single weight files.
    """
    folders = islice(_folders(folder), _MOST_FOLDERS)
    listed = [(path, names) for path, names in folders if path != folder or _single(names)]
    found = [path for path, names in listed if _NAMES & set(names)]
    found = found or [path / name for path, names in listed for name in _single(names)]
    if found:
        raise ValueError(
            f"source: expected weights in {folder}, got none, but {len(found)} below: "
            f"{shown_list(found, _SHOWN)}; give some of these"
        )


def _folders(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield each folder with the names of its files, sorted by name; skip hidden folders."""
    depth = len(folder.parts)
    for name, folders, files in os.walk(folder):
        path = Path(name)
        deep = len(path.parts) - depth >= _DEEPEST
        folders[:] = [] if deep else sorted(child for child in folders if not child.startswith("."))
        yield path, sorted(files)


def _single(names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(_SUFFIXES) and not name.startswith(".")]
