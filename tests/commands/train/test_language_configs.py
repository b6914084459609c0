"""Every configuration that trains a language model runs through the command line, on tiny ones."""

import json
from pathlib import Path
from typing import Any

# Its first import sets environment variables, which must not look like a test's.
import lightning  # noqa: F401
import pytest
import yaml  # type: ignore[import-untyped]

from tests.callbacks.language import write_texts
from tests.data.tiny_corpus import write_folder
from tests.lm.listed_hub import save_revision
from toolkit.cli import main
from toolkit.runs.table import read_measurements

CONFIGS = [
    path
    for path in sorted((Path(__file__).parent.parent.parent.parent / "configs").glob("*.yaml"))
    if yaml.safe_load(path.read_text()).get("model", {}).get("class_path") == "LanguageModel"
]
TEXTS = {"num_train": 16, "num_test": 12}
METRICS = {
    "SubspacePGA": "pga",
    "LinearProbe": "probe",
    "EmbeddingDeviation": "epsilon",
    "Spectrum": "spectrum",
    "TwoNN": "two_nn",
    "UnembeddingOverlap": "unembedding",
}


def small(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The configuration with a model, a corpus and texts that are quick."""
    for callback in config["trainer"]["callbacks"]:
        arguments = callback.setdefault("init_args", {})
        if "texts" in arguments:
            arguments["texts"] = {**arguments["texts"], "source": str(write_texts(folder)), **TEXTS}
        if callback["class_path"] == "SubspacePGA":
            # They must be fewer than the texts.
            arguments.update(num_null=4, remove=1)
        if callback["class_path"] == "Spectrum":
            arguments["fit_range"] = [1, 8]
    model, data = config["model"]["init_args"], config["data"]["init_args"]
    corpus = {"source": str(write_folder(folder / "corpus")), "cache_dir": str(folder / "cache")}
    data |= {**corpus, "block_size": 16, "batch_size": 2, "held_out_fraction": 0.1}
    if "pretrained" in model:
        model["pretrained"] = data["tokenizer"] = str(save_revision(folder / "model", seed=0))
    else:
        data["vocab_size"] = 300
        model["config"] |= {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 16}
    config["trainer"] |= {"max_steps": 2, "val_check_interval": 1, "default_root_dir": str(folder)}
    return config


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_runs(path: Path, tmp_path: Path) -> None:
    config = small(yaml.safe_load(path.read_text()), tmp_path)
    names = [callback["class_path"] for callback in config["trainer"]["callbacks"]]
    file = tmp_path / path.name
    file.write_text(yaml.safe_dump(config))
    assert main(["fit", "-c", str(file), "--trainer.accelerator=cpu"]) == 0
    version = tmp_path / path.stem / "version_0"
    assert json.loads((version / "summary.json").read_text())["step"] == 2
    rows = read_measurements(version / "measurements.csv")
    assert {row.step for row in rows} == {0, 1, 2}
    wanted = {METRICS[name] for name in names if name in METRICS}
    assert {row.metric for row in rows} == wanted | {"capacity"}
    if "CheckpointSchedule" in names:
        folders = sorted(folder.name for folder in version.glob("checkpoints/hf/*"))
        assert [int(name.removeprefix("step-")) for name in folders] == [0, 1, 2]


def test_both_kinds_are_there() -> None:
    kinds = ["pretrained" in yaml.safe_load(p.read_text())["model"]["init_args"] for p in CONFIGS]
    assert set(kinds) == {True, False}
