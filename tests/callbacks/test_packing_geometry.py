"""The geometry of a packing: values against numpy, the run around it, the figure."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import TensorBoardLogger

from callbacks import Moment, PackingGeometry
from tests.callbacks.events import images, scalars
from tests.callbacks.toy import toy_trainer
from toolkit.functional import welch_bound
from toolkit.models import VectorPacking
from toolkit.runs.table import read_measurements

QUANTITIES = {
    "num_nonfinite",
    "max_abs_cosine",
    "mean_squared_cosine",
    "best_max_abs_cosine",
    "welch_gap",
    "exponent",
    "restarts",
}


def make_model(**options: Any) -> VectorPacking:
    torch.manual_seed(0)
    return VectorPacking(**{"num_vectors": 30, "dim": 5, **options})


def measured(model: VectorPacking) -> dict[str, float]:
    callback = PackingGeometry()
    callback.check(SimpleNamespace(), model)  # type: ignore[arg-type]
    with torch.no_grad():
        points = callback.measure(Moment(SimpleNamespace(), model, 0, {}))  # type: ignore[arg-type]
    return {point.quantity: point.value for point in points}


def test_values_against_their_definitions() -> None:
    model = make_model(exponent=(6, 40))
    rows = model.vectors.detach().double().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[~np.eye(30, dtype=bool)]
    largest = np.abs(cosines).max()
    assert measured(model) == {
        "num_nonfinite": 0,
        "max_abs_cosine": pytest.approx(largest, rel=1e-6),
        "mean_squared_cosine": pytest.approx((cosines**2).mean(), rel=1e-6),
        "best_max_abs_cosine": pytest.approx(largest, rel=1e-6),
        "welch_gap": pytest.approx(largest - welch_bound(30, 5), rel=1e-6),
        "exponent": 6,
        "restarts": 0,
    }


def test_the_best_vectors_count_where_the_present_ones_are_worse() -> None:
    model = make_model()
    model.best_max_abs_cosine.fill_(0.25)
    model.restarts.fill_(3)
    values = measured(model)
    assert values["best_max_abs_cosine"] == 0.25
    assert values["welch_gap"] == pytest.approx(0.25 - welch_bound(30, 5))
    assert values["restarts"] == 3
    assert values["max_abs_cosine"] > 0.25


def test_non_finite_vectors_are_counted() -> None:
    model = make_model()
    with torch.no_grad():
        model.vectors[2:4, 1] = math.nan
    model.best_max_abs_cosine.fill_(0.5)
    values = measured(model)
    assert values["num_nonfinite"] == 2
    assert math.isnan(values["max_abs_cosine"])
    assert math.isnan(values["mean_squared_cosine"])
    assert values["best_max_abs_cosine"] == 0.5


def test_a_run_ends_with_its_numbers_and_figures(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, name="packing", version=0)
    callback, model = PackingGeometry(schedule=10), make_model()
    toy_trainer(callback, logger=logger, max_steps=25).fit(model)
    folder = tmp_path / "packing" / "version_0"
    rows = read_measurements(folder / "measurements.csv")
    assert {row.quantity for row in rows} == QUANTITIES
    assert {row.step for row in rows} == {0, 10, 20, 25}
    assert {row.num_points for row in rows} == {30}
    assert rows[0].conditions == {"num_vectors": 30, "dim": 5}
    best = {row.step: row.value for row in rows if row.quantity == "best_max_abs_cosine"}
    assert best[0] > best[10] > best[20]
    # float32 in the model, the callback's own pass may round otherwise.
    assert best[25] == pytest.approx(model.best_max_abs_cosine.item(), rel=1e-6)
    series = scalars(folder)
    assert {f"packing/{quantity}" for quantity in QUANTITIES} <= series.keys()
    assert "packing/abs_cosine_histogram" in images(folder)
    (line,) = callback.headline_lines()
    assert line.startswith(f"max |cos| = {best[25]:.4f} for 30 vectors in 5 dimensions (Welch 0.4")
    assert "published" not in line
    assert line.endswith("), 0 restarts")


def test_the_published_value_stands_beside_a_published_size() -> None:
    callback = PackingGeometry()
    model = make_model(num_vectors=2000, dim=32)
    callback.check(SimpleNamespace(), model)  # type: ignore[arg-type]
    callback.history = {3: {"packing/best_max_abs_cosine": 0.36, "packing/restarts": 1.0}}
    (line,) = callback.headline_lines()
    assert line.endswith(
        " 2,000 vectors in 32 dimensions (Welch 0.1754, published 0.3859), 1 restarts"
    )
    moment = Moment(SimpleNamespace(), model, 4, {})  # type: ignore[arg-type]
    (figure,) = callback.figures(moment, {"packing/max_abs_cosine": 0.7}).values()
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "largest 0.7000",
        "Welch bound 0.1754",
        "published 0.3859",
    ]


def test_nothing_measured_has_no_headline_and_no_figure() -> None:
    callback, model = PackingGeometry(), make_model()
    assert callback.headline_lines() == []
    with torch.no_grad():
        model.vectors[0, 0] = math.inf
    moment = Moment(SimpleNamespace(), model, 4, {})  # type: ignore[arg-type]
    assert callback.figures(moment, {}) == {}


def test_watching_changes_nothing() -> None:
    watched, alone = make_model(), make_model()
    toy_trainer(PackingGeometry(schedule=1), max_steps=8).fit(watched)
    toy_trainer(max_steps=8).fit(alone)
    for ours, theirs in zip(
        watched.state_dict().values(), alone.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a VectorPacking for PackingGeometry, got Bor"):
        toy_trainer(PackingGeometry()).fit(BoringModel())
