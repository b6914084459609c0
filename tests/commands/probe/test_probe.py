"""``python -m toolkit probe``: a walk over checkpoints, from listing to the table at its end."""

import io
import json
import os
import re
import shutil
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

# Its first import sets environment variables, which must not look like a test's.
import lightning as L
import pytest
import torch
import yaml  # type: ignore[import-untyped]
from huggingface_hub import constants
from lightning.pytorch.callbacks import Callback
from transformers import AutoModelForCausalLM

from tests.callbacks.events import images, scalars
from tests.callbacks.language import small_texts
from tests.commands.probe.probing import REPOSITORY, TOKENS, curves_of, local, probe, published
from tests.lm.fake_hub import commit_of, serve
from tests.lm.listed_hub import ListedHub, save_revision
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from toolkit.cli import main
from toolkit.commands.probe import walk
from toolkit.commands.probe.duplicates import matrix_hashes
from toolkit.data.batch_stream import FixedBatches
from toolkit.lm.checkpoints.lightning import LightningCheckpoints
from toolkit.lm.checkpoints.local import LocalFolders
from toolkit.lm.reading import token_losses
from toolkit.measure import measure
from toolkit.models import LanguageModel
from toolkit.runs.folder_lock import locked
from toolkit.runs.model_logger import model_folder
from toolkit.runs.provenance import matrix_hash, texts_hash, weights_hash
from toolkit.runs.table import MeasurementRow, MeasurementTable, read_measurements

STEPS = (0, 1, 8, 64)


class Walked(NamedTuple):
    """A walk that has come to its end."""

    folder: Path
    output: str
    warned: list[str]


@pytest.fixture(autouse=True)
def _no_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw nothing in tests about rows: figures would take a third of their time."""
    if request.function is not test_models_side_by_side:
        monkeypatch.setattr("callbacks._recorder._figure_boards", lambda loggers: [])
        monkeypatch.setattr("toolkit.commands.probe.report._heat_maps", lambda *_: {})


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four checkpoints, the second one with the weights of the first."""
    root = tmp_path_factory.mktemp("hf")
    for step in STEPS:
        save_revision(root / f"step-{step:04}", seed=0 if step == 1 else step)
    return root


