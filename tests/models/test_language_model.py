"""The language model in a real Trainer: losses, steps, checkpoints that load anywhere, resume."""

import math
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from tests.callbacks.events import scalars
from tests.data.tiny_corpus import tiny_corpus, write_folder
from tests.lm.tiny_models import tiny_tokenizer
from toolkit.data import TextCorpus
from toolkit.data.batch_stream import FixedBatches
from toolkit.models import LanguageModel
from toolkit.optim import warmup_cosine
from toolkit.runs.identity import WeightsIdentity

CONFIG: dict[str, Any] = {
    "model_type": "gpt_neox",
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 32,
    "hidden_dropout": 0.1,
}
BATCH = {"input_ids": torch.tensor([[5, 1, 4, 2], [3, 3, 0, 0]])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("corpus") / "texts")


def make_model(**options: Any) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(**{"config": CONFIG, **options})


def sized(**options: Any) -> LanguageModel:
    return make_model(config={**CONFIG, "vocab_size": 7, **options})


def make_trainer(folder: Path, *callbacks: L.Callback, **options: Any) -> L.Trainer:
    defaults: dict[str, Any] = {
        "accelerator": "cpu",
        "default_root_dir": folder,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "limit_val_batches": 0,
        "log_every_n_steps": 1,
        "logger": False,
        "max_steps": 6,
    }
    return L.Trainer(callbacks=list(callbacks), **{**defaults, **options})


class Watcher(L.Callback):
    """Keeps losses and learning rates, and saves after one update."""

    def __init__(self, save_at: int = -1, path: Path = Path()) -> None:
        self.losses: list[float] = []
        self.rates: list[float] = []
        self.save_at, self.path = save_at, path

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *args: Any
    ) -> None:
        self.losses.append(outputs["loss"].item())
        if trainer.global_step == self.save_at:
            trainer.save_checkpoint(self.path)


def logits_of(model: LanguageModel, tokens: Tensor) -> Tensor:
    model.eval()
    with torch.no_grad():
        logits: Tensor = model(tokens)
    return logits


def expected_losses(model: LanguageModel, tokens: Tensor) -> np.ndarray:
    """Minus log of the softmax at the next token, in float64, shape (B, T - 1)."""
    logits = logits_of(model, tokens).double().numpy()[:, :-1]
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(logs, tokens[:, 1:, None].numpy(), axis=-1)[..., 0]


def test_loss_of_each_next_token() -> None:
    model = sized()
    expected = expected_losses(model, BATCH["input_ids"])
    assert model.token_losses(BATCH).tolist() == pytest.approx(expected.ravel().tolist(), rel=1e-5)
    predicted = model.predict_step(BATCH, 0)
    torch.testing.assert_close(predicted, model.token_losses(BATCH))


