"""The live scaling law: values against the definitions, its figure, and runs around it."""

import math
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import TensorBoardLogger
from scipy.stats import linregress

from callbacks import Moment, Point, ScalingLaw, SuperpositionGeometry
from tests.callbacks.events import images, scalars
from tests.callbacks.toy import NUM_FEATURES, WIDTHS, toy_data, toy_model, toy_trainer
from toolkit.data import PowerFrequencies, SparseFeatures, UniformFrequencies
from toolkit.models import SuperpositionAutoencoder
from toolkit.runs.summary import collect
from toolkit.runs.table import read_measurements


def by_tag(points: list[Point]) -> dict[str, float]:
    return {ScalingLaw().tag(point.quantity, point.layer): point.value for point in points}


def measured(model: SuperpositionAutoencoder, data: SparseFeatures) -> dict[str, float]:
    trainer = toy_trainer()
    trainer.datamodule = data  # type: ignore[attr-defined]
    with torch.no_grad():
        points = ScalingLaw().measure(Moment(trainer, model, 0, {}))
    return by_tag(points)


def reference_loss(model: SuperpositionAutoencoder, data: SparseFeatures, index: int) -> float:
    """Mean over samples of the squared error summed over features, in float64."""
    weight = model.weights[index].detach().double().numpy()
    bias = model.biases[index].detach().double().numpy()
    x = np.concatenate([batch.dense().double().numpy() for batch in data.held_out()])
    error = np.maximum(x @ weight @ weight.T + bias, 0) - x
    return float((error**2).sum(1).mean())


def test_losses_are_those_of_the_held_out_samples() -> None:
    model, data = toy_model(), toy_data()
    values = measured(model, data)
    for index, m in enumerate(WIDTHS):
        expected = reference_loss(model, data, index)
        assert values[f"scaling/loss/m_{m:04d}"] == pytest.approx(expected, rel=1e-5)
        mean = values[f"scaling/loss_mean/m_{m:04d}"]
        assert mean == pytest.approx(expected / NUM_FEATURES, rel=1e-5)
        assert values[f"scaling/num_nonfinite/m_{m:04d}"] == 0


@pytest.mark.parametrize("order", [[5, 2, 3], [2, 3, 5]], ids=["shuffled", "sorted"])
def test_the_fit_is_a_log_log_regression(order: list[int]) -> None:
    torch.manual_seed(1)
    model = SuperpositionAutoencoder(NUM_FEATURES, order)
    values = measured(model, toy_data())
    x = np.log([2, 3, 5])
    y = np.log([values[f"scaling/loss/m_{m:04d}"] for m in (2, 3, 5)])
    line = linregress(x, y)
    assert values["scaling/alpha_m"] == pytest.approx(-line.slope)
    assert values["scaling/alpha_m_stderr"] == pytest.approx(line.stderr)
    assert values["scaling/r2"] == pytest.approx(line.rvalue**2)
    assert (values["scaling/window_min"], values["scaling/window_max"]) == (2, 5)
    slopes = -np.diff(y) / np.diff(x)
    assert values["scaling/local_slope/m_0002_m_0003"] == pytest.approx(slopes[0])
    assert values["scaling/local_slope/m_0003_m_0005"] == pytest.approx(slopes[1])


def test_the_weak_prediction_is_exact_at_finite_n() -> None:
    data = toy_data()
    tails = [4 / 3 * data.probabilities[m:].sum().item() for m in WIDTHS]
    expected = -linregress(np.log(WIDTHS), np.log(tails)).slope
    assert measured(toy_model(), data)["scaling/alpha_m_weak"] == pytest.approx(expected)


def test_a_single_width_has_a_loss_and_no_law() -> None:
    values = measured(SuperpositionAutoencoder(NUM_FEATURES, [3]), toy_data())
    assert set(values) == {f"scaling/{q}/m_0003" for q in ("num_nonfinite", "loss", "loss_mean")}


def test_two_widths_have_no_standard_error() -> None:
    values = measured(SuperpositionAutoencoder(NUM_FEATURES, [2, 5]), toy_data())
    losses = [values[f"scaling/loss/m_{m:04d}"] for m in (2, 5)]
    slope = math.log(losses[0] / losses[1]) / math.log(5 / 2)
    assert values["scaling/alpha_m"] == pytest.approx(slope)
    assert not {"scaling/alpha_m_stderr", "scaling/r2"} & set(values)