@pytest.fixture(scope="module")
def walked(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Walked:
    """One walk over them, which several tests look at."""
    folder, output = tmp_path_factory.mktemp("walked"), io.StringIO()
    with redirect_stdout(output), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert probe(folder, local(f"{folders}/*", name="tiny")) == 0
    warned = [str(w.message) for w in caught if "weights" in str(w.message)]
    return Walked(folder, output.getvalue(), warned)


def rows_of(tmp_path: Path, version: int = 0) -> list[MeasurementRow]:
    return read_measurements(tmp_path / "runs" / "walk" / f"version_{version}" / "measurements.csv")


def values_at(rows: list[MeasurementRow], step: int, *metrics: str) -> dict[str, float]:
    return {
        f"{row.metric}/{row.quantity}/{row.layer}": row.value
        for row in rows
        if row.step == step and (not metrics or row.metric in metrics)
    }


def test_values_are_those_of_measure(walked: Walked) -> None:
    rows = rows_of(walked.folder)
    assert sorted({row.step for row in rows}) == list(STEPS)
    model, texts = tiny_model(seed=64), small_texts(walked.folder).load()
    metrics: dict[str, Any] = {"pga": {"k": 3, "num_null": 4}, "epsilon": {}, "probe": {}}
    wanted = measure(model, tiny_tokenizer(), texts, metrics=metrics, step=64)
    found = values_at(rows, 64, "pga", "epsilon", "capacity", "probe")
    assert found == pytest.approx(values_at(wanted, 64), rel=1e-6, nan_ok=True)
    assert {row.weights_hash for row in rows if row.step == 64} == {wanted[0].weights_hash}
    assert {(row.model, row.run, row.dtype) for row in rows} == {
        ("tiny", "walk/version_0", "float32")
    }
    assert "After step 64" in walked.output
    assert f"tensorboard --logdir {walked.folder}/runs/walk" in walked.output


def test_loss_is_the_mean_over_the_test_texts(walked: Walked) -> None:
    model, tokenizer = tiny_model(seed=8), tiny_tokenizer()
    total, count = 0.0, 0
    for text in small_texts(walked.folder).load().test_texts:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        logits = model(ids).logits[0, :-1].detach().double().log_softmax(-1)
        total -= float(logits.gather(1, ids[0, 1:, None]).sum())
        count += ids.shape[1] - 1
    loss = total / count
    found = values_at(rows_of(walked.folder), 8, "lm_val")
    assert found["lm_val/loss/"] == pytest.approx(loss, rel=1e-5)
    assert found["lm_val/perplexity/"] == pytest.approx(torch.tensor(loss).exp().item(), rel=1e-5)
    assert values_at(rows_of(walked.folder), 8, "checkpoint") == {
        "checkpoint/hidden_size/": 16,
        "checkpoint/num_parameters/": sum(p.numel() for p in model.parameters()),
    }


def test_loss_of_texts_that_no_callback_reads(
    folders: Path, walked: Walked, tmp_path: Path
) -> None:
    series = local(f"{folders}/step-0008", name="tiny")
    texts = f"--texts={json.dumps(asdict(small_texts(tmp_path, batch_size=5)))}"
    deviation = [{"class_path": "EmbeddingDeviation"}]
    assert probe(tmp_path, series, texts, callbacks=deviation) == 0
    alone = values_at(rows_of(tmp_path), 8, "lm_val")
    assert alone == pytest.approx(values_at(rows_of(walked.folder), 8, "lm_val"), rel=1e-6)
    curves = scalars(tmp_path / "runs/walk/version_0/tiny")
    ((step, loss),) = curves["lm_val/loss"]
    assert step == 8
    assert loss == pytest.approx(alone["lm_val/loss/"], rel=1e-6)


def test_the_loss_can_be_left_out(folders: Path, tmp_path: Path) -> None:
    series = local(f"{folders}/step-0008", name="tiny")
    assert probe(tmp_path, series, "--loss=false") == 0
    assert not [row for row in rows_of(tmp_path) if row.metric == "lm_val"]
    assert "pga/z/final" in scalars(tmp_path / "runs/walk/version_0/tiny")
    # With it the table is another one; a table from before there was the option has it.
    assert probe(tmp_path, series) == 0
    config = tmp_path / "runs/walk/version_1/config.yaml"
    config.write_text(config.read_text().replace("loss: true\n", ""))
    assert probe(tmp_path, series) == 0
    assert not (tmp_path / "runs/walk/version_2").exists()


def test_texts_are_read_once_for_loss_and_callbacks(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        pytest.fail("the texts are read again for the loss")

    monkeypatch.setattr(token_losses.LossMeter, "read", fail)
    assert probe(tmp_path, local(f"{folders}/step-0008", name="tiny")) == 0


def test_loss_on_batches_of_ones_own(folders: Path, tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    arguments = {"folder": str(tmp_path / "tokenizer")}
    data = {"class_path": "tests.commands.probe.probing.TokenBatches", "init_args": arguments}
    series = local(f"{folders}/step-0008", name="tiny")
    assert probe(tmp_path, series, data=data) == 0
    logits = tiny_model(seed=8)(TOKENS).logits[:, :-1].detach().double()
    wanted = torch.nn.functional.cross_entropy(logits.flatten(0, 1), TOKENS[:, 1:].flatten())
    loss = values_at(rows_of(tmp_path), 8, "lm_val")["lm_val/loss/"]
    assert loss == pytest.approx(float(wanted), rel=1e-5)
    (row,) = [row for row in rows_of(tmp_path) if row.quantity == "perplexity"]
    assert row.conditions["data"] == {"class": "TokenBatches", **arguments}


def test_batches_of_another_tokenizer_are_refused(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their ids are there, and mean other words."""
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    file = tmp_path / "tokenizer" / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    first, second = list(vocabulary)[5:7]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(content))
    data = {
        "class_path": "tests.commands.probe.probing.TokenBatches",
        "init_args": {"folder": str(file.parent)},
    }
    assert probe(tmp_path, local(f"{folders}/step-0008"), data=data) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: data: expected token ids of the checkpoint's own tokenizer")
    assert error.count("\n") == 1


def test_equal_weights_are_measured_warned_of_and_marked(walked: Walked) -> None:
    (warning,) = walked.warned
    assert warning.startswith("tiny, step 1 holds the same weights as step 0: such steps are")
    rows = rows_of(walked.folder)
    assert {row.step: row.value for row in rows if row.quantity == "duplicate_of_step"} == {1: 0}
    first, second = (
        {tag: repr(v) for tag, v in values_at(rows, step, "pga", "epsilon").items()}
        for step in (0, 1)
    )
    assert first == second
    curves = scalars(walked.folder / "runs/walk/version_0/tiny")
    assert curves["checkpoint/duplicate_of_step"] == [(1, 0)]
    assert "weights of an earlier step, no points of a curve: 1 (those of 0)\n" in walked.output


def test_several_equal_weights_are_one_warning(tmp_path: Path) -> None:
    for step in range(3):
        save_revision(tmp_path / "hf" / f"step-{step}", seed=0)
    with pytest.warns(UserWarning, match="step 1 holds the same weights as step 0") as caught:
        assert probe(tmp_path, local(f"{tmp_path}/hf/*")) == 0
    assert len([w for w in caught if "same weights" in str(w.message)]) == 1
    marks = [row.value for row in rows_of(tmp_path) if row.quantity == "duplicate_of_step"]
    assert marks == [0, 0]


def test_equal_matrices_are_named_though_other_weights_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Published series have steps with the embedding, or the unembedding, of another step."""
    for step, seed in ((0, 0), (1, 1), (2, 2), (3, 3), (4, 2)):
        save_revision(tmp_path / "hf" / f"step-{step}", seed=seed)
    replace_matrices(tmp_path / "hf" / "step-1", {"input": 0})
    replace_matrices(tmp_path / "hf" / "step-3", {"input": 2, "output": 0})
    with pytest.warns(UserWarning, match="holds the") as caught:
        assert probe(tmp_path, local(f"{tmp_path}/hf/*", name="tiny")) == 0
    matrices, weights = (str(one.message) for one in caught if "holds the" in str(one.message))
    assert matrices.startswith("tiny, step 1 holds the input matrix of step 0, while other weights")
    assert weights.startswith("tiny, step 4 holds the same weights as step 2: such steps")
    told = (
        "embedding matrices of an earlier step, other weights differ: "
        "1 (input of 0), 3 (output of 0, input of 2)\n"
    )
    assert told in capsys.readouterr().out
    hashes = {
        row.step: row.conditions["matrix_hashes"]
        for row in rows_of(tmp_path)
        if row.metric == "checkpoint"
    }
    model: Any = tiny_model(seed=2)
    assert (
        hashes[2]
        == hashes[4]
        == {
            "input": matrix_hash(model.get_input_embeddings().weight),
            "output": matrix_hash(model.get_output_embeddings().weight),
        }
    )
    assert hashes[3] == {"input": hashes[2]["input"], "output": hashes[0]["output"]}
    # Told again from the table, where everything is done.
    assert probe(tmp_path, local(f"{tmp_path}/hf/*", name="tiny")) == 0
    assert told in capsys.readouterr().out


def replace_matrices(folder: Path, seeds: dict[str, int]) -> None:
    """Give a saved model the embedding matrices of models with other seeds."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    for name, seed in seeds.items():
        other: Any = tiny_model(seed=seed)
        accessor = f"get_{name}_embeddings"
        getattr(model, accessor)().weight.data = getattr(other, accessor)().weight.data
    model.save_pretrained(folder)


def test_a_table_without_hashes_of_matrices_is_continued(tmp_path: Path) -> None:
    """Rows of earlier versions have none, and keep their places and hashes."""
    save_revision(tmp_path / "hf" / "step-0", seed=0)
    assert probe(tmp_path, local(f"{tmp_path}/hf/*", name="tiny")) == 0
    path = tmp_path / "runs/walk/version_0/measurements.csv"
    rows = rows_of(tmp_path)
    for row in rows:
        row.conditions.pop("matrix_hashes", None)
    path.unlink()
    MeasurementTable(path).append(rows)
    before = path.read_bytes()
    save_revision(tmp_path / "hf" / "step-1", seed=1)
    replace_matrices(tmp_path / "hf" / "step-1", {"input": 0})
    assert probe(tmp_path, local(f"{tmp_path}/hf/*", name="tiny")) == 0
    assert path.read_bytes().startswith(before)
    assert {row.step for row in rows_of(tmp_path)} == {0, 1}


def test_tied_matrices_are_one(tmp_path: Path) -> None:
    model: Any = tiny_model("gpt2")
    assert matrix_hashes(model) == {"input": matrix_hash(model.transformer.wte.weight)}


def test_curves_and_figures(walked: Walked) -> None:
    version = walked.folder / "runs/walk/version_0"
    curves = scalars(version / "tiny")
    assert {"pga/z/layer_03", "probe/accuracy/final", "epsilon/value/input", "lm_val/loss"} <= (
        curves.keys()
    )
    for tag in ("pga/z/final", "lm_val/loss", "lm_val/perplexity"):
        assert [step for step, _ in curves[tag]] == list(STEPS), tag
    assert images(version / "tiny")["pga/z_heat_map"] == list(STEPS)
    assert {path.name for path in (version / "figures/tiny").iterdir()} == {
        "pga_z.png",
        "probe_accuracy.png",
    }
    assert json.loads((version / "tiny/summary.json").read_text())["step"] == 64


@pytest.mark.filterwarnings("ignore:.*holds the same weights")
def test_what_is_done_is_not_done_again(
    folders: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert probe(tmp_path, local(f"{folders}/step-00*4", name="tiny")) == 0
    version = tmp_path / "runs/walk/version_0"
    before = (version / "measurements.csv").read_bytes()
    curves = curves_of(version / "tiny")
    with monkeypatch.context() as patched:
        patched.setattr(walk.Walk, "_measure_checkpoint", None)
        assert probe(tmp_path, local(f"{folders}/step-00*4", name="tiny")) == 0
    assert "After step 64" in capsys.readouterr().out
    assert (version / "measurements.csv").read_bytes() == before
    assert curves_of(version / "tiny") == curves
    # A longer series is measured into the same run, in the order in which it comes.
    assert probe(tmp_path, local(f"{folders}/*", name="tiny")) == 0
    assert (version / "measurements.csv").read_bytes().startswith(before)
    assert {row.step for row in rows_of(tmp_path)} == set(STEPS)
    assert sorted(step for step, _ in scalars(version / "tiny")["pga/z/final"]) == list(STEPS)
    # Another measurement is another version, and the first is found again.
    assert probe(tmp_path, local(f"{folders}/step-00*4", name="tiny"), "--dtype=bfloat16") == 0
    assert {row.dtype for row in rows_of(tmp_path, version=1)} == {"bfloat16"}
    assert probe(tmp_path, local(f"{folders}/*", name="tiny")) == 0
    assert not (tmp_path / "runs/walk/version_2").exists()


def test_a_second_walk_at_the_same_time_is_refused_and_leaves_no_row(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series = local(f"{folders}/step-0008", name="tiny")
    assert probe(tmp_path, series) == 0
    version = tmp_path / "runs/walk/version_0"
    before = {path: path.read_bytes() for path in version.rglob("*") if path.is_file()}
    child = os.fork()
    if child == 0:
        with locked(version):
            (tmp_path / "is_held").touch()
            time.sleep(60)
    try:
        while not (tmp_path / "is_held").exists():
            time.sleep(0.01)
        capsys.readouterr()
        assert probe(tmp_path, series) == 2
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    error = capsys.readouterr().err
    assert error.startswith(
        f"error: run: expected a folder to which no other process writes, got {version}"
    )
    assert f"process {child} on " in error
    assert error.count("\n") == 1
    (version / ".lock").unlink()
    assert {path: path.read_bytes() for path in version.rglob("*") if path.is_file()} == before


def test_a_table_that_two_walks_have_written_is_healed(folders: Path, tmp_path: Path) -> None:
    series = local(f"{folders}/step-0008", name="tiny")
    assert probe(tmp_path, series) == 0
    version = tmp_path / "runs/walk/version_0"
    path, curves = version / "measurements.csv", curves_of(version / "tiny")
    once = path.read_bytes()
    path.write_bytes(once + once[once.index(b"\n") + 1 :])
    (events,) = (version / "tiny").glob("events.out.tfevents.*")
    events.with_name(f"{events.name}.2").write_bytes(events.read_bytes())
    assert probe(tmp_path, series) == 0
    assert path.read_bytes() == once
    assert curves_of(version / "tiny") == curves


def test_a_walk_that_is_refused_leaves_no_folder(folders: Path, tmp_path: Path) -> None:
    broken = tmp_path / "hf" / "step-1"
    shutil.copytree(folders / "step-0008", broken)
    (broken / "model.safetensors").write_bytes(b"none")
    assert probe(tmp_path, local(f"{tmp_path}/hf/*", name="tiny")) == 2
    assert not (tmp_path / "runs").exists()
    # What has been measured before such an end stays.
    shutil.copytree(folders / "step-0000", tmp_path / "hf" / "step-0")
    assert probe(tmp_path, local(f"{tmp_path}/hf/*", name="tiny")) == 1
    assert {row.step for row in rows_of(tmp_path)} == {0}


def test_a_walk_is_one_process_in_a_batch_job_of_several_tasks(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {"NTASKS": "2", "JOB_ID": "1", "JOB_NAME": "walk", "PROCID": "0", "LOCALID": "0"}
    seen = []
    plain = L.Trainer.validate

    def validate(trainer: L.Trainer, *args: Any, **options: Any) -> Any:
        seen.append((trainer.world_size, signal.getsignal(signal.SIGUSR1)))
        return plain(trainer, *args, **options)

    with monkeypatch.context() as patched:
        for name, value in job.items():
            patched.setenv(f"SLURM_{name}", value)
        patched.setattr(L.Trainer, "validate", validate)
        assert probe(tmp_path, local(f"{folders}/step-0008", name="tiny")) == 0
    # SIGUSR1 would requeue the job.
    assert seen == [(1, signal.SIG_DFL)]
    assert {row.step for row in rows_of(tmp_path)} == {8}


@pytest.mark.parametrize("option", [[], ["--dry_run"]], ids=["walk", "dry run"])
def test_pickled_folders_are_refused_before_anything_is_measured(
    folders: Path, tmp_path: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folders / "step-0000", tmp_path / "hf" / "step-0")
    pickled = tmp_path / "hf" / "step-1"
    shutil.copytree(folders / "step-0008", pickled)
    (pickled / "model.safetensors").unlink()
    torch.save(tiny_model(seed=8).state_dict(), pickled / "pytorch_model.bin")
    assert probe(tmp_path, local(f"{tmp_path}/hf/*", name="tiny"), *option) == 2
    error = capsys.readouterr().err
    assert error == (
        f"error: checkpoint: expected safetensors in {pickled}, got pytorch_model.bin; convert "
        "them, name a GGUF file itself, or set allow_pickle\n"
    )
    assert not (tmp_path / "runs").exists()
    allowed = local(f"{tmp_path}/hf/*", name="tiny", allow_pickle=True)
    assert probe(tmp_path, allowed, "--dry_run") == 0


def saved_config(tmp_path: Path, version: int = 0) -> Path:
    return tmp_path / "runs" / "walk" / f"version_{version}" / "config.yaml"


class SeriesOfOnesOwn(LocalFolders):
    """A series of a user's."""


@pytest.mark.parametrize("several", [False, True], ids=["one", "list"])
def test_a_saved_walk_names_the_series_as_a_user_does(
    several: bool, folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series = local(f"{folders}/step-0008", name="tiny")
    own = {**series, "class_path": f"{__name__}.SeriesOfOnesOwn"}
    own["init_args"] = {"pattern": f"{folders}/step-0064", "name": "tiny"}
    assert probe(tmp_path, [series, own] if several else series) == 0
    saved = yaml.safe_load(saved_config(tmp_path).read_text())["series"]
    paths = [one["class_path"] for one in (saved if several else [saved])]
    assert paths == ["LocalFolders", own["class_path"]][: len(paths)]
    # The saved file starts the walk again, which finds everything measured.
    before = (saved_config(tmp_path).with_name("measurements.csv")).read_bytes()
    assert "measured in" in capsys.readouterr().out
    again = ["probe", f"--config={saved_config(tmp_path)}", f"--root={tmp_path / 'runs'}"]
    assert main([*again, "--run=walk"]) == 0
    assert "measured in" not in capsys.readouterr().out
    assert saved_config(tmp_path).with_name("measurements.csv").read_bytes() == before
    assert not saved_config(tmp_path, version=1).exists()


@pytest.mark.parametrize("module", ["local_checkpoints", "checkpoints.local"])
def test_a_walk_that_was_saved_under_long_names_is_continued(
    module: str, folders: Path, tmp_path: Path
) -> None:
    assert probe(tmp_path, local(f"{folders}/step-0008", name="tiny")) == 0
    path = saved_config(tmp_path)
    text = path.read_text()
    long = text.replace("class_path: LocalFolders", f"class_path: toolkit.lm.{module}.LocalFolders")
    assert long != text
    path.write_text(long)
    assert probe(tmp_path, local(f"{folders}/step-0*8*", name="tiny")) == 0
    assert probe(tmp_path, local(f"{folders}/*4", name="tiny")) == 0
    assert {row.step for row in rows_of(tmp_path)} == {8, 64}
    assert not saved_config(tmp_path, version=1).exists()
    assert "class_path: LocalFolders" in path.read_text()


def test_an_ambiguous_short_name_stays_long(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namesakes = {"mine.LocalFolders": LocalFolders, "ours.LocalFolders": LocalFolders}
    monkeypatch.setattr("toolkit.commands.probe.command.subclasses", lambda _: namesakes)
    assert probe(tmp_path, local(f"{folders}/step-0008", name="tiny")) == 0
    saved = yaml.safe_load(saved_config(tmp_path).read_text())
    assert saved["series"]["class_path"] == "toolkit.lm.checkpoints.local.LocalFolders"


def test_another_series_under_the_same_name_is_another_version(tmp_path: Path) -> None:
    for number, steps in enumerate(((1, 2), (1,))):
        for step in steps:
            save_revision(tmp_path / f"run_{number}" / f"step-{step}", seed=10 * number + step)
        assert probe(tmp_path, local(f"{tmp_path}/run_{number}/*", name="tiny")) == 0
        assert {row.step for row in rows_of(tmp_path, version=number)} == set(steps)
    # What is added to the first is measured into its own version.
    both = local([f"{tmp_path}/run_0/*", f"{tmp_path}/more/*"], name="tiny")
    save_revision(tmp_path / "more" / "step-3", seed=3)
    assert probe(tmp_path, both) == 0
    assert {row.step for row in rows_of(tmp_path, version=0)} == {1, 2, 3}


def test_a_walk_is_not_continued_with_other_texts(
    folders: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert probe(tmp_path, local(f"{folders}/step-0008", name="tiny")) == 0
    (path,) = (tmp_path / "runs").rglob("measurements.csv")
    before = path.read_bytes()
    (hashed,) = {
        row.conditions["texts"]["texts_hash"] for row in rows_of(tmp_path) if row.metric == "lm_val"
    }
    drawn = small_texts(tmp_path).load()
    assert hashed == texts_hash([*drawn.train_texts, *drawn.test_texts])
    # As a process that is started later sees the file.
    others = drawn._replace(test_texts=drawn.test_texts[::-1])
    monkeypatch.setattr("toolkit.measures.text_set._loaded", lambda *_: others)
    assert probe(tmp_path, local(f"{folders}/*", name="tiny")) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: texts: expected those that ")
    assert error.count("\n") == 1
    assert path.read_bytes() == before


def test_another_stage_of_a_repository_is_another_version(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revisions = {f"stage{n}-step{step}": folders / "step-0064" for n, step in ((1, 8), (2, 64))}
    with serve(ListedHub({REPOSITORY: revisions}, tmp_path), tmp_path / "cache", monkeypatch):
        for stage in (1, 2):
            assert probe(tmp_path, published(pattern=rf"stage{stage}-step(\d+)")) == 0
            (revision,) = {row.revision for row in rows_of(tmp_path, version=stage - 1)}
            assert revision.startswith(f"stage{stage}-")


@pytest.mark.filterwarnings("ignore:.*holds the same weights")
def test_a_mark_goes_with_the_weights_that_it_is_about(tmp_path: Path) -> None:
    for step in range(3):
        save_revision(tmp_path / "hf" / f"step-{step}", seed=0)
    marks = []
    for _ in range(2):
        assert probe(tmp_path, local(f"{tmp_path}/hf/*", name="tiny")) == 0
        rows = [row for row in rows_of(tmp_path) if row.quantity == "duplicate_of_step"]
        marks.append({row.step: row.value for row in rows})
        save_revision(tmp_path / "hf" / "step-0", seed=5)
    assert marks == [{1: 0, 2: 0}, {2: 1}]
    assert {row.step for row in rows_of(tmp_path)} == {0, 1, 2}


def test_a_second_callback_of_a_metric_keeps_its_prefix(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    callbacks = [
        {"class_path": "EmbeddingDeviation", "init_args": {"rows": rows}}
        for rows in ("tokenizer", "all")
    ]
    texts = f"--texts={json.dumps(asdict(small_texts(tmp_path)))}"
    lines = []
    for _ in range(2):
        series = local(f"{folders}/step-0064", name="tiny")
        assert probe(tmp_path, series, texts, callbacks=callbacks) == 0
        lines.append([x for x in capsys.readouterr().out.splitlines() if x.startswith("epsilon")])
    assert lines[0] == lines[1]
    assert len(set(lines[0])) == len(lines[0]) == 4


class Own(Callback):
    """A user's callback with attributes that measuring callbacks have, too."""

    def __init__(self) -> None:
        self.history = ["mine"]
        self.headline_columns = self.heat_maps = self.layers = 5
        self.texts, self.has_warned, self.latest, self.prefix = "mine", True, None, 3


def test_attributes_of_a_user_s_own_callback_are_left_alone(tmp_path: Path) -> None:
    save_revision(tmp_path / "hf" / "step-0008", seed=8)
    config = {
        "series": local(f"{tmp_path}/hf/*", name="tiny"),
        "callbacks": [
            {"class_path": f"{__name__}.Own"},
            {"class_path": "EmbeddingDeviation"},
        ],
        "loss": False,
        "accelerator": "cpu",
    }
    (tmp_path / "walk.yaml").write_text(yaml.safe_dump(config))
    args = ["probe", f"--config={tmp_path}/walk.yaml", f"--root={tmp_path}/runs"]
    texts = small_texts(tmp_path)
    args += [f"--texts.source={texts.source}", f"--texts.num_train={texts.num_train}"]
    assert main([*args, f"--texts.num_test={texts.num_test}"]) == 0
    assert {row.metric for row in rows_of(tmp_path)} == {"epsilon", "capacity", "checkpoint"}
    # Nothing left to do: the callbacks are shown the table alone.
    assert main([*args, f"--texts.num_test={texts.num_test}"]) == 0


def test_a_folder_with_other_weights_is_measured_again(tmp_path: Path) -> None:
    for seed in (3, 4):
        save_revision(tmp_path / "hf" / "step-1", seed=seed)
        save_revision(tmp_path / "hf" / "step-2", seed=5)
        assert probe(tmp_path, local(f"{tmp_path}/hf/*", name="tiny")) == 0
        hashes = {row.weights_hash for row in rows_of(tmp_path) if row.step == 1}
        assert hashes == {weights_hash(tiny_model(seed=seed).named_parameters())}
    steps = [step for step, _ in scalars(tmp_path / "runs/walk/version_0/tiny")["pga/z/final"]]
    assert sorted(steps) == [1, 2]


def test_half_precision_weights_are_measured_in_single(tmp_path: Path) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        tiny_model(seed=2).to(dtype).save_pretrained(tmp_path / "hf" / "step-1")  # type: ignore[arg-type]
        tiny_tokenizer().save_pretrained(tmp_path / "hf" / "step-1")
        name = str(dtype).removeprefix("torch.")
        assert probe(tmp_path, local(f"{tmp_path}/hf/*"), f"--run=walk_{name}") == 0
    stored: Any = tiny_model(seed=2).to(torch.float16)  # type: ignore[arg-type]
    exact = measure(stored.float(), tiny_tokenizer(), metrics=["epsilon"])
    rows = read_measurements(tmp_path / "runs/walk_float16/version_0/measurements.csv")
    assert {row.dtype for row in rows} == {"float32"}
    assert values_at(rows, 1, "epsilon") == pytest.approx(
        values_at(exact, 0, "epsilon"), rel=1e-6, nan_ok=True
    )


def test_models_side_by_side(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(folders / name) for name in ("step-0064", "step-0008")]
    for _ in range(2):
        assert probe(tmp_path, {"class_path": "Models", "init_args": {"names": names}}) == 0
    shown = "\n" + capsys.readouterr().out
    version = tmp_path / "runs/walk/version_0"
    assert list(dict.fromkeys(row.model for row in rows_of(tmp_path))) == names
    assert {path.name for path in (version / "figures").glob("*.png")} == {
        "pga_z_against_depth.png",
        "probe_accuracy_against_z.png",
    }
    assert images(version / "comparison") == {
        "pga/z_against_depth": [0],
        "probe/accuracy_against_z": [0],
    }
    for name in names:
        assert len(scalars(version / model_folder(name))["pga/z/final"]) == 1
        # A path from elsewhere is not repeated below the run.
        assert (version / model_folder(name)).parent == version
    assert all(f"\n{name}\n" in shown for name in names)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("EleutherAI/pythia-70m", r"EleutherAI/pythia-70m"),
        ("hf/./step-1", r"hf/step-1"),
        ("/data/models/step-1", r"step-1-[0-9a-f]{8}"),
        ("../models/step-1", r"step-1-[0-9a-f]{8}"),
        ("../..", r"[0-9a-f]{8}"),
        ("/", r"[0-9a-f]{8}"),
        (".", r"[0-9a-f]{8}"),
    ],
    ids=["Hub", "relative", "absolute", "above", "only above", "root", "here"],
)
def test_a_model_has_a_folder_below_the_run(name: str, folder: str) -> None:
    assert re.fullmatch(folder, model_folder(name))


def test_folders_of_models_are_different() -> None:
    names = ["a/step-1", "/a/step-1", "../a/step-1", "/b/step-1", "step-1", ".", "..", "/"]
    assert len({model_folder(name) for name in names}) == len(names)


def test_checkpoints_of_a_run_of_our_own(tmp_path: Path) -> None:
    config = {
        "model_type": "gpt_neox",
        "vocab_size": 32,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 64,
    }
    torch.manual_seed(0)
    module = LanguageModel(config)
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=2,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    batch = {"input_ids": torch.randint(32, (2, 8))}
    trainer.fit(module, FixedBatches(lambda _: batch, 2), FixedBatches(lambda _: batch, 1))
    for name in ("step-2.ckpt", "last.ckpt", "last-v1.ckpt"):
        trainer.save_checkpoint(tmp_path / "ckpt" / name)
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    series = {
        "class_path": "LightningCheckpoints",
        "init_args": {"pattern": f"{tmp_path}/ckpt/*.ckpt", "tokenizer": f"{tmp_path}/tokenizer"},
    }
    assert probe(tmp_path, series) == 0
    rows = rows_of(tmp_path)
    assert {row.step for row in rows} == {2}
    wanted = measure(module.model, tiny_tokenizer(), metrics=["epsilon"])
    assert values_at(rows, 2, "epsilon") == pytest.approx(
        values_at(wanted, 0, "epsilon"), nan_ok=True
    )
    assert {row.weights_hash for row in rows} == {wanted[0].weights_hash}
    trainer.save_checkpoint(tmp_path / "ckpt" / "epoch=0-step=2-v1.ckpt")
    with pytest.raises(ValueError, match=r"at step 2, got .*epoch=0-step=2-v1.ckpt and .*step-2"):
        LightningCheckpoints(f"{tmp_path}/ckpt/*.ckpt").checkpoints()


@pytest.fixture
def hub(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ListedHub]:
    revisions = {f"step{step}": folders / f"step-{step:04}" for step in STEPS}
    hub = ListedHub({REPOSITORY: revisions}, tmp_path)
    with serve(hub, tmp_path / "cache", monkeypatch):
        yield hub


@pytest.mark.slow
def test_published_revisions(
    hub: ListedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.vanished.add("step8")
    with pytest.warns(
        UserWarning, match="expected a revision of the model.* the others are measured"
    ):
        assert probe(tmp_path, published(steps=[0, 8, 64])) == 0
    rows = rows_of(tmp_path)
    assert {(row.step, row.model, row.revision, row.commit) for row in rows} == {
        (step, REPOSITORY, f"step{step}", commit_of(f"step{step}")) for step in (0, 64)
    }
    # What is done is neither measured nor fetched again, what was missing is.
    shutil.rmtree(tmp_path / "cache")
    hub.vanished.clear()
    hub.requests.clear()
    assert probe(tmp_path, published(steps=[0, 8, 64])) == 0
    assert [row.step for row in rows_of(tmp_path) if row.quantity == "num_parameters"] == [0, 64, 8]
    assert sum(request.file == "model.safetensors" for request in hub.requests) == 2
    assert (
        hub.sent("model.safetensors")
        == (tmp_path / "cache").rglob("model.safetensors").__next__().stat().st_size
    )
    # A strict series ends there, and what is measured by then stays.
    hub.vanished.add("step8")
    assert probe(tmp_path, published(steps=[0, 8, 64], strict=True), "--run=strict") == 1
    strict = read_measurements(tmp_path / "runs/strict/version_0/measurements.csv")
    assert {row.step for row in strict} == {0}
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert probe(tmp_path, published(steps=[8]), "--run=offline") == 0


def test_a_dry_run_lists_bytes_and_fetches_nothing(
    hub: ListedHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe(tmp_path, published(steps="all"), "--dry-run") == 0
    out = capsys.readouterr().out
    size = sum(
        path.stat().st_size
        for folder in hub.repositories[REPOSITORY].values()
        for path in folder.iterdir()
    )
    assert f"({size} bytes) in all, 4 checkpoints" in out
    assert [line.split("@")[1] for line in out.splitlines()[:4]] == [f"step{s}" for s in STEPS]
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "cache").exists()


@pytest.mark.filterwarnings("ignore:.*the others are measured")
def test_a_dry_run_lists_what_the_walk_would_do(
    hub: ListedHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.vanished.add("step8")
    assert probe(tmp_path, published(steps=[0, 8])) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*.*")}
    shutil.rmtree(tmp_path / "cache")
    capsys.readouterr()
    assert probe(tmp_path, published(steps="all"), "--dry_run") == 0
    first, same, vanished, last, total = capsys.readouterr().out.splitlines()
    assert first.split() == ["measured", "already", f"{REPOSITORY}@step0"]
    assert vanished.split() == ["not", "there", f"{REPOSITORY}@step8"]
    files = sum(path.stat().st_size for path in hub.repositories[REPOSITORY]["step64"].iterdir())
    assert f"({2 * files} bytes) in all, 4 checkpoints" in total
    assert all(f" GB in 5 files  {REPOSITORY}@step" in line for line in (same, last))
    assert {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*.*")} == before
    assert not (tmp_path / "cache").exists()
    assert probe(tmp_path, published(steps="all", strict=True), "--dry_run") == 2
    assert capsys.readouterr().err.startswith("error: revision: expected a revision of the model")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "series: expected at least one"),
        (["--series=LocalFolders", "--series.pattern=/none/*"], "pattern: expected folders with"),
        (["--series=Nowhere"], "series"),
        (["--series=HubRevisions", "--series.repo=../../x"], "repo: expected the name of a model"),
        (["--dtype=int8"], "dtype"),
        (["--max_disk_gb=-1"], "series: expected"),
        (["--callbacks+=Unheard"], "callbacks"),
    ],
    ids=["nothing", "no folder", "no series", "no repository", "dtype", "disk", "no callback"],
)
def test_one_line_says_what_is_wrong(
    args: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", f"--root={tmp_path}", *args]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
