"""The callbacks on a user's own LightningModule: what they log, and what they leave alone."""

import copy
import math
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import transformers
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.data import DataLoader

from callbacks import (
    EmbeddingDeviation,
    LinearProbe,
    Spectrum,
    SubspacePGA,
    TextSet,
    UnembeddingOverlap,
)
from tests.callbacks.events import images, scalars
from tests.callbacks.language import (
    Module,
    ValidatedModule,
    all_callbacks,
    batches,
    net_with_dropout,
    small_texts,
)
from tests.callbacks.toy import toy_trainer
from tests.lm.tiny_models import TEXTS, tiny_model, tiny_tokenizer
from tests.measures.test_measures import LABELLED
from toolkit.functional import embedding_deviation
from toolkit.measure import measure
from toolkit.runs.table import read_measurements

SCHEDULE = [2, 5]


class KeepsWeights(Callback):
    """Copies the model after each step."""

    def __init__(self) -> None:
        self.models: dict[int, Any] = {}

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *args: Any) -> None:
        self.models[trainer.global_step] = copy.deepcopy(pl_module.net)


def fit(tmp_path: Path, *callbacks: Callback, **options: Any) -> Module:
    module = Module()
    logger = TensorBoardLogger(tmp_path, name="run", version=0)
    toy_trainer(*callbacks, logger=logger, **options).fit(module, batches())
    return module


def test_the_values_are_those_of_measure(tmp_path: Path) -> None:
    texts, keeps = small_texts(tmp_path), KeepsWeights()
    module = fit(tmp_path, *all_callbacks(texts, schedule=SCHEDULE), keeps, max_steps=6)
    folder = tmp_path / "run" / "version_0"
    rows = read_measurements(folder / "measurements.csv")
    assert {row.step for row in rows} == {0, 2, 5, 6}
    wanted = measure(
        keeps.models[5],
        module.tokenizer,
        texts.load(),
        metrics={
            "pga": {"k": 3, "num_null": 4},
            "epsilon": {},
            "probe": {},
            "spectrum": {"fit_range": (1, 8)},
            "two_nn": {},
            "unembedding": {},
        },
    )
    values = {f"{r.metric}/{r.quantity}/{r.layer}": r.value for r in rows if r.step == 5}
    assert values.keys() == {f"{r.metric}/{r.quantity}/{r.layer}" for r in wanted}
    for row in wanted:
        found = values[f"{row.metric}/{row.quantity}/{row.layer}"]
        assert found == pytest.approx(row.value, rel=1e-6, nan_ok=True), row
    series = scalars(folder)
    assert [step for step, _ in series["pga/z/layer_02"]] == [0, 2, 5, 6]
    assert {"pga/z/final", "probe/accuracy/layer_00", "epsilon/value/input"} <= series.keys()
    assert {
        "capacity/log10/output",
        "spectrum/rankme/layer_03",
        "two_nn/dimension/final",
    } <= series.keys()
    assert "unembedding/overlap_times_m/output" in series
    assert {
        "pga/z_heat_map",
        "probe/accuracy_heat_map",
        "spectrum/rankme_heat_map",
        "two_nn/dimension_heat_map",
        "epsilon/cosine_histogram",
    } <= set(images(folder))


def test_numbers_carry_their_conditions(tmp_path: Path) -> None:
    texts = small_texts(tmp_path, pooling="mean", max_length=9)
    fit(tmp_path, SubspacePGA(texts=texts, k=3, num_null=4, schedule=[0]), max_steps=1)
    row = read_measurements(tmp_path / "run" / "version_0" / "measurements.csv")[0]
    assert row.conditions["k"] == 3
    assert row.conditions["num_null"] == 4
    assert row.conditions["remove"] == 1
    assert row.conditions["rows"] == "tokenizer"
    assert row.conditions["texts"]["pooling"] == "mean"
    assert row.conditions["texts"]["max_length"] == 9
    assert row.conditions["texts"]["num_removed"] == 0
    assert row.conditions["texts"]["drawn_from"] == "texts.csv, both parts from this one"
    assert row.conditions["tokenizer"] == type(tiny_tokenizer()).__name__
    assert row.dtype == "float32"


