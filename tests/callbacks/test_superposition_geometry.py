"""The geometry of W: values against numpy, degenerate weights, and the run around it."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import TensorBoardLogger

from callbacks import Moment, SuperpositionGeometry
from tests.callbacks.events import images, scalars
from tests.callbacks.toy import NUM_FEATURES, WIDTHS, toy_data, toy_model, toy_trainer
from toolkit.models import SuperpositionAutoencoder
from toolkit.runs.table import read_measurements

QUANTITIES = {
    "num_nonfinite",
    "represented_fraction",
    "norm_p05",
    "norm_p25",
    "norm_p50",
    "norm_p75",
    "norm_p95",
    "overlap_times_m",
    "overlap_represented_times_m",
    "welch_times_m",
    "mean_bias",
}


def measured(model: SuperpositionAutoencoder, **options: Any) -> dict[str, float]:
    callback = SuperpositionGeometry(**options)
    with torch.no_grad():
        points = callback.measure(Moment(SimpleNamespace(), model, 0, {}))  # type: ignore[arg-type]
    return {callback.tag(point.quantity, point.layer): point.value for point in points}


def reference(weight: np.ndarray, bias: np.ndarray, threshold: float) -> dict[str, float]:
    """The quantities by their definitions, in float64."""
    n, m = weight.shape
    norms = np.sqrt((weight**2).sum(1))

    def overlap(rows: np.ndarray) -> float:
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        squared = [(a @ b) ** 2 for i, a in enumerate(unit) for j, b in enumerate(unit) if i != j]
        return float(np.mean(squared))

    return {
        "num_nonfinite": 0,
        "represented_fraction": (norms > threshold).mean(),
        **{f"norm_p{p:02d}": float(np.percentile(norms, p)) for p in (5, 25, 50, 75, 95)},
        "overlap_times_m": m * overlap(weight),
        "overlap_represented_times_m": m * overlap(weight[norms > threshold]),
        "welch_times_m": (n - m) / (n - 1),
        "mean_bias": bias.mean(),
    }


@pytest.mark.parametrize("threshold", [0.5, 1.1])
def test_values_against_their_definitions(threshold: float) -> None:
    model = toy_model()
    values = measured(model, represented_threshold=threshold)
    assert len(values) == len(WIDTHS) * len(QUANTITIES)
    for m, weight, bias in zip(WIDTHS, model.weights, model.biases, strict=True):
        arrays = weight.detach().double().numpy(), bias.detach().double().numpy()
        for quantity, expected in reference(*arrays, threshold).items():
            found = values[f"superposition/{quantity}/m_{m:04d}"]
            assert found == pytest.approx(expected, rel=1e-5), quantity


def test_a_tight_frame_reaches_the_welch_value() -> None:
    """Three unit vectors at 120 degrees: cos^2 = 1/4 = (n - m) / (m (n - 1))."""
    model = SuperpositionAutoencoder(3, [2])
    angles = torch.arange(3) * (2 * math.pi / 3)
    with torch.no_grad():
        model.weights[0].copy_(torch.stack([angles.cos(), angles.sin()], dim=1))
    values = measured(model)
    assert values["superposition/overlap_times_m/m_0002"] == pytest.approx(0.5)
    assert values["superposition/overlap_represented_times_m/m_0002"] == pytest.approx(0.5)
    assert values["superposition/welch_times_m/m_0002"] == pytest.approx(0.5)
    assert values["superposition/represented_fraction/m_0002"] == 1


def test_a_model_that_represents_nothing() -> None:
    model = SuperpositionAutoencoder(8, [2])
    with torch.no_grad():
        model.weights[0].zero_()
    values = measured(model)
    assert values["superposition/represented_fraction/m_0002"] == 0
    assert values["superposition/norm_p95/m_0002"] == 0
    assert math.isnan(values["superposition/overlap_times_m/m_0002"])
    assert math.isnan(values["superposition/overlap_represented_times_m/m_0002"])


def test_more_dimensions_than_features() -> None:
    assert measured(SuperpositionAutoencoder(4, [6]))["superposition/welch_times_m/m_0006"] == 0


def test_measuring_changes_no_weight() -> None:
    model = toy_model()
    before = [parameter.clone() for parameter in model.parameters()]
    measured(model)
    for parameter, kept in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, kept)


@pytest.mark.parametrize("on_error", ["warn", "raise"])
def test_non_finite_weights_are_counted_and_cost_only_their_width(
    tmp_path: Path, on_error: Any
) -> None:
    model, logger = toy_model(), TensorBoardLogger(tmp_path)
    with torch.no_grad():
        model.weights[1][:2, 0] = math.nan
        model.biases[1][5] = math.inf
    callback = SuperpositionGeometry(on_error=on_error, schedule=[0])
    with pytest.warns(UserWarning, match="^superposition: 3 values in m_0003 not finite at step 0"):
        toy_trainer(callback, logger=logger, max_steps=1).fit(model, toy_data())
    values = callback.history[0]
    bad = {tag: value for tag, value in values.items() if tag.endswith("m_0003")}
    assert bad.pop("superposition/num_nonfinite/m_0003") == 3
    assert all(math.isnan(value) for value in bad.values())
    assert len(bad) == len(QUANTITIES) - 1
    good = [value for tag, value in values.items() if not tag.endswith("m_0003")]
    assert np.isfinite(good).all()
    assert values["superposition/num_nonfinite/m_0002"] == 0
    assert images(logger.log_dir)["superposition/norm_histogram"] == [0, 1]


def test_tags_figures_and_rows_of_a_run(tmp_path: Path) -> None:
    logger, callback = TensorBoardLogger(tmp_path), SuperpositionGeometry(schedule=2)
    toy_trainer(callback, logger=logger).fit(toy_model(), toy_data())
    points = scalars(logger.log_dir)
    for quantity in QUANTITIES:
        for m in WIDTHS:
            steps = [step for step, _ in points[f"superposition/{quantity}/m_{m:04d}"]]
            assert steps == [0, 2, 4, 6]
    assert images(logger.log_dir) == {
        "superposition/norm_histogram": [0, 2, 4, 6],
        "superposition/overlap_against_width": [0, 2, 4, 6],
    }
    rows = read_measurements(Path(logger.log_dir) / "measurements.csv")
    assert len(rows) == 4 * len(WIDTHS) * len(QUANTITIES)
    assert {row.num_points for row in rows if "represented_times" not in row.quantity} == {24}
    share, rows_behind = (
        next(row for row in rows if row.quantity == quantity)
        for quantity in ("represented_fraction", "overlap_represented_times_m")
    )
    assert rows_behind.num_points == round(share.value * NUM_FEATURES)
    assert rows[0].conditions == {"represented_threshold": 0.5}
    for row in rows:
        assert row.value == callback.history[row.step][f"superposition/{row.quantity}/{row.layer}"]


@pytest.mark.parametrize("threshold", [-0.1, math.nan])
def test_bad_threshold(threshold: float) -> None:
    with pytest.raises(
        ValueError, match="represented_threshold: expected a finite number of at least 0"
    ):
        SuperpositionGeometry(represented_threshold=threshold)


def test_another_model_is_refused_before_the_first_step() -> None:
    trainer = toy_trainer(SuperpositionGeometry())
    with pytest.raises(ValueError, match="model: expected a SuperpositionAutoencoder for Superpo"):
        trainer.fit(BoringModel())
    assert trainer.global_step == 0


def test_state_key_names_the_arguments() -> None:
    keys = {
        SuperpositionGeometry().state_key,
        SuperpositionGeometry(represented_threshold=0.4).state_key,
        SuperpositionGeometry(schedule=5).state_key,
    }
    assert len(keys) == 3
