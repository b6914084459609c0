"""The model in a real Trainer: published settings, checkpoints, resume."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from toolkit.data import ActiveCells, PowerFrequencies, SparseFeatures
from toolkit.models import SuperpositionAutoencoder
from toolkit.optim import warmup_cosine


def make_data(**options: Any) -> SparseFeatures:
    return SparseFeatures(
        12, PowerFrequencies(1.0), **{"batch_size": 16, "num_held_out": 2, "seed": 3, **options}
    )


def make_model(**options: Any) -> SuperpositionAutoencoder:
    torch.manual_seed(0)
    return SuperpositionAutoencoder(12, [2, 4], **options)


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
    """Keeps what each update really used: loss, learning rates, decays."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.rates: list[list[float]] = []
        self.decays: list[list[float]] = []

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        self.rates.append([group["lr"] for group in optimizer.param_groups])
        self.decays.append([group["weight_decay"] for group in optimizer.param_groups])

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *args: Any
    ) -> None:
        self.losses.append(outputs["loss"].item())


class SaveAt(L.Callback):
    """Saves one checkpoint after the update ``step``."""

    def __init__(self, step: int, path: Path) -> None:
        self.step, self.path = step, path

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any
    ) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


def state(model: SuperpositionAutoencoder) -> list[torch.Tensor]:
    return list(model.state_dict().values())


def test_initial_scales() -> None:
    torch.manual_seed(0)
    model = SuperpositionAutoencoder(4000, [4, 25], weight_init_scale=2.0, bias_init_scale=0.5)
    for m, weight, bias in zip([4, 25], model.weights, model.biases, strict=True):
        assert weight.shape == (4000, m)
        assert weight.std().item() == pytest.approx(2 / m**0.5, rel=0.03)
        assert bias.std().item() == pytest.approx(0.5, rel=0.05)