def test_what_was_left_to_the_model_is_a_condition_as_it_was_used(tmp_path: Path) -> None:
    module = Module()
    watchers = [SubspacePGA(texts=small_texts(tmp_path), num_null=4, schedule=[0])]
    module.tokenizer.name_or_path = "somebody/tokenizer"
    logger = TensorBoardLogger(tmp_path, name="run", version=0)
    toy_trainer(*watchers, logger=logger, max_steps=1).fit(module, batches())
    row = read_measurements(tmp_path / "run" / "version_0" / "measurements.csv")[0]
    assert row.conditions["k"] == 16 // 8
    assert row.conditions["tokenizer"] == "somebody/tokenizer"
    module.tokenizer = None  # type: ignore[assignment]
    logger = TensorBoardLogger(tmp_path, name="run", version=1)
    toy_trainer(UnembeddingOverlap(), logger=logger, max_steps=1).fit(module, batches())
    row = read_measurements(tmp_path / "run" / "version_1" / "measurements.csv")[0]
    assert row.conditions["rows"] == "all"
    assert row.conditions["tokenizer"] is None


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_watching_never_changes_the_run(tmp_path: Path, num_workers: int) -> None:
    class LeavesOneInEval(Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            pl_module.net.gpt_neox.layers[0].eval()

    def run(*callbacks: Callback) -> tuple[Module, list[bool]]:
        L.seed_everything(3, verbose=False)
        module = Module()
        toy_trainer(LeavesOneInEval(), *callbacks, max_steps=52).fit(
            module, batches(num_workers=num_workers)
        )
        return module, [part.training for part in module.net.modules()]

    plain, flags = run()
    watched, watched_flags = run(*all_callbacks(small_texts(tmp_path), schedule=13))
    assert len(plain.losses) == 52
    assert plain.losses == watched.losses
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
    assert flags == watched_flags
    assert not watched.net.gpt_neox.layers[0].training
    assert watched.net.gpt_neox.layers[1].training
    assert not [m for m in watched.net.modules() if m._forward_hooks or m._forward_pre_hooks]


def failures(warned: pytest.WarningsRecorder) -> list[str]:
    return [text for text in (str(entry.message) for entry in warned) if "failed at step" in text]


def test_hooks_are_gone_after_a_failure(tmp_path: Path) -> None:
    class FailsWhenMeasured(Callback):
        """Lets the second block fail whenever it is not training."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            def fail(block: Any, *_: Any) -> None:
                if not block.training:
                    raise ArithmeticError("broken")

            self.handle = pl_module.net.gpt_neox.layers[1].register_forward_pre_hook(fail)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.handle.remove()

    watcher = Spectrum(texts=small_texts(tmp_path), schedule=[2], on_error="warn")
    module = Module()
    with pytest.warns(UserWarning, match="Spectrum failed at step .*broken") as warned:
        toy_trainer(FailsWhenMeasured(), watcher, max_steps=3).fit(module, batches())
    assert len(failures(warned)) == 3  # steps 0, 2 and 3
    assert len(module.losses) == 3
    assert not [m for m in module.net.modules() if m._forward_hooks or m._forward_pre_hooks]


def test_one_forward_pass_for_all_callbacks(tmp_path: Path) -> None:
    module, passes = Module(), []
    module.net.get_input_embeddings().register_forward_hook(
        lambda layer, *_: None if layer.training else passes.append(1)
    )
    texts = small_texts(tmp_path, batch_size=8)
    toy_trainer(*all_callbacks(texts, schedule=[0]), max_steps=3).fit(module, batches())
    # 16 train and 12 test texts in batches of 8, at step 0 and at the last step; once a text is
    # read alone and beside a longer one.
    assert len(passes) == 2 + 2 * (2 + 2)


def test_callbacks_that_look_at_different_layers_share_the_pass(tmp_path: Path) -> None:
    module, passes = Module(), []
    module.net.get_input_embeddings().register_forward_hook(
        lambda layer, *_: None if layer.training else passes.append(1)
    )
    texts = small_texts(tmp_path, batch_size=12)
    pga = SubspacePGA(texts=texts, k=3, num_null=4, layers=["layer_01"], schedule=[0])
    spectrum = Spectrum(texts=texts, fit_range=(1, 8), layers=["final"], schedule=[0])
    toy_trainer(pga, spectrum, max_steps=1).fit(module, batches())
    assert len(passes) == 2 + 2
    assert {tag.split("/")[-1] for tag in pga.latest} == {"layer_01"}
    assert {tag.split("/")[-1] for tag in spectrum.latest} == {"final"}


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists")
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch")
def test_a_continued_run_misses_and_repeats_nothing(tmp_path: Path) -> None:
    texts = small_texts(tmp_path)

    def trainer(max_steps: int) -> L.Trainer:
        logger = TensorBoardLogger(tmp_path, name="run", version=0)
        save = ModelCheckpoint(tmp_path / "ckpt", save_last=True, every_n_train_steps=1)
        watchers = all_callbacks(texts, schedule=2)
        return toy_trainer(
            *watchers, save, logger=logger, max_steps=max_steps, enable_checkpointing=True
        )

    trainer(4).fit(Module(), batches())
    last = tmp_path / "ckpt" / "last.ckpt"
    assert torch.load(last, weights_only=True)["global_step"] == 4
    continued = trainer(8)
    continued.fit(Module(), batches(), ckpt_path=last, weights_only=True)
    folder = tmp_path / "run" / "version_0"
    rows = read_measurements(folder / "measurements.csv")
    keys = [(row.step, row.metric, row.quantity, row.layer) for row in rows]
    assert len(keys) == len(set(keys))
    assert {row.step for row in rows} == {0, 2, 4, 6, 8}
    assert len(rows) % 5 == 0
    pga = continued.callbacks[0]  # type: ignore[attr-defined]
    assert list(pga.history) == [0, 2, 4, 6, 8]


def test_a_checkpoint_can_monitor_a_layer(tmp_path: Path) -> None:
    save = ModelCheckpoint(tmp_path / "c", monitor="pga/rho/final", every_n_train_steps=2)
    watcher = SubspacePGA(texts=small_texts(tmp_path), k=3, num_null=4, schedule=2)
    toy_trainer(watcher, save, max_steps=4, enable_checkpointing=True).fit(Module(), batches())
    seen = [watcher.history[step]["pga/rho/final"] for step in (2, 4)]
    assert save.best_model_score is not None
    assert save.best_model_score.item() == pytest.approx(min(seen))


def test_a_stand_alone_validation_measures_once(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, name="run", version=0)
    watchers = all_callbacks(small_texts(tmp_path))
    trainer = toy_trainer(*watchers, logger=logger)
    tokens = DataLoader(torch.ones(2, 4, 6, dtype=torch.long), batch_size=None)  # type: ignore[arg-type, var-annotated]
    trainer.validate(ValidatedModule(), tokens, verbose=False)
    rows = read_measurements(tmp_path / "run" / "version_0" / "measurements.csv")
    assert {row.step for row in rows} == {0}
    assert {row.metric for row in rows} >= {
        "pga",
        "epsilon",
        "probe",
        "spectrum",
        "two_nn",
        "unembedding",
    }
    assert "pga/z/final" in trainer.callback_metrics


def test_headlines(tmp_path: Path) -> None:
    watchers = all_callbacks(small_texts(tmp_path), schedule=[0])
    toy_trainer(*watchers, max_steps=1).fit(Module(), batches())
    lines = [line for watcher in watchers for line in watcher.headline_lines()]
    assert any(line.startswith("epsilon = 0.") and "(input, " in line for line in lines)
    assert "probe: chance is 0.25" in lines
    assert any(line.startswith("unembedding: overlap x m = ") for line in lines)


def test_the_histogram_of_a_large_vocabulary_takes_some_rows() -> None:
    from toolkit.figures.deviation import _MAX_ROWS, _drawn

    rows = torch.arange(3 * _MAX_ROWS)[:, None]
    drawn = _drawn(rows)
    assert len(drawn) == _MAX_ROWS
    assert drawn[0] == 0
    assert drawn[-1] == 3 * _MAX_ROWS - 1
    assert len(torch.unique(drawn)) == _MAX_ROWS


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SubspacePGA(k=0), "k: expected an integer of at least 1, got 0"),
        (lambda: SubspacePGA(num_null=1), "num_null: expected an integer of at least 2, got 1"),
        (lambda: SubspacePGA(remove=-1), "remove: expected an integer of at least 0, got -1"),
        (lambda: SubspacePGA(remove=[]), "remove: expected one or more integers"),
        (lambda: LinearProbe(l2=0), "l2: expected one or several positive"),
        (lambda: LinearProbe(l2=[]), "l2: expected one or several positive"),
        (lambda: LinearProbe(max_iter=0), "max_iter: expected an integer of at least 1, got 0"),
        (
            lambda: Spectrum(fit_range=(4, 4)),
            "fit_range: expected two integers, 1 <= first < last, got",
        ),
        (lambda: EmbeddingDeviation(num_sigma=math.inf), "num_sigma: expected a finite"),
        (lambda: UnembeddingOverlap(rows="x"), "rows: expected 'tokenizer' or 'all'"),  # type: ignore[arg-type]
        (lambda: TextSet(num_test=0), "num_test: expected an integer of at least 1, got 0"),
        (lambda: TextSet(max_length=1.5), "max_length: expected an integer of at least 1, got 1.5"),  # type: ignore[arg-type]
        (lambda: TextSet(seed=-1), "seed: expected an integer of at least 0, got -1"),
        (lambda: TextSet(pooling="first"), "pooling: expected 'last' or 'mean'"),  # type: ignore[arg-type]
        (lambda: SubspacePGA(schedule=0), "schedule: expected"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arguments(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def refused(tmp_path: Path, callback: Callback, module: L.LightningModule, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        toy_trainer(callback, max_steps=1).fit(module, batches())
    assert "\n" not in str(caught.value)


def test_refused_before_the_first_step(tmp_path: Path) -> None:
    texts = small_texts(tmp_path)
    too_wide = SubspacePGA(texts=texts, k=17)
    refused(tmp_path, too_wide, Module(), "k: expected at most d = 16, the model's width, got 17")
    too_many = SubspacePGA(texts=texts, k=3, remove=[1, 12])
    refused(tmp_path, too_many, Module(), "remove: expected fewer than 12, the smaller .* got 12")
    folded = SubspacePGA(texts=texts, fold_norm=True)
    ungained = Module()
    ungained.net.gpt_neox.final_layer_norm = torch.nn.Tanh()
    refused(tmp_path, folded, ungained, "fold_norm: expected a final norm that .* got Tanh")
    refused(tmp_path, UnembeddingOverlap(), BoringModel(), "expected one Hugging Face language")
    refused(tmp_path, Spectrum(texts=texts, layers=["layer_9"]), Module(), "layers: expected names")
    module = Module()
    module.tokenizer = None  # type: ignore[assignment]
    refused(tmp_path, Spectrum(texts=texts), module, "tokenizer: expected one for Spectrum")
    missing = TextSet(source=str(tmp_path / "none.csv"))
    refused(tmp_path, Spectrum(texts=missing), Module(), "none.csv")
    unknown = Spectrum(texts=texts, tokenizer=str(tmp_path))
    refused(tmp_path, unknown, Module(), "tokenizer: expected a folder, or a name on the Hub")
    two = Module()
    two.other = net_with_dropout()
    refused(tmp_path, UnembeddingOverlap(), two, "name one with attribute")


def test_a_named_attribute_settles_which_model(tmp_path: Path) -> None:
    module, other = Module(), tiny_model().train()
    module.other = other
    watcher = EmbeddingDeviation(attribute="other", rows="all", schedule=[0])
    toy_trainer(watcher, max_steps=1).fit(module, batches())
    wanted = embedding_deviation(other.gpt_neox.embed_in.weight)
    assert watcher.history[0]["epsilon/value/input"] == wanted.epsilon


def test_each_of_two_models_has_its_own_fingerprint(tmp_path: Path) -> None:
    module = Module()
    module.other = tiny_model().train()
    watchers = [EmbeddingDeviation(attribute=name, schedule=[0]) for name in ("net", "other")]
    logger = TensorBoardLogger(tmp_path, name="run", version=0)
    toy_trainer(*watchers, logger=logger, max_steps=1).fit(module, batches())
    rows = read_measurements(tmp_path / "run" / "version_0" / "measurements.csv")
    hashes = {row.metric: row.weights_hash for row in rows if row.step == 0}
    assert hashes["epsilon"] != hashes["epsilon_2"]


def test_the_paths_of_a_model_tell_instances_apart() -> None:
    one, two = (EmbeddingDeviation(paths=paths) for paths in (None, {"blocks": "net.h"}))
    assert one.state_key != two.state_key


def test_two_instances_coexist(tmp_path: Path) -> None:
    texts = small_texts(tmp_path)
    pair = [SubspacePGA(texts=texts, k=k, num_null=4, schedule=[0]) for k in (2, 4)]
    toy_trainer(*pair, max_steps=1).fit(Module(), batches())
    assert pair[0].state_key != pair[1].state_key
    assert pair[0].latest["pga/z/final"] != pair[1].latest["pga_2/z/final"]
    both = [EmbeddingDeviation(num_sigma=s, schedule=[0]) for s in (1.0, 2.0)]
    toy_trainer(*both, max_steps=1).fit(Module(), batches())
    assert "capacity_2/log10/input" in both[1].latest


def test_a_text_without_tokens_costs_one_point(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = LABELLED._replace(test_texts=[*TEXTS[:-1], " "])
    monkeypatch.setattr(TextSet, "load", lambda _: texts)
    watcher, module = Spectrum(schedule=[0]), Module()
    with pytest.warns(UserWarning, match="Spectrum failed at step .*text 9") as warned:
        toy_trainer(watcher, max_steps=2).fit(module, batches())
    assert len(failures(warned)) == 2  # steps 0 and 2
    assert len(module.losses) == 2


def test_a_named_tokenizer_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Module()
    module.tokenizer.save_pretrained(tmp_path / "words")
    reads, read = [], transformers.AutoTokenizer.from_pretrained

    def counted(name: str, **options: Any) -> Any:
        reads.append(name)
        return read(name, **options)

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", counted)
    texts, name = small_texts(tmp_path), str(tmp_path / "words")
    watchers = all_callbacks(texts, tokenizer=name, schedule=1)
    toy_trainer(*watchers, max_steps=2).fit(module, batches())
    assert reads == [name]
