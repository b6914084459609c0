"""What tests of ``python -m toolkit probe`` share."""

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from callbacks import TextSet
from tests.callbacks.events import scalars
from tests.callbacks.language import small_texts
from toolkit.cli import main

REPOSITORY = "someone/tiny-neox"


def probe(folder: Path, series: Any, *args: str, **settings: Any) -> int:
    """Run the command on a series with three quick callbacks; the run is called walk."""
    config = write_config(folder / "walk.yaml", small_texts(folder), series=series, **settings)
    return main(["probe", f"--config={config}", f"--root={folder / 'runs'}", *args])


def write_config(path: Path, texts: TextSet, **settings: Any) -> Path:
    draw = {"source": texts.source, "num_train": texts.num_train, "num_test": texts.num_test}
    callbacks = [
        {"class_path": "SubspacePGA", "init_args": {"k": 3, "num_null": 4, "texts": draw}},
        {"class_path": "LinearProbe", "init_args": {"texts": draw}},
        {"class_path": "EmbeddingDeviation"},
    ]
    config = {"callbacks": callbacks, "accelerator": "cpu", **settings}
    path.write_text(yaml.safe_dump(config))
    return path


def local(pattern: str, **options: Any) -> dict[str, Any]:
    return {"class_path": "LocalFolders", "init_args": {"pattern": pattern, **options}}


def published(**options: Any) -> dict[str, Any]:
    return {"class_path": "HubRevisions", "init_args": {"repo": REPOSITORY, **options}}


def curves_of(folder: Path) -> dict[str, list[tuple[int, str]]]:
    """Scalars in a form in which NaN equals itself."""
    return {
        tag: [(step, repr(value)) for step, value in points]
        for tag, points in scalars(folder).items()
    }