def start(widths: list[int], m: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(5)
    model = SuperpositionAutoencoder(12, widths)
    return model.weights[widths.index(m)].detach(), model.biases[widths.index(m)].detach()


@pytest.mark.parametrize("others", [[4, 6, 8], [6, 4], [1, 2, 3, 4, 5, 6]], ids=str)
def test_a_width_starts_the_same_whatever_the_other_widths(others: list[int]) -> None:
    assert all(map(torch.equal, start(others, 6), start([6], 6)))


def test_starts_differ_between_widths_seeds_and_models() -> None:
    torch.manual_seed(5)
    first, second = SuperpositionAutoencoder(12, [2, 4]), SuperpositionAutoencoder(12, [2, 4])
    torch.manual_seed(6)
    third = SuperpositionAutoencoder(12, [2, 4])
    biases = torch.stack([bias.detach() for m in (first, second, third) for bias in m.biases])
    assert len(torch.unique(biases, dim=0)) == 6
    # Unrelated streams: correlations of 4000 numbers have standard deviation 1 / sqrt(4000).
    many = SuperpositionAutoencoder(4000, list(range(1, 21)))
    correlations = torch.corrcoef(torch.stack([bias.detach() for bias in many.biases]))
    assert correlations.triu(1).abs().max() < 5 / 4000**0.5


def test_a_width_trains_the_same_whatever_the_other_widths(tmp_path: Path) -> None:
    trained = {}
    for widths in ([6], [4, 6, 8]):
        torch.manual_seed(0)
        model = SuperpositionAutoencoder(12, widths)
        make_trainer(tmp_path).fit(model, make_data())
        place = widths.index(6)
        trained[len(widths)] = model.weights[place].detach(), model.biases[place].detach()
    assert all(map(torch.equal, trained[1], trained[3]))


def test_the_start_is_drawn_on_the_cpu_for_every_device() -> None:
    with torch.device("meta"):
        model = SuperpositionAutoencoder(12, [2])
    assert model.weights[0].device.type == "meta"


def test_the_objective_is_the_mean_over_features_times_the_scale(tmp_path: Path) -> None:
    watcher = Watcher()
    model, data = make_model(loss_scale=100.0), make_data()
    before = make_model()
    make_trainer(tmp_path, max_steps=1, callbacks=[watcher]).fit(model, data)
    first = next(iter(make_data(steps_per_epoch=1).train_dataloader()))
    inputs = first.dense()
    expected = sum(
        (torch.relu(inputs @ w @ w.T + b) - inputs).square().mean().item()
        for w, b in zip(before.weights, before.biases, strict=True)
    )
    assert watcher.losses == [pytest.approx(100 * expected, rel=1e-5)]


def test_dense_path_trains_the_same(tmp_path: Path) -> None:
    watchers = Watcher(), Watcher()
    models = make_model(), make_model(step="dense")
    for model, watcher in zip(models, watchers, strict=True):
        make_trainer(tmp_path, callbacks=[watcher]).fit(model, make_data())
    assert watchers[0].losses == pytest.approx(watchers[1].losses, rel=1e-4)
    for ours, theirs in zip(state(models[0]), state(models[1]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("gamma", [-1.0, 0.0, 1.0])
def test_gradient_equals_float64_autograd_at_start_and_trained(
    gamma: float, tmp_path: Path
) -> None:
    model = make_model(weight_decay=gamma)
    batch = next(iter(make_data().held_out()))
    for _ in range(2):
        sparse = torch.autograd.grad(model.losses(batch).sum(), list(model.parameters()))
        exact = make_model(step="dense").double()
        exact.load_state_dict(model.state_dict())
        doubled = batch._replace(value=batch.value.double())
        dense = torch.autograd.grad(exact.losses(doubled).sum(), list(exact.parameters()))
        for ours, theirs in zip(sparse, dense, strict=True):
            assert (ours - theirs).norm() <= 2e-6 * theirs.norm()
        make_trainer(tmp_path, max_steps=100).fit(model, make_data())


def test_rates_follow_the_schedule_of_the_small_run(tmp_path: Path) -> None:
    watcher = Watcher()
    make_trainer(tmp_path, callbacks=[watcher]).fit(make_model(lr=0.01), make_data())
    factors = [warmup_cosine(i, warmup_steps=2, total_steps=20, floor=0.05) for i in range(20)]
    assert watcher.rates == [[pytest.approx(0.01 * factor)] * 2 for factor in factors]
    assert watcher.rates[-1][0] == pytest.approx(0.01 * 0.05)
    assert watcher.decays[0] == [-1.0, 0.0]


def test_width_scaled_rates_are_those_of_the_large_run(tmp_path: Path) -> None:
    watcher = Watcher()
    model = make_model(lr=0.02, bias_lr=2.0, width_scaled_lr=True, warmup_fraction=0.0)
    make_trainer(tmp_path, max_steps=1, callbacks=[watcher]).fit(model, make_data())
    # Groups: W and b of width 2, then of width 4.
    expected = [0.02 * 4**0.25, 1.0, 0.02 * 2**0.25, 0.5]
    assert watcher.rates == [pytest.approx(expected)]
    assert watcher.decays == [[-1.0, 0.0, -1.0, 0.0]]


def test_optimizer_replaces_adamw(tmp_path: Path) -> None:
    watcher = Watcher()
    model = make_model(optimizer=lambda p: torch.optim.SGD(p, lr=0.3), warmup_fraction=0.0)
    trainer = make_trainer(tmp_path, max_steps=1, callbacks=[watcher])
    trainer.fit(model, make_data())
    assert isinstance(trainer.optimizers[0], torch.optim.SGD)
    assert watcher.rates == [[0.3]]


def test_resume_is_bit_identical(tmp_path: Path) -> None:
    whole, watcher = make_model(), Watcher()
    make_trainer(tmp_path, callbacks=[watcher]).fit(whole, make_data())
    saved = tmp_path / "7.ckpt"
    make_trainer(tmp_path, callbacks=[SaveAt(7, saved)]).fit(make_model(), make_data())
    resumed, tail = make_model(), Watcher()
    # Another seed in the data: the stream of the saved run goes on all the same.
    make_trainer(tmp_path, callbacks=[tail]).fit(
        resumed, make_data(seed=99), ckpt_path=saved, weights_only=True
    )
    assert tail.losses == watcher.losses[7:]
    assert tail.rates == watcher.rates[7:]
    assert all(map(torch.equal, state(resumed), state(whole)))


def test_a_changed_rate_and_decay_are_honoured_at_resume(tmp_path: Path) -> None:
    saved = tmp_path / "7.ckpt"
    make_trainer(tmp_path, callbacks=[SaveAt(7, saved)]).fit(make_model(lr=0.01), make_data())
    watcher = Watcher()
    model = make_model(lr=0.05, weight_decay=-0.25, betas=(0.8, 0.9))
    trainer = make_trainer(tmp_path, callbacks=[watcher])
    trainer.fit(model, make_data(), ckpt_path=saved, weights_only=True)
    factor = warmup_cosine(7, warmup_steps=2, total_steps=20, floor=0.05)
    assert len(watcher.rates) == 13
    assert watcher.rates[0] == [pytest.approx(0.05 * factor)] * 2
    assert watcher.decays[0] == [-0.25, 0.0]
    assert trainer.optimizers[0].param_groups[0]["betas"] == (0.8, 0.9)


@pytest.mark.parametrize("factory", [None, lambda p: torch.optim.SGD(p, lr=0.1)])
def test_checkpoint_is_plain_and_loads(factory: Any, tmp_path: Path) -> None:
    model = make_model(lr=0.03, optimizer=factory)
    saver = SaveAt(5, tmp_path / "last.ckpt")
    make_trainer(tmp_path, callbacks=[saver], max_steps=5).fit(model, make_data())
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert saved["hyper_parameters"]["lr"] == 0.03
    assert "optimizer" not in saved["hyper_parameters"]
    loaded = SuperpositionAutoencoder.load_from_checkpoint(
        tmp_path / "last.ckpt", weights_only=True
    )
    assert loaded.widths == [2, 4]
    assert all(map(torch.equal, state(loaded), state(model)))
    data = SparseFeatures.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert torch.equal(data.probabilities, make_data().probabilities)
    assert data.seed == 3


def test_evaluation_and_prediction(tmp_path: Path) -> None:
    model, data = make_model(), make_data()
    trainer = make_trainer(tmp_path, limit_val_batches=None)
    with torch.no_grad():
        expected = torch.stack([model.losses(batch) for batch in data.held_out()]).mean(0)
    (logged,) = trainer.validate(model, data, verbose=False)
    assert logged["toy_val/loss/m_0002"] == pytest.approx(expected[0].item())
    assert logged["toy_val/loss_mean/m_0004"] == pytest.approx(expected[1].item() / 12)
    (logged,) = trainer.test(model, data, verbose=False)
    assert logged["toy_test/loss/m_0002"] > 0
    predictions = trainer.predict(model, data)
    assert predictions is not None
    inputs = next(iter(data.predict_dataloader())).dense()
    weight, bias = model.weights[1].detach(), model.biases[1].detach()
    torch.testing.assert_close(predictions[0][1], torch.relu(inputs @ weight @ weight.T + bias))


def test_loss_is_logged_at_the_step_its_weights_have(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, name="toy", version=0)
    watcher = Watcher()
    make_trainer(
        tmp_path, logger=logger, callbacks=[watcher], log_every_n_steps=5, max_steps=12
    ).fit(make_model(), make_data())
    events = EventAccumulator(str(tmp_path / "toy" / "version_0")).Reload()
    series = {m: events.Scalars(f"toy/loss_mean/m_{m:04d}") for m in (2, 4)}
    assert [event.step for event in series[2]] == [0, 5, 10]
    for i, step in enumerate([0, 5, 10]):
        total = series[2][i].value + series[4][i].value
        assert total == pytest.approx(watcher.losses[step], rel=1e-5)
    sums = events.Scalars("toy/loss/m_0004")
    assert sums[0].value == pytest.approx(12 * series[4][0].value, rel=1e-6)


def logged_steps(folder: Path, tag: str) -> list[int]:
    return [event.step for event in EventAccumulator(str(folder)).Reload().Scalars(tag)]


def test_validation_is_logged_at_the_step_its_weights_have(tmp_path: Path) -> None:
    saver = SaveAt(12, tmp_path / "12.ckpt")
    fit_logger = TensorBoardLogger(tmp_path, name="fit", version=0)
    options: dict[str, Any] = {"max_steps": 12, "limit_val_batches": None}
    make_trainer(tmp_path, logger=fit_logger, callbacks=[saver], **options).fit(
        make_model(), make_data()
    )
    alone = TensorBoardLogger(tmp_path, name="alone", version=0)
    make_trainer(tmp_path, logger=alone, **options).validate(
        make_model(), make_data(), ckpt_path=tmp_path / "12.ckpt", verbose=False, weights_only=True
    )
    for name in ("fit", "alone"):
        assert logged_steps(tmp_path / name / "version_0", "toy_val/loss/m_0002") == [12]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_features": 0}, "num_features: expected an integer of at least 1, got 0"),
        ({"widths": []}, "widths: expected one or more integers, got none"),
        ({"widths": [3, 3]}, "widths: expected each entry once, got 3 twice"),
        ({"widths": [0]}, "widths: expected an integer of at least 1"),
        ({"lr": 0.0}, "lr: expected a positive finite number, got 0.0"),
        ({"bias_lr": -1.0}, "bias_lr: expected a positive finite number"),
        ({"loss_scale": float("nan")}, "loss_scale: expected a positive finite number"),
        ({"warmup_fraction": 1.5}, "warmup_fraction: expected a share between 0 and 1, got 1.5"),
        ({"lr_floor": -0.1}, "lr_floor: expected a share between 0 and 1"),
        ({"step": "quick"}, "step: expected .sparse. or .dense., got 'quick'"),
    ],
)
def test_bad_arguments(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        SuperpositionAutoencoder(**{"num_features": 12, "widths": [2], **options})


def test_bad_optimizer_settings_are_named_before_there_is_a_run() -> None:
    with pytest.raises(ValueError, match="weight_decay: expected at most 0"):
        make_model(decay_mode="row_norm", weight_decay=1.0)


def test_a_batch_of_another_size_is_named() -> None:
    cells = ActiveCells.from_dense(torch.ones(2, 5))
    with pytest.raises(ValueError, match=r"num_features: expected 12 as in the model.*with 5"):
        make_model().losses(cells)
