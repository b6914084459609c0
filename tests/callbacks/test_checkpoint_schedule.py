"""Checkpoints of the scheduled steps: whole, loadable by others, never written twice."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from callbacks import CheckpointSchedule
from tests.callbacks.toy import toy_data, toy_model
from tests.data.tiny_corpus import tiny_corpus, write_folder
from toolkit.lm.architecture.families import language_model_parts
from toolkit.lm.architecture.parts import embedding_matrix
from toolkit.lm.checkpoints.lightning import LightningCheckpoints
from toolkit.lm.checkpoints.local import LocalFolders
from toolkit.lm.weights.embedding import read_embedding
from toolkit.models import LanguageModel
from toolkit.runs.checkpoint import AtomicCheckpointIO, RunCheckpoint

ROOT = Path(__file__).parent.parent.parent
CONFIG: dict[str, Any] = {
    "model_type": "gpt_neox",
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
}


IDS = torch.tensor([[5, 1, 4, 2]])


def make_model() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(CONFIG)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("corpus") / "texts")


def quiet_trainer(**options: Any) -> L.Trainer:
    defaults: dict[str, Any] = {
        "accelerator": "cpu",
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "log_every_n_steps": 1,
        "logger": False,
    }
    return L.Trainer(**(defaults | options))


def fit(
    path: Path,
    data: L.LightningDataModule,
    *callbacks: L.Callback,
    model: L.LightningModule | None = None,
    ckpt_path: Path | None = None,
    **options: Any,
) -> L.LightningModule:
    logger = TensorBoardLogger(path, name="run", version=0)
    defaults = {"logger": logger, "max_steps": 6, "limit_val_batches": 0}
    model = model or make_model()
    trainer = quiet_trainer(callbacks=list(callbacks), **(defaults | options))
    trainer.fit(model, data, ckpt_path=ckpt_path, weights_only=True)
    return model


def saved_in(path: Path) -> Path:
    return path / "run" / "version_0" / "checkpoints"


def steps(path: Path, pattern: str) -> list[int]:
    return sorted(int(found.stem.removeprefix("step-")) for found in path.glob(pattern))


class Weights(L.Callback):
    """Keeps the weights of every step."""

    def __init__(self) -> None:
        self.of_step: dict[int, dict[str, Tensor]] = {}

    def _keep(self, trainer: L.Trainer, model: L.LightningModule) -> None:
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        self.of_step[trainer.global_step] = state

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._keep(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any
    ) -> None:
        self._keep(trainer, pl_module)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("log", [0, 1, 2, 4, 6]), (4, [0, 4, 6]), ([3], [0, 3, 6])],
    ids=["log", "every", "list"],
)
def test_steps(
    schedule: Any,
    expected: list[int],
    folder: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    fit(tmp_path, tiny_corpus(folder), CheckpointSchedule(schedule=schedule))
    path = saved_in(tmp_path)
    assert steps(path, "*.ckpt") == steps(path, "hf/*") == expected
    assert {found.name for found in path.iterdir()} == {
        "hf",
        *(f"step-{step:08d}.ckpt" for step in expected),
    }
    assert "Writing" not in capfd.readouterr().err
    names = {found.name for found in path.glob("hf/*/*")}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names


def sized() -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel({**CONFIG, "vocab_size": 300})


def with_compiled_blocks() -> LanguageModel:
    """Each block on its own, as it is done to compile them only once."""
    model = sized()
    blocks: Any = language_model_parts(model.model).blocks
    for index, block in enumerate(blocks):
        blocks[index] = torch.compile(block, backend="eager")
    return model


@pytest.fixture
def _eager() -> Iterator[None]:
    # Compiling takes long, and changes no name.
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.mark.usefixtures("_eager")
def test_compiled_blocks_are_saved_under_their_own_names(folder: Path, tmp_path: Path) -> None:
    model = with_compiled_blocks()
    assert any("_orig_mod" in name for name in model.state_dict())
    fit(tmp_path, tiny_corpus(folder), CheckpointSchedule(schedule=[3]), model=model)
    with torch.no_grad():
        expected = model.eval()(IDS)
        path = saved_in(tmp_path) / "hf" / "step-00000006"
        names = load_file(path / "model.safetensors")
        assert not any("_orig_mod" in name for name in names)
        last = saved_in(tmp_path) / "step-00000006.ckpt"
        for series in (LocalFolders(str(path)), LightningCheckpoints(str(last))):
            opened = series.checkpoints()[0].open().model
            assert torch.equal(opened(IDS).logits, expected)
        # Lightning reads its own file, whatever is compiled now.
        loaded = LanguageModel.load_from_checkpoint(last, weights_only=True).eval()
        assert torch.equal(loaded(IDS), expected)
    embedding = read_embedding(last, "output").tensor
    assert torch.equal(embedding, read_embedding(path, "output").tensor)


@pytest.mark.usefixtures("_eager")
def test_a_run_of_compiled_blocks_continues(folder: Path, tmp_path: Path) -> None:
    """From a checkpoint of compiled blocks and of others, to the same weights."""
    data, middle = tiny_corpus(folder), "step-00000003.ckpt"
    for first in (sized, with_compiled_blocks):
        path = tmp_path / first.__name__
        whole = fit(path / "whole", data, CheckpointSchedule(schedule=[3]), model=first())
        wanted = {name.replace("_orig_mod.", ""): w for name, w in whole.state_dict().items()}
        for second in (sized, with_compiled_blocks):
            continued = fit(
                path / second.__name__,
                data,
                model=second(),
                ckpt_path=saved_in(path / "whole") / middle,
            )
            found = continued.state_dict()
            assert {name.replace("_orig_mod.", "") for name in found} == set(wanted)
            for name, weight in found.items():
                assert torch.equal(weight, wanted[name.replace("_orig_mod.", "")])


def test_weights_of_wrapped_parts_are_read_under_their_own_names(
    folder: Path, tmp_path: Path
) -> None:
    """Folders that others have saved, wrapped as a whole and in parts."""
    model: Any = sized().model
    model.train(False)
    for prefix in ("_orig_mod.", "module.", "_orig_mod.module.", "_fsdp_wrapped_module."):
        state = {
            prefix + name.replace("layers.0.", "layers.0._orig_mod."): weight.clone()
            for name, weight in model.state_dict().items()
        }
        path = tmp_path / f"step-{len(prefix)}"
        model.config.save_pretrained(path)
        save_file(state, path / "model.safetensors", {"format": "pt"})
        opened = LocalFolders(str(path)).checkpoints()[0].open().model
        with torch.no_grad():
            assert torch.equal(opened(IDS).logits, model(IDS).logits)
        for matrix in ("input", "output"):
            found = read_embedding(path, matrix).tensor
            parts = language_model_parts(model)
            assert torch.equal(found, embedding_matrix(parts, matrix))


def test_others_can_load_the_weights_of_each_step(folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    weights, data = Weights(), tiny_corpus(folder)
    fit(tmp_path, data, CheckpointSchedule(schedule=2), weights)
    for step in (0, 2, 4, 6):
        path = saved_in(tmp_path) / "hf" / f"step-{step:08d}"
        loaded = AutoModelForCausalLM.from_pretrained(path).state_dict()
        expected = {
            name.removeprefix("model."): tensor for name, tensor in weights.of_step[step].items()
        }
        assert loaded.keys() == expected.keys()
        assert all(torch.equal(loaded[name], expected[name]) for name in expected)
        file = saved_in(tmp_path) / f"step-{step:08d}.ckpt"
        checkpoint = torch.load(file, weights_only=True)
        assert checkpoint["global_step"] == step
        state = checkpoint["state_dict"]
        assert all(torch.equal(state[name], weights.of_step[step][name]) for name in state)
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert data.tokenizer is not None
    assert tokenizer.get_vocab() == data.tokenizer.get_vocab()
    assert tokenizer("the cat")["input_ids"] == data.tokenizer("the cat")["input_ids"]


def test_saving_changes_nothing(folder: Path, tmp_path: Path) -> None:
    states = []
    for name, callbacks in (("with", [CheckpointSchedule(schedule=1)]), ("without", [])):
        torch.manual_seed(0)
        # Dropout draws from the global generator.
        model = LanguageModel({**CONFIG, "hidden_dropout": 0.1})
        fit(tmp_path / name, tiny_corpus(folder), *callbacks, model=model)
        states.append(model.state_dict().values())
    assert all(map(torch.equal, *states))


@pytest.mark.parametrize("step", [0, 2, 5])
def test_a_run_continues_from_any_of_them(step: int, folder: Path, tmp_path: Path) -> None:
    whole = fit(tmp_path / "whole", tiny_corpus(folder), CheckpointSchedule(schedule=1))
    file = saved_in(tmp_path / "whole") / f"step-{step:08d}.ckpt"
    resumed = fit(tmp_path / "resumed", tiny_corpus(folder), ckpt_path=file)
    assert all(map(torch.equal, resumed.state_dict().values(), whole.state_dict().values()))


def times(path: Path) -> dict[str, int]:
    files = [*path.glob("*.ckpt"), *path.glob("hf/*/model.safetensors")]
    return {str(file.relative_to(path)): file.stat().st_mtime_ns for file in files}


# Lightning warns of the run's own folder, for RunCheckpoint.
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_a_continued_run_leaves_what_is_there_and_drops_what_lies_beyond(
    folder: Path, tmp_path: Path
) -> None:
    path = saved_in(tmp_path)
    fit(tmp_path, tiny_corpus(folder), CheckpointSchedule(schedule=1), RunCheckpoint())
    before = times(path)
    (path / "hf" / ".step-00000003.0123.tmp").mkdir()
    (path / ".step-00000009.tmp").touch()
    (path / "step-by-step.txt").touch()
    file = path / "step-00000003.ckpt"
    schedule, run = CheckpointSchedule(schedule=2), RunCheckpoint()
    fit(tmp_path, tiny_corpus(folder), schedule, run, ckpt_path=file)
    after = times(path)
    assert steps(path, "step-0*.ckpt") == steps(path, "hf/*") == [0, 1, 2, 3, 4, 6]
    kept = {name for name in after if any(f"step-{i:08d}" in name for i in range(4))}
    assert len(kept) == 8
    assert {name for name in after if after[name] == before.get(name)} == kept
    assert not [*path.glob(".*"), *path.glob("hf/.*")]
    assert (path / "step-by-step.txt").exists()


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_a_continued_run_writes_what_a_kill_kept_from_being_written(
    folder: Path, tmp_path: Path
) -> None:
    run = RunCheckpoint(every_n_train_steps=4)
    fit(tmp_path, tiny_corpus(folder), run, CheckpointSchedule(schedule=2), max_steps=5)
    path = saved_in(tmp_path)
    wanted = (path / "hf" / "step-00000004" / "model.safetensors").read_bytes()
    shutil.rmtree(path / "hf" / "step-00000004")
    (path / "step-00000004.ckpt").unlink()
    again = CheckpointSchedule(schedule=2), RunCheckpoint(every_n_train_steps=4)
    whole = fit(tmp_path, tiny_corpus(folder), *again, ckpt_path=path / "step=4.ckpt")
    assert steps(path, "step-0*.ckpt") == steps(path, "hf/*") == [0, 2, 4, 6]
    assert (path / "hf" / "step-00000004" / "model.safetensors").read_bytes() == wanted
    file = path / "step-00000004.ckpt"
    resumed = fit(tmp_path / "resumed", tiny_corpus(folder), ckpt_path=file)
    assert all(map(torch.equal, resumed.state_dict().values(), whole.state_dict().values()))
    assert not [*path.glob(".*"), *path.glob("hf/.*")]


def test_accumulation_saves_a_step_once(folder: Path, tmp_path: Path) -> None:
    saved = []

    class Counting(CheckpointSchedule):
        def _save_checkpoint(self, trainer: L.Trainer, filepath: str) -> None:
            saved.append(Path(filepath).stem)
            super()._save_checkpoint(trainer, filepath)

    fit(tmp_path, tiny_corpus(folder), Counting(schedule=3), accumulate_grad_batches=2)
    assert saved == ["step-00000000", "step-00000003", "step-00000006"]


def test_a_run_of_unknown_length_saves_its_last_step(folder: Path, tmp_path: Path) -> None:
    class Stop(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
            trainer.should_stop = trainer.global_step >= 5

    fit(tmp_path, tiny_corpus(folder), CheckpointSchedule(), Stop(), min_epochs=0)
    assert steps(saved_in(tmp_path), "*.ckpt") == [0, 1, 2, 4, 5]


def test_a_kill_while_saving_leaves_no_half_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: Any, path: Path) -> None:
        (path / "half").touch()
        raise RuntimeError("killed")

    monkeypatch.setattr("transformers.PreTrainedTokenizerFast.save_pretrained", killed)
    with pytest.raises(RuntimeError, match="killed"):
        fit(tmp_path, tiny_corpus(folder), CheckpointSchedule())
    assert not (saved_in(tmp_path) / "hf").exists()


def test_it_lives_beside_other_checkpoints(folder: Path, tmp_path: Path) -> None:
    schedule, run = CheckpointSchedule(schedule=3), RunCheckpoint(every_n_train_steps=2)
    own = ModelCheckpoint(tmp_path / "own", "{step}", every_n_train_steps=5)
    twice = CheckpointSchedule(schedule=4, dirpath=str(tmp_path / "twice"), save_hf=False)
    fit(tmp_path, tiny_corpus(folder), schedule, run, own, twice)
    path = saved_in(tmp_path)
    assert {file.name for file in path.glob("*.ckpt")} == {
        "last.ckpt",
        "step=6.ckpt",
        "step-00000000.ckpt",
        "step-00000003.ckpt",
        "step-00000006.ckpt",
    }
    assert [file.name for file in (tmp_path / "own").iterdir()] == ["step=5.ckpt"]
    assert steps(tmp_path / "twice", "*") == [0, 4, 6]
    keys = torch.load(path / "last.ckpt", weights_only=True)["callbacks"]
    assert {run.state_key, own.state_key} == set(keys)


def test_without_folders_any_model_will_do(tmp_path: Path) -> None:
    schedule = CheckpointSchedule(save_hf=False)
    fit(tmp_path, toy_data(), schedule, model=toy_model())
    assert steps(saved_in(tmp_path), "*") == [0, 1, 2, 4, 6]


def test_saving_is_atomic_without_another_checkpoint(folder: Path, tmp_path: Path) -> None:
    class Sees(L.Callback):
        def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
            assert type(trainer.strategy.checkpoint_io) is AtomicCheckpointIO

    fit(tmp_path, tiny_corpus(folder), CheckpointSchedule(), Sees(), max_steps=1)


def test_a_trial_run_saves_nothing(folder: Path, tmp_path: Path) -> None:
    fit(tmp_path, tiny_corpus(folder), CheckpointSchedule(), fast_dev_run=2)
    assert not list(tmp_path.rglob("step-*"))


def test_a_model_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected one Hugging Face language model inside"):
        fit(tmp_path, toy_data(), CheckpointSchedule(), model=toy_model())
    assert not list(tmp_path.rglob("step-*"))


class Adapter(nn.Module):
    """What PEFT puts in the place of a layer."""

    def __init__(self, base_layer: nn.Module) -> None:
        super().__init__()
        self.base_layer = base_layer

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.base_layer(hidden)
        return result


def test_adapters_are_refused(folder: Path, tmp_path: Path) -> None:
    class Adapted(LanguageModel):
        def configure_model(self) -> None:
            super().configure_model()
            block = self.model.get_submodule("gpt_neox.layers.0.mlp")
            block.dense_h_to_4h = Adapter(block.get_submodule("dense_h_to_4h"))

    with pytest.raises(ValueError, match="save_hf: expected a model of whole weights, got one wi"):
        fit(tmp_path, tiny_corpus(folder), CheckpointSchedule(), model=Adapted(CONFIG))


def test_sharded_weights_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("callbacks.checkpoint_schedule.SHARDED", L.pytorch.strategies.Strategy)
    with pytest.raises(ValueError, match="save_hf: expected whole weights on every rank, got Sing"):
        fit(tmp_path, toy_data(), CheckpointSchedule(), model=toy_model())


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"dirpath": str(tmp_path / "mine"), "save_hf": False}
    fit(tmp_path, toy_data(), CheckpointSchedule(**options), model=toy_model(), max_steps=1)
    with pytest.raises(ValueError, match="dirpath: expected a folder without checkpoints of an ea"):
        fit(tmp_path, toy_data(), CheckpointSchedule(**options), model=toy_model())


def test_bad_schedule() -> None:
    with pytest.raises(ValueError, match="schedule: expected a positive integer, a list of"):
        CheckpointSchedule(schedule=0)


SCRIPT = """
import json, sys
from pathlib import Path
import torch
from callbacks import CheckpointSchedule
from tests.callbacks.test_checkpoint_schedule import fit
from tests.data.tiny_corpus import tiny_corpus
from toolkit.runs.checkpoint import RunCheckpoint