def test_two_points_are_marked() -> None:
    model, data = SuperpositionAutoencoder(NUM_FEATURES, [2, 5]), toy_data()
    law = ScalingLaw(schedule=[1])
    trainer = toy_trainer(law, max_steps=1)
    trainer.fit(model, data)
    alpha = law.latest["scaling/alpha_m"]
    assert law.headline_lines() == [f"alpha_m = {alpha:.3f} for m = 2 to 5 (two points)"]
    (axes,) = law.figures(Moment(trainer, model, 1, {}), law.latest)["loss_against_width"].axes
    labels = [str(line.get_label()) for line in axes.get_lines()]
    assert f"fit: slope {-alpha:.2f}, two points" in labels


def test_two_usable_losses_of_three_say_why_they_have_no_error() -> None:
    model = toy_model()
    trainer = toy_trainer()
    trainer.datamodule = toy_data()  # type: ignore[attr-defined]
    with torch.no_grad():
        model.weights[1][0] = math.inf
        points = {p.quantity: p for p in ScalingLaw().measure(Moment(trainer, model, 0, {}))}
    assert (points["alpha_m"].num_points, points["alpha_m"].reason) == (2, "")
    for name in ("alpha_m_stderr", "r2"):
        assert math.isnan(points[name].value)
        assert points[name].reason == "two points"


@pytest.mark.parametrize("bad", [[1], [0, 1], [0, 1, 2]], ids=["one", "two", "all"])
def test_non_finite_widths_leave_the_fit(bad: list[int], tmp_path: Path) -> None:
    model, logger = toy_model(), TensorBoardLogger(tmp_path)
    with torch.no_grad():
        for index in bad:
            model.weights[index][0] = math.inf
    callback = ScalingLaw(on_error="raise", schedule=[0])
    with pytest.warns(UserWarning, match=r"^scaling: \d+ values in m_.* not finite at step 0"):
        toy_trainer(callback, logger=logger, max_steps=1).fit(model, toy_data())
    values = callback.history[0]
    for index, m in enumerate(WIDTHS):
        assert math.isnan(values[f"scaling/loss/m_{m:04d}"]) is (index in bad)
        assert (values[f"scaling/num_nonfinite/m_{m:04d}"] >= m) is (index in bad)
    assert math.isnan(values["scaling/alpha_m"]) is (len(bad) > 1)
    window = [values["scaling/window_min"], values["scaling/window_max"]]
    assert window == [2, 5] if len(bad) == 1 else np.isnan(window).all()
    assert images(logger.log_dir)["scaling/loss_against_width"] == [0, 1]
    assert np.isfinite(values["scaling/alpha_m_weak"])


@pytest.mark.parametrize(
    ("exponent", "label"),
    [(None, "strong: slope -1.00"), (1.0, "strong: slope -1.00"), (2.0, "strong: slope -2.00")],
)
def test_the_figure_has_both_predictions(exponent: float | None, label: str) -> None:
    data = SparseFeatures(
        NUM_FEATURES,
        UniformFrequencies() if exponent is None else PowerFrequencies(exponent),
        batch_size=16,
        num_held_out=1,
        seed=0,
    )
    model, callback = toy_model(), ScalingLaw()
    trainer = toy_trainer()
    trainer.datamodule = data  # type: ignore[attr-defined]
    moment = Moment(trainer, model, 7, {})
    with torch.no_grad():
        values = by_tag(callback.measure(moment))
        (axes,) = callback.figures(moment, values)["loss_against_width"].axes
    lines = {line.get_label(): np.array(line.get_ydata(), float) for line in axes.get_lines()}
    losses = [values[f"scaling/loss/m_{m:04d}"] for m in WIDTHS]
    np.testing.assert_allclose(lines["measured"], losses)
    weak = [4 / 3 * data.probabilities[m:].sum().item() for m in WIDTHS]
    np.testing.assert_allclose(lines["weak: 4/3 Σ p_i over i > m"], weak)
    slope = float(label.rpartition(" ")[2])
    strong = np.log(lines[label])
    np.testing.assert_allclose(np.diff(strong) / np.diff(np.log(WIDTHS)), slope)
    assert strong.mean() == pytest.approx(np.log(losses).mean())
    alpha = values["scaling/alpha_m"]
    fit = np.log(lines[f"fit: slope {-alpha:.2f}"])
    np.testing.assert_allclose(np.diff(fit) / np.diff(np.log(WIDTHS)), -alpha)


