"""Every configuration of a walk runs through the command line, on tiny models."""

from pathlib import Path
from typing import Any

# Its first import sets environment variables, which must not look like a test's.
import lightning  # noqa: F401
import pytest
import yaml  # type: ignore[import-untyped]

from tests.callbacks.language import write_texts
from tests.lm.listed_hub import save_revision
from toolkit.cli import main
from toolkit.lm.checkpoints.hub import HubRevisions
from toolkit.lm.checkpoints.models import Models
from toolkit.runs.table import read_measurements

CONFIGS = [
    path
    for path in sorted((Path(__file__).parent.parent.parent.parent / "configs").glob("*.yaml"))
    if "series" in yaml.safe_load(path.read_text())
]
TEXTS = {"num_train": 16, "num_test": 10}


def small(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The configuration with texts and checkpoints that are quick."""
    texts = {"source": str(write_texts(folder)), **TEXTS}
    for callback in config["callbacks"]:
        arguments = callback.setdefault("init_args", {})
        if callback["class_path"] in {"SubspacePGA", "LinearProbe", "Spectrum", "TwoNN"}:
            arguments["texts"] = texts
        if callback["class_path"] == "SubspacePGA":
            # They must be fewer than the texts.
            arguments.update(num_null=4, remove=1)
        if callback["class_path"] == "Spectrum":
            arguments["fit_range"] = [1, 8]
    folders = [save_revision(folder / f"step-{step}", seed=step) for step in (0, 1)]
    if config["series"]["class_path"] == "Models":
        config["series"]["init_args"]["names"] = [str(one) for one in folders]
    else:
        pattern = {"pattern": f"{folder}/step-*", "name": "tiny"}
        config["series"] = {"class_path": "LocalFolders", "init_args": pattern}
    return config


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_runs(path: Path, tmp_path: Path) -> None:
    config = small(yaml.safe_load(path.read_text()), tmp_path)
    wanted = {callback["class_path"] for callback in config["callbacks"]}
    (tmp_path / path.name).write_text(yaml.safe_dump({**config, "accelerator": "cpu"}))
    assert main(["probe", f"--config={tmp_path / path.name}", f"--root={tmp_path / 'runs'}"]) == 0
    rows = read_measurements(tmp_path / "runs" / path.stem / "version_0" / "measurements.csv")
    assert len({(row.model, row.step) for row in rows}) == 2
    names = {"SubspacePGA": "pga", "LinearProbe": "probe", "EmbeddingDeviation": "epsilon"}
    names |= {"Spectrum": "spectrum", "TwoNN": "two_nn", "UnembeddingOverlap": "unembedding"}
    assert {names[name] for name in wanted} <= {row.metric for row in rows}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_names_a_series(path: Path) -> None:
    series = yaml.safe_load(path.read_text())["series"]
    kinds = {"HubRevisions": HubRevisions, "Models": Models}
    if series["class_path"] in kinds:
        kinds[series["class_path"]](**series["init_args"])
    assert path.read_text().startswith("# ")