@pytest.mark.parametrize(
    "extra",
    [
        {"attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])},
        {"labels": torch.tensor([[5, 1, 4, 2], [3, 3, -100, -100]])},
    ],
    ids=["mask", "labels"],
)
def test_padding_is_not_predicted(extra: dict[str, Tensor]) -> None:
    model = sized()
    expected = expected_losses(model, BATCH["input_ids"])
    kept = [*expected[0], expected[1, 0]]
    assert model.token_losses({**BATCH, **extra}).tolist() == pytest.approx(kept, rel=1e-5)


def test_a_prompt_that_is_not_predicted_is_read() -> None:
    model = sized()
    expected = expected_losses(model, BATCH["input_ids"])
    labels = torch.tensor([[-100, -100, -100, 2], [-100, -100, 0, 0]])
    kept = [expected[0, 2], *expected[1, 1:]]
    losses = model.token_losses({**BATCH, "labels": labels})
    assert losses.tolist() == pytest.approx(kept, rel=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_weights_have_a_float32_loss(dtype: str) -> None:
    whole, half = sized(), make_model(config={**CONFIG, "vocab_size": 7}, dtype=dtype)
    assert {str(p.dtype) for p in half.parameters()} == {f"torch.{dtype}"}
    half.load_state_dict(whole.state_dict())
    whole.eval()
    half.eval()
    losses = half.token_losses(BATCH)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, whole.token_losses(BATCH), rtol=0.01, atol=0.01)


def test_vocabulary_comes_from_the_data(folder: Path, tmp_path: Path) -> None:
    data, model = tiny_corpus(folder), make_model()
    assert not model.is_built
    make_trainer(tmp_path).fit(model, datamodule=data)
    assert data.tokenizer is not None
    assert model.tokenizer is data.tokenizer
    assert model.model.config.vocab_size == len(data.tokenizer)
    assert model.model.config.eos_token_id == data.tokenizer.eos_token_id
    assert model.model.config.hidden_size == 8


def test_it_learns(folder: Path, tmp_path: Path) -> None:
    data = tiny_corpus(folder)
    trainer = make_trainer(tmp_path, max_steps=150, limit_val_batches=None, val_check_interval=None)
    trainer.fit(make_model(lr=0.03), datamodule=data)
    assert trainer.callback_metrics["lm_val/loss"] < data.unigram_entropy


@pytest.mark.parametrize("accumulated", [1, 2])
def test_points_are_at_the_step_of_their_weights(
    accumulated: int, folder: Path, tmp_path: Path
) -> None:
    class Evaluated(L.Callback):
        """What the weights of each step have, computed beside the model's own logging."""

        def __init__(self) -> None:
            self.train: list[float] = []
            self.validation: dict[int, float] = {}
            self.step = -1

        def on_train_batch_end(
            self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *args: Any
        ) -> None:
            self.train.append(outputs["loss"].item() * accumulated)

        def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
            assert isinstance(pl_module, LanguageModel)
            assert isinstance(trainer.datamodule, TextCorpus)  # type: ignore[attr-defined]
            tokens = torch.from_numpy(trainer.datamodule.parts.validation.astype(np.int64))  # type: ignore[attr-defined]
            self.validation[trainer.global_step] = expected_losses(pl_module, tokens).mean()

    logger, evaluated = TensorBoardLogger(tmp_path, name="lm", version=0), Evaluated()
    trainer = make_trainer(
        tmp_path,
        evaluated,
        logger=logger,
        log_every_n_steps=2,
        accumulate_grad_batches=accumulated,
        limit_val_batches=None,
        val_check_interval=3 * accumulated,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
    )
    trainer.fit(make_model(), datamodule=tiny_corpus(folder))
    points: dict[str, Any] = scalars(tmp_path / "lm" / "version_0")
    first_of_step = evaluated.train[::accumulated]
    assert points["lm/loss"] == [
        (step, pytest.approx(first_of_step[step], rel=1e-5)) for step in (0, 2, 4)
    ]
    for name, losses in (("lm", points["lm/loss"]), ("lm_val", points["lm_val/loss"])):
        expected = [(step, pytest.approx(math.exp(loss), rel=1e-5)) for step, loss in losses]
        assert points[f"{name}/perplexity"] == expected
    assert list(evaluated.validation) == [3, 6]
    assert points["lm_val/loss"] == [
        (step, pytest.approx(loss, rel=1e-5)) for step, loss in evaluated.validation.items()
    ]


def test_a_checkpoint_after_a_validation_has_its_own_step(folder: Path, tmp_path: Path) -> None:
    save = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=2, save_top_k=-1)
    trainer = make_trainer(
        tmp_path,
        save,
        enable_checkpointing=True,
        limit_val_batches=1,
        val_check_interval=3,
        check_val_every_n_epoch=None,
    )
    trainer.fit(make_model(), datamodule=tiny_corpus(folder))
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == [
        f"step={step}.ckpt" for step in (2, 4, 6)
    ]