def test_rows_carry_the_samples_they_were_measured_on(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path)
    toy_trainer(ScalingLaw(schedule=6), logger=logger).fit(toy_model(), toy_data())
    rows = read_measurements(Path(logger.log_dir) / "measurements.csv")
    assert rows[0].conditions == {"num_held_out": 2, "batch_size": 16, "data_seed": 0}
    points = {row.quantity: row.num_points for row in rows}
    assert (points["loss"], points["alpha_m"], points["local_slope"]) == (32, 3, 2)
    steps = [step for step, _ in scalars(logger.log_dir)["scaling/alpha_m"]]
    assert steps == [0, 6]


@pytest.mark.parametrize("stage", ["fit", "validate"])
def test_without_its_data_it_is_refused_in_setup(stage: str) -> None:
    trainer, model, data = toy_trainer(ScalingLaw()), toy_model(), toy_data(steps_per_epoch=2)
    loaders = [data.val_dataloader()]
    if stage == "fit":
        loaders.insert(0, data.train_dataloader())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="datamodule: expected SparseFeatures for ScalingLaw, got"):
        getattr(trainer, stage)(model, *loaders)


def test_another_model_is_refused_in_setup() -> None:
    with pytest.raises(ValueError, match="got BoringModel; remove the callback"):
        toy_trainer(ScalingLaw()).fit(BoringModel())


def test_the_headline_of_a_run() -> None:
    law, geometry = ScalingLaw(schedule=[1]), SuperpositionGeometry(schedule=[1])
    assert law.headline_lines() == []
    toy_trainer(law, geometry, max_steps=1).fit(toy_model(), toy_data())
    summary = collect([law, geometry])
    assert summary.columns == ["loss (sum)", "represented", "overlap x m"]
    assert list(summary.cells) == ["m_0002", "m_0003", "m_0005"]
    assert summary.cells["m_0003"] == {
        "loss (sum)": law.latest["scaling/loss/m_0003"],
        "represented": geometry.latest["superposition/represented_fraction/m_0003"],
        "overlap x m": geometry.latest["superposition/overlap_times_m/m_0003"],
    }
    alpha, error = law.latest["scaling/alpha_m"], law.latest["scaling/alpha_m_stderr"]
    r2 = law.latest["scaling/r2"]
    assert summary.lines == [f"alpha_m = {alpha:.3f} ± {error:.3f} for m = 2 to 5 (R2 {r2:.3f})"]


# Observers ------------------------------------------------------------------------------------


class Losses(Callback):
    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        self.values.append(outputs["loss"].item())


def run(*callbacks: Callback, **options: Any) -> tuple[list[float], torch.Tensor]:
    L.seed_everything(3, verbose=False)
    model, losses = toy_model(), Losses()
    # No seed for the data: it takes torch's, as for a user who gives none.
    toy_trainer(*callbacks, losses, max_steps=200, **options).fit(model, toy_data(seed=None))
    return losses.values, torch.cat([p.detach().flatten() for p in model.parameters()])


def test_watching_changes_no_bit_of_the_run(tmp_path: Path) -> None:
    plain_losses, plain_weights = run()
    law, geometry = ScalingLaw(schedule=[100]), SuperpositionGeometry(schedule=[3])
    logger = TensorBoardLogger(tmp_path)
    watched_losses, watched_weights = run(law, geometry, logger=logger, log_every_n_steps=50)
    assert list(law.history) == [0, 100, 200]
    assert list(geometry.history) == [0, 3, 200]
    assert watched_losses == plain_losses
    assert torch.equal(watched_weights, plain_weights)


def test_a_checkpoint_can_keep_the_best_width(tmp_path: Path) -> None:
    save = ModelCheckpoint(tmp_path, monitor="scaling/loss/m_0005", every_n_train_steps=1)
    law = ScalingLaw(schedule=1)
    toy_trainer(law, save, enable_checkpointing=True, max_steps=12).fit(toy_model(), toy_data())
    losses = [law.history[step]["scaling/loss/m_0005"] for step in range(1, 13)]
    assert save.best_model_score is not None
    assert save.best_model_score.item() == min(losses)
