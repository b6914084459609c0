"""Every configuration in ``configs/`` runs through the command line, at a size for tests."""

import json
from pathlib import Path
from typing import Any

# Its first import sets environment variables, which must not look like a test's.
import lightning  # noqa: F401
import pytest
import yaml  # type: ignore[import-untyped]

from toolkit.cli import main

CONFIGS = sorted((Path(__file__).parent.parent.parent.parent / "configs").glob("*.yaml"))
TRAINER = {"max_steps": 4, "accelerator": "cpu", "devices": 1, "log_every_n_steps": 1}
# How a model and its data are made small, by the model's short name.
SMALL: dict[str, dict[str, dict[str, Any]]] = {
    "SuperpositionAutoencoder": {
        "model": {"num_features": 16, "widths": [2, 3, 4]},
        "data": {"num_features": 16, "batch_size": 8, "num_held_out": 2},
    },
    "VectorPacking": {"model": {"num_vectors": 12, "dim": 3}},
}


def read(path: Path) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(path.read_text())
    return config


def options(config: dict[str, Any]) -> list[str]:
    small = {"trainer": TRAINER, **SMALL[config["model"]["class_path"].rpartition(".")[2]]}
    return [
        f"--{group}.{name}={value}"
        for group, values in small.items()
        for name, value in values.items()
    ]


# Those of language models and of walks have tests of their own.
FITS = [p for p in CONFIGS if read(p).get("model", {}).get("class_path") in SMALL]


@pytest.mark.parametrize("path", FITS, ids=lambda path: path.stem)
def test_runs_and_means_what_it_says(path: Path, tmp_path: Path) -> None:
    config = read(path)
    root = f"--trainer.default_root_dir={tmp_path}"
    assert main(["fit", "-c", str(path), *options(config), root]) == 0
    version = tmp_path / path.stem / "version_0"
    assert json.loads((version / "summary.json").read_text())["step"] == TRAINER["max_steps"]
    saved = read(version / "config.yaml")
    for group, small in SMALL[config["model"]["class_path"]].items():
        arguments = {**config[group].get("init_args", {}), **small}
        kept = saved[group]["init_args"]
        frequencies = arguments.pop("frequencies", None)
        assert {name: kept[name] for name in arguments} == arguments
        if frequencies:
            assert kept["frequencies"]["class_path"].endswith(f".{frequencies['class_path']}")
            assert kept["frequencies"]["init_args"] == frequencies["init_args"]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_is_short_and_says_what_it_shows(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= 40