def test_evaluating_a_checkpoint_stands_at_its_step(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "4.ckpt"
    make_trainer(tmp_path, Watcher(4, path)).fit(make_model(), datamodule=tiny_corpus(folder))
    logger = TensorBoardLogger(tmp_path, name="lm", version=0)
    trainer = make_trainer(tmp_path, limit_val_batches=None, logger=logger)
    data = tiny_corpus(folder)
    (validated,) = trainer.validate(make_model(), data, ckpt_path=path, verbose=False)
    (tested,) = trainer.test(make_model(), data, ckpt_path=path, verbose=False)
    model = LanguageModel.load_from_checkpoint(path, weights_only=True)
    for values, metric, blocks in (
        (validated, "lm_val", data.parts.validation),
        (tested, "lm_test", data.parts.test),
    ):
        loss = expected_losses(model, torch.from_numpy(blocks.astype(np.int64))).mean()
        assert values[f"{metric}/loss"] == pytest.approx(loss, rel=1e-5)
        assert values[f"{metric}/perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)
        assert [step for step, _ in scalars(Path(logger.log_dir))[f"{metric}/loss"]] == [4]
    predicted: Any = trainer.predict(model, data)
    assert torch.cat(predicted).mean().item() == pytest.approx(tested["lm_test/loss"], rel=1e-5)


def test_a_checkpoint_is_plain_and_loads_without_data(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    model = make_model(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    make_trainer(tmp_path, Watcher(6, path)).fit(model, datamodule=tiny_corpus(folder))
    saved = torch.load(path, weights_only=True)
    assert saved["hyper_parameters"]["config"]["hidden_size"] == 8
    assert "optimizer" not in saved["hyper_parameters"]
    loaded = LanguageModel.load_from_checkpoint(path, weights_only=True)
    assert loaded.source is None
    tokens = torch.randint(0, 250, (2, 9), generator=torch.Generator().manual_seed(0))
    assert torch.equal(logits_of(loaded, tokens), logits_of(model, tokens))


@pytest.mark.parametrize("stop", [4, 38], ids=["first_epoch", "second_epoch"])
def test_resume_is_bit_identical(stop: int, folder: Path, tmp_path: Path) -> None:
    steps, path = stop + 5, tmp_path / "stop.ckpt"
    whole, watcher = make_model(config={**CONFIG, "hidden_dropout": 0.0}), Watcher()
    make_trainer(tmp_path, watcher, max_steps=steps).fit(whole, datamodule=tiny_corpus(folder))
    first = make_model(config={**CONFIG, "hidden_dropout": 0.0})
    make_trainer(tmp_path, Watcher(stop, path), max_steps=steps).fit(
        first, datamodule=tiny_corpus(folder)
    )
    torch.manual_seed(99)
    resumed, tail = LanguageModel({**CONFIG, "hidden_dropout": 0.0}), Watcher()
    trainer = make_trainer(tmp_path, tail, max_steps=steps)
    # The seed of the run that is continued counts.
    data = tiny_corpus(folder, seed=5)
    trainer.fit(resumed, datamodule=data, ckpt_path=path, weights_only=True)
    assert tail.losses == watcher.losses[stop:]
    assert tail.rates == watcher.rates[stop:]
    assert len(data.train_dataloader()) < 38
    states = resumed.state_dict().values(), whole.state_dict().values()
    assert all(map(torch.equal, *states))


def test_rate_follows_warm_up_and_cosine_also_when_changed_at_resume(
    folder: Path, tmp_path: Path
) -> None:
    path, watcher, tail = tmp_path / "3.ckpt", Watcher(3, tmp_path / "3.ckpt"), Watcher()
    options: dict[str, Any] = {"warmup_fraction": 0.2, "lr_floor": 0.25}
    trainer = make_trainer(tmp_path, watcher, max_steps=10)
    trainer.fit(make_model(lr=0.01, **options), datamodule=tiny_corpus(folder))
    factors = [warmup_cosine(i, warmup_steps=2, total_steps=10, floor=0.25) for i in range(10)]
    assert watcher.rates == pytest.approx([0.01 * factor for factor in factors])
    trainer = make_trainer(tmp_path, tail, max_steps=10)
    model = make_model(lr=0.05, **options)
    trainer.fit(model, datamodule=tiny_corpus(folder), ckpt_path=path, weights_only=True)
    assert tail.rates == pytest.approx([0.05 * factor for factor in factors[3:]])


def test_only_matrices_decay() -> None:
    groups = sized().parameter_groups()
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert {p.ndim for p in groups[0]["params"]} == {2}
    assert {p.ndim for p in groups[1]["params"]} == {1}
    assert sum(len(group["params"]) for group in groups) == len(list(sized().parameters()))


def test_optimizer_replaces_adam(folder: Path, tmp_path: Path) -> None:
    watcher = Watcher()
    trainer = make_trainer(tmp_path, watcher, max_steps=1)
    model = make_model(optimizer=lambda p: torch.optim.SGD(p, lr=0.3), warmup_fraction=0.0)
    trainer.fit(model, datamodule=tiny_corpus(folder))
    assert isinstance(trainer.optimizers[0], torch.optim.SGD)
    assert watcher.rates == [0.3]


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, LanguageModel]:
    """A folder as others publish them, and the model in it."""
    model = sized()
    model.model.save_pretrained(tmp_path / "published")
    tiny_tokenizer().save_pretrained(tmp_path / "published")
    return tmp_path / "published", model


def test_published_weights(saved: tuple[Path, LanguageModel], tmp_path: Path) -> None:
    path, expected = saved
    model = LanguageModel(pretrained=str(path))
    assert all(part.training for part in model.modules())
    assert model.source == WeightsIdentity(str(path), "", "", 0)
    assert model.tokenizer is not None
    assert model.tokenizer.get_vocab() == tiny_tokenizer().get_vocab()
    tokens = BATCH["input_ids"]
    assert torch.equal(logits_of(model, tokens), logits_of(expected, tokens))


class Tokens(L.LightningDataModule):
    """A user's own batches."""

    def train_dataloader(self) -> FixedBatches[dict[str, Tensor]]:
        return FixedBatches(lambda _: BATCH, 2)

    val_dataloader = train_dataloader


def test_a_checkpoint_of_published_weights_needs_only_itself(
    saved: tuple[Path, LanguageModel], tmp_path: Path
) -> None:
    path, _ = saved
    model = LanguageModel(pretrained=str(path))
    checkpoint = tmp_path / "last.ckpt"
    trainer = make_trainer(tmp_path, Watcher(2, checkpoint), max_steps=2)
    trainer.fit(model, datamodule=Tokens())
    path.rename(tmp_path / "elsewhere")
    stored = torch.load(checkpoint, weights_only=True)["weights_source"]
    # Plain types, in the order in which they have always been stored.
    assert (type(stored), stored) == (tuple, (str(path), "", "", 0))
    loaded = LanguageModel.load_from_checkpoint(checkpoint, weights_only=True)
    assert loaded.source == model.source
    assert isinstance(loaded.source, WeightsIdentity)
    tokens = BATCH["input_ids"]
    assert torch.equal(logits_of(loaded, tokens), logits_of(model, tokens))


def test_offline_and_not_cached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="owner/name") as caught:
        LanguageModel(pretrained="owner/name", revision="step3")
    assert "\n" not in str(caught.value)


def test_data_with_more_tokens_than_the_model_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tokenizer: expected at most 7 tokens, .* module with "):
        make_trainer(tmp_path).fit(sized(), datamodule=tiny_corpus(folder))


def test_a_model_of_unknown_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="config: expected vocab_size, or a data module with a"):
        make_trainer(tmp_path).fit(make_model(), datamodule=Tokens())


@pytest.mark.parametrize(
    ("batch", "match"),
    [
        ({"input_ids": torch.zeros(1, 33, dtype=torch.long)}, "expected at most 32 tokens in a te"),
        (torch.zeros(1, 4), "batch: expected a mapping with input_ids .* got Tensor; let"),
        (
            {"tokens": torch.zeros(1, 4)},
            "batch: expected a mapping with input_ids .* got dict; let",
        ),
        ({"input_ids": torch.zeros(4)}, r"batch: expected a mapping .* of shape \(B, T\)"),
    ],
)
def test_bad_batches(batch: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        sized().token_losses(batch)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"config": None}, "config, pretrained: expected one of them, got neither"),
        ({"pretrained": "folder"}, "config, pretrained: expected one of them, got both"),
        ({"revision": "step3"}, "revision: expected pretrained with it, got 'step3' alone"),
        ({"dtype": "float64"}, "dtype: expected 'float32', 'bfloat16' or 'float16', got 'float64'"),
        ({"lr": 0.0}, "lr: expected a positive finite number, got 0.0"),
        ({"lr": math.inf}, "lr: expected a positive finite number, got inf"),
        ({"weight_decay": math.nan}, "weight_decay: expected a finite number, got nan"),
        ({"warmup_fraction": 1.5}, "warmup_fraction: expected a share between 0 and 1, got 1.5"),
        ({"lr_floor": -0.1}, "lr_floor: expected a share between 0 and 1, got -0.1"),
    ],
)
def test_bad_arguments(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make_model(**options)


def test_a_configuration_is_a_mapping() -> None:
    with pytest.raises(TypeError, match="config: expected a mapping, got str"):
        LanguageModel("gpt_neox")  # type: ignore[arg-type]