if __name__ == "__main__":
    torch.set_num_threads(1)
    path, texts = map(Path, sys.argv[1:])
    data = tiny_corpus(texts)
    model = fit(path, data, CheckpointSchedule(schedule=2), RunCheckpoint(), devices=2,
                strategy="ddp", max_steps=4, limit_val_batches=None, val_check_interval=4,
                check_val_every_n_epoch=None)
    first = next(iter(data.train_dataloader()))["input_ids"][0].tolist()
    loss = model.trainer.callback_metrics["lm_val/loss"].item()
    (path / f"rank_{model.global_rank}.json").write_text(json.dumps([loss, first]))
"""


@pytest.mark.slow
def test_two_processes(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), str(folder)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    path = saved_in(tmp_path)
    assert steps(path, "step-*.ckpt") == steps(path, "hf/*") == [0, 2, 4]
    first, second = (json.loads((tmp_path / f"rank_{rank}.json").read_text()) for rank in (0, 1))
    assert first[0] == second[0]
    assert first[1] != second[1]
    loaded = LanguageModel.load_from_checkpoint(path / "step-00000004.ckpt", weights_only=True)
    data = tiny_corpus(folder)
    (alone,) = quiet_trainer().validate(loaded, data, verbose=False)
    assert first[0] == pytest.approx(alone["lm_val/loss"], rel=1e-5)
