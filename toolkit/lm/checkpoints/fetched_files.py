"""List of the files that a walk has downloaded into the Hub's cache: only these may be deleted.

The list is on disk and is written before a download begins, so that it is complete even after the
walk was killed.
"""

import importlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from toolkit.atomic import write_atomically


class FetchedFiles:
    """Files that a walk has downloaded, by the folder of their checkpoint in the Hub's cache.

    Args:
        record: File of the list.
    """

    def __init__(self, record: Path) -> None:
        self._record = record
        self._names: dict[str, list[str]] = {}
        if record.exists():
            self._names = _read(record)

    @property
    def folders(self) -> list[Path]:
        """Folders with downloaded files, the earliest download first."""
        return [Path(folder) for folder in self._names]

    def size(self) -> int:
        """Return the size of all files in bytes; a file with several names counts once."""
        files = (Path(folder, name) for folder, names in self._names.items() for name in names)
        sizes = {path.resolve(): path.stat().st_size for path in files if path.exists()}
        return sum(sizes.values())

    def add(self, paths: Iterable[Path]) -> None:
        """Add files to the list before their download."""
        for path in paths:
            names = self._names.setdefault(str(path.parent), [])
            if path.name not in names:
                names.append(path.name)
        self._write()

    def drop(self, folder: Path) -> None:
        """Delete the files of one checkpoint, except files that another revision shares."""
        for name in self._names.get(str(folder), ()):
            _remove(folder / name)
        if folder.is_dir() and not any(folder.iterdir()):
            _remove_revision(folder)
        self._names.pop(str(folder), None)
        self._write()

    def _write(self) -> None:
        write_atomically(self._record, json.dumps(self._names, indent=1).encode())


def _read(record: Path) -> dict[str, list[str]]:
    """Return the list; leave out folders that are not snapshots of this cache, for safety."""
    constants: Any = importlib.import_module("huggingface_hub.constants")
    cache = Path(constants.HF_HUB_CACHE)
    names: dict[str, list[str]] = json.loads(record.read_bytes())
    return {
        folder: [file for file in files if file not in {"", ".."} and Path(file).name == file]
        for folder, files in names.items()
        if Path(folder).parent.name == "snapshots"
        and Path(folder).parent.parent.parent == cache
        and ".." not in Path(folder).parts
        # A link may lead out of the cache.
        and Path(folder).resolve().is_relative_to(cache.resolve())
    }


def _remove(path: Path) -> None:
    """Delete a file of a revision, and its content unless another revision shares it.

    Content outside the repository in the cache, to which a link of the user may lead, stays.
    """
    if not path.is_symlink():
        path.unlink(missing_ok=True)
        return
    blob = path.resolve()
    path.unlink()
    others = (other.resolve() for other in path.parent.parent.rglob("*") if other.is_symlink())
    inside = blob.is_relative_to(path.parent.parent.parent.resolve())
    if inside and blob not in others:
        blob.unlink(missing_ok=True)


def _remove_revision(folder: Path) -> None:
    folder.rmdir()
    references = folder.parent.parent / "refs"
    for reference in sorted(references.rglob("*")):
        if reference.is_file() and reference.read_text().strip() == folder.name:
            reference.unlink()
