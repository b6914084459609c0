"""The packing in a real Trainer: schedules, known optima, the guard, checkpoints, resume."""

import math
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from toolkit.functional import gram_penalty, max_abs_cosine, welch_bound
from toolkit.models import VectorPacking
from toolkit.optim import warmup_cosine


def make_model(num_vectors: int = 12, dim: int = 4, **options: Any) -> VectorPacking:
    torch.manual_seed(0)
    return VectorPacking(num_vectors, dim, **options)


def make_trainer(folder: Path, **options: Any) -> L.Trainer:
    defaults: dict[str, Any] = {
        "accelerator": "cpu",
        "default_root_dir": folder,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "limit_val_batches": 0,
        "logger": False,
        "max_steps": 20,
        "log_every_n_steps": 1,
    }
    return L.Trainer(**{**defaults, **options})


class Watcher(L.Callback):
    """Keeps what each update really used: penalty, exponent, learning rate, moments."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.exponents: list[float] = []
        self.rates: list[float] = []
        self.updates_remembered: list[float] = []

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        assert isinstance(pl_module, VectorPacking)
        self.rates.append(optimizer.param_groups[0]["lr"])
        self.exponents.append(float(pl_module.last_exponent))
        state = optimizer.state[pl_module.vectors]
        self.updates_remembered.append(float(state.get("step", 0)))

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *args: Any
    ) -> None:
        self.losses.append(outputs["loss"].item())


class At(L.Callback):
    """Does something once, after the update ``step``."""

    def __init__(self, step: int, do: Any) -> None:
        self.step, self.do = step, do

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any
    ) -> None:
        if trainer.global_step == self.step:
            self.do(trainer, pl_module)


def save_to(path: Path) -> Any:
    return lambda trainer, model: trainer.save_checkpoint(path)


def put(vectors: Tensor | float) -> Any:
    """Make something else of the vectors, as a step that went wrong does."""

    def do(trainer: L.Trainer, model: VectorPacking) -> None:
        with torch.no_grad():
            model.vectors.copy_(torch.as_tensor(vectors).expand_as(model.vectors))

    return do


def state(model: VectorPacking) -> list[Tensor]:
    return list(model.state_dict().values())


def test_starts_from_random_unit_vectors() -> None:
    model = make_model(3000, 5)
    assert model.vectors.norm(dim=1).sub(1).abs().max() < 1e-6
    assert model.vectors.mean(0).abs().max() < 0.03
    assert model.vectors.square().mean(0).tolist() == pytest.approx([0.2] * 5, rel=0.06)


@pytest.mark.parametrize(("dim", "lr", "exponent"), [(32, 0.005, 11), (1025, 0.0025, 5)])
def test_published_recipe(dim: int, lr: float, exponent: int, tmp_path: Path) -> None:
    watcher = Watcher()
    model = make_model(3, dim, exponent="published", lr="published")
    before = gram_penalty(model.vectors, exponent).item()
    make_trainer(tmp_path, max_steps=4, callbacks=[watcher]).fit(model)
    assert watcher.rates == [lr] * 4
    assert watcher.exponents == [exponent] * 4
    assert watcher.losses[0] == pytest.approx(before)


def test_exponent_rises_geometrically_in_even_steps(tmp_path: Path) -> None:
    watcher = Watcher()
    make_trainer(tmp_path, max_steps=11, callbacks=[watcher]).fit(make_model(exponent=(4, 128)))
    exact = [4 * 2 ** (step / 2) for step in range(11)]
    assert watcher.exponents == [2 * round(value / 2) for value in exact]
    assert watcher.exponents[0::2] == [4, 8, 16, 32, 64, 128]


def test_rate_follows_the_cosine(tmp_path: Path) -> None:
    watcher = Watcher()
    model = make_model(lr=0.02, warmup_fraction=0.1, lr_floor=0.25)
    make_trainer(tmp_path, callbacks=[watcher]).fit(model)
    factors = [warmup_cosine(i, warmup_steps=2, total_steps=20, floor=0.25) for i in range(20)]
    assert watcher.rates == pytest.approx([0.02 * factor for factor in factors])
    assert watcher.rates[-1] == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("num_vectors", "dim", "optimum"),
    [
        pytest.param(4, 3, 1 / 3, id="simplex"),
        pytest.param(3, 2, 1 / 2, id="hexagon"),
        pytest.param(6, 3, 1 / math.sqrt(5), id="icosahedron"),
        pytest.param(9, 2, math.cos(math.pi / 9), id="polygon"),
    ],
)
def test_reaches_known_optima(num_vectors: int, dim: int, optimum: float, tmp_path: Path) -> None:
    model = make_model(num_vectors, dim, exponent=(4, 400))
    make_trainer(tmp_path, max_steps=200).fit(model)
    assert optimum - 1e-6 <= model.best_max_abs_cosine.item() < optimum + 2e-3
    assert model.best_max_abs_cosine >= welch_bound(num_vectors, dim) - 1e-6


def test_few_vectors_become_orthogonal_without_a_restart(tmp_path: Path) -> None:
    model = make_model(4, 6)
    make_trainer(tmp_path, max_steps=200).fit(model)
    assert model.best_max_abs_cosine < 1e-3
    assert model.restarts == 0


def test_result_is_the_best_seen_and_includes_the_last_update(tmp_path: Path) -> None:
    seen: list[float] = []

    class Seer(L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            seen.append(max_abs_cosine(pl_module.vectors))

    for model in (make_model(), make_model(lr=0.2, lr_floor=1.0, exponent=2)):
        seen[:] = [max_abs_cosine(model.vectors)]
        make_trainer(tmp_path, max_steps=30, callbacks=[Seer()]).fit(model)
        assert len(seen) == 31
        assert model.best_max_abs_cosine.item() == pytest.approx(min(seen), rel=1e-6)
        assert max_abs_cosine(model.best_vectors) == pytest.approx(min(seen), rel=1e-6)
        assert model().norm(dim=1).tolist() == pytest.approx([1.0] * 12)
        assert max_abs_cosine(model()) == pytest.approx(min(seen), rel=1e-5)
    # The second run was at its best in between.
    assert min(seen) < seen[-1]


@pytest.mark.parametrize(
    ("broken", "growth"),
    [
        pytest.param(math.nan, "inf", id="nan"),
        pytest.param(math.inf, "inf", id="inf"),
        pytest.param(torch.eye(12, 4) + 1, r"[\d.e+]+", id="parallel"),
    ],
)
def test_a_broken_run_is_repaired(broken: Any, growth: str, tmp_path: Path) -> None:
    watcher = Watcher()
    logger = TensorBoardLogger(tmp_path, name="packing", version=0)
    best: list[Tensor] = []

    def remember(trainer: L.Trainer, model: VectorPacking) -> None:
        best.append(model.best_vectors.clone())
        put(broken)(trainer, model)

    model = make_model(exponent=8)
    trainer = make_trainer(tmp_path, logger=logger, callbacks=[watcher, At(8, remember)])
    message = rf"step 8: the sum of powers grew {growth} times; went back to the best vectors"
    with pytest.warns(UserWarning, match=message):
        trainer.fit(model)
    assert model.restarts == 1
    plain = [0.01 * model.lr_factor(step) * 2 for step in range(20)]
    assert watcher.rates == pytest.approx(plain[:8] + [rate / 2 for rate in plain[8:]])
    assert watcher.updates_remembered == [*range(8), *range(12)]
    assert watcher.losses[8] == pytest.approx(gram_penalty(best[0], 8).item())
    assert watcher.losses[-1] < watcher.losses[7]
    events = EventAccumulator(str(tmp_path / "packing" / "version_0")).Reload()
    (event,) = events.Scalars("packing_train/growth_before_restart")
    assert event.step == 8
    assert event.value > 2


def test_healthy_steps_are_left_alone(tmp_path: Path) -> None:
    model = make_model(200, 8, exponent=(8, 400))
    make_trainer(tmp_path, max_steps=60).fit(model)
    assert model.restarts == 0


def test_resume_is_bit_identical(tmp_path: Path) -> None:
    whole, watcher = make_model(), Watcher()
    with pytest.warns(UserWarning, match="step 4: the sum of powers grew"):
        make_trainer(tmp_path, callbacks=[watcher, At(4, put(1.0))]).fit(whole)
    saved = tmp_path / "7.ckpt"
    with pytest.warns(UserWarning, match="step 4: the sum of powers grew"):
        make_trainer(tmp_path, callbacks=[At(4, put(1.0)), At(7, save_to(saved))]).fit(make_model())
    torch.manual_seed(99)
    resumed, tail = VectorPacking(12, 4), Watcher()
    trainer = make_trainer(tmp_path, callbacks=[tail])
    trainer.fit(resumed, ckpt_path=saved, weights_only=True)
    assert tail.losses == watcher.losses[7:]
    assert tail.rates == watcher.rates[7:]
    assert tail.exponents == watcher.exponents[7:]
    assert all(map(torch.equal, state(resumed), state(whole)))


def test_a_changed_rate_is_honoured_at_resume(tmp_path: Path) -> None:
    saved = tmp_path / "7.ckpt"
    make_trainer(tmp_path, callbacks=[At(7, save_to(saved))]).fit(make_model(lr=0.01))
    watcher, model = Watcher(), make_model(lr=0.05, betas=(0.8, 0.9))
    trainer = make_trainer(tmp_path, callbacks=[watcher])
    trainer.fit(model, ckpt_path=saved, weights_only=True)
    assert watcher.rates == pytest.approx([0.05 * model.lr_factor(step) for step in range(7, 20)])
    assert trainer.optimizers[0].param_groups[0]["betas"] == (0.8, 0.9)


def test_optimizer_replaces_adam(tmp_path: Path) -> None:
    watcher = Watcher()
    model = make_model(optimizer=lambda p: torch.optim.SGD(p, lr=0.3), warmup_fraction=0.0)
    trainer = make_trainer(tmp_path, max_steps=1, callbacks=[watcher])
    trainer.fit(model)
    assert isinstance(trainer.optimizers[0], torch.optim.SGD)
    assert watcher.rates == [0.3]


@pytest.mark.parametrize("factory", [None, lambda p: torch.optim.SGD(p, lr=0.1)])
def test_checkpoint_is_plain_and_loads(factory: Any, tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    model = make_model(exponent=(4, 20), lr=0.03, optimizer=factory)
    make_trainer(tmp_path, callbacks=[At(5, save_to(path))], max_steps=5).fit(model)
    saved = torch.load(path, weights_only=True)
    assert saved["hyper_parameters"]["exponent"] == (4, 20)
    assert "optimizer" not in saved["hyper_parameters"]
    loaded = VectorPacking.load_from_checkpoint(path, weights_only=True)
    assert all(map(torch.equal, state(loaded), state(model)))
    assert torch.equal(loaded(), model())


def test_evaluation_and_prediction(tmp_path: Path) -> None:
    model = make_model()
    make_trainer(tmp_path, max_steps=5).fit(model)
    best = model.best_max_abs_cosine.item()
    trainer = make_trainer(tmp_path, limit_val_batches=None)
    for result, stage in (
        (trainer.validate(model, verbose=False), "val"),
        (trainer.test(model, verbose=False), "test"),
    ):
        assert result == [{f"packing_{stage}/max_abs_cosine": pytest.approx(best)}]
    predicted = trainer.predict(model)
    assert predicted is not None
    assert len(predicted) == 1
    torch.testing.assert_close(predicted[0], model())


def test_logs_what_the_vectors_of_the_step_have(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, name="packing", version=0)
    watcher = Watcher()
    model = make_model()
    before = max_abs_cosine(model.vectors)
    trainer = make_trainer(tmp_path, logger=logger, callbacks=[watcher], log_every_n_steps=6)
    trainer.fit(model)
    events = EventAccumulator(str(tmp_path / "packing" / "version_0")).Reload()
    penalties = events.Scalars("packing_train/penalty")
    assert [event.step for event in penalties] == [0, 6, 12, 18]
    assert [event.value for event in penalties] == pytest.approx(watcher.losses[::6])
    largest = events.Scalars("packing_train/max_abs_cosine")
    assert largest[0].value == pytest.approx(before)
    assert largest[-1].value < before


def test_accumulation_takes_as_many_updates(tmp_path: Path) -> None:
    model = make_model()
    trainer = make_trainer(tmp_path, max_steps=6, accumulate_grad_batches=3)
    trainer.fit(model)
    assert trainer.global_step == 6
    assert model.last_exponent == 400


def test_an_endless_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"trainer\.max_steps: expected 0 or more, got -1"):
        make_trainer(tmp_path, max_steps=-1, max_epochs=1).fit(make_model())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_vectors": 1}, "num_vectors: expected an integer of at least 2, got 1"),
        ({"dim": 0}, "dim: expected an integer of at least 1, got 0"),
        ({"dim": 1, "exponent": "published"}, "dim: expected an integer of at least 2"),
        ({"exponent": 1}, "exponent: expected 'published', a finite number of at least 2 or a"),
        ({"exponent": (8, math.inf)}, r"exponent: expected .* got \(8, inf\)"),
        ({"exponent": 1e9}, "exponent: expected a number from 2 to 1,000,000, got 1000000000.0"),
        ({"exponent": (8, 1_000_001)}, "exponent: expected a number from 2 to 1,000,000"),
        ({"exponent": (8, 20, 50)}, "exponent: expected 'published'"),
        ({"exponent": "paper"}, "exponent: expected 'published'.* got 'paper'"),
        ({"lr": 0.0}, "lr: expected 'published' or a positive finite number, got 0.0"),
        ({"lr": "paper"}, "lr: expected 'published' or a positive finite number, got 'paper'"),
        ({"warmup_fraction": 1.5}, "warmup_fraction: expected a share between 0 and 1, got 1.5"),
        ({"lr_floor": -0.1}, "lr_floor: expected a share between 0 and 1, got -0.1"),
    ],
)
def test_bad_arguments(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        VectorPacking(**{"num_vectors": 5, "dim": 3, **options})
