"""The figures of a language model show the numbers they were given, at the right place."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from toolkit.figures.deviation import cosine_histograms
from toolkit.figures.layers import layer_step_heat_map

VALUES = {
    512: {"layer_00": -2.0, "layer_01": 1.0, "final": 4.0},
    0: {"layer_00": 0.5, "layer_01": math.nan, "final": -1.0},
}


def labels(figure: Figure, axis: str) -> list[str]:
    ticks = getattr(figure.axes[0], f"get_{axis}ticklabels")()
    places = getattr(figure.axes[0], f"get_{axis}ticks")()
    return [
        text.get_text() for _, text in sorted(zip(places, ticks, strict=True), key=lambda t: t[0])
    ]


def test_heat_map_puts_layers_upwards_and_steps_to_the_right() -> None:
    figure = layer_step_heat_map(VALUES, label="PGA z")
    (image,) = figure.axes[0].get_images()
    shown: Any = image.get_array()
    np.testing.assert_array_equal(shown.filled(np.nan), [[0.5, -2.0], [math.nan, 1.0], [-1.0, 4.0]])
    assert image.origin == "lower"
    assert labels(figure, "x") == ["0", "512"]
    # The paper's layer L is what we call final.
    assert labels(figure, "y") == ["00", "01*", "final"]
    assert figure.axes[0].get_title() == "PGA z, step 512"
    # White stands for 0.
    assert image.get_clim() == (-4.0, 4.0)


def test_heat_map_marks_steps_with_equal_weights_or_an_equal_matrix() -> None:
    values = {step: {"layer_00": 1.0} for step in (0, 1, 512)}
    figure = layer_step_heat_map(values, label="z", marked={1}, partly_marked={512})
    assert labels(figure, "x") == ["0", "1*", "512+"]
    assert (
        figure.axes[0].get_xlabel().endswith("; * same weights as earlier; + same embedding matrix")
    )


def test_only_the_last_block_of_all_is_said_not_to_be_in_the_paper() -> None:
    values = {0: {"layer_00": 1.0, "layer_01": 2.0, "final": 3.0}}
    figure = layer_step_heat_map(values, label="z", complete=False)
    assert labels(figure, "y") == ["00", "01", "final"]
    assert figure.axes[0].get_ylabel() == "layer"


def test_layers_beyond_99_are_in_their_order() -> None:
    values = {0: {f"layer_{index:02d}": float(index) for index in (98, 99, 100, 101)}}
    figure = layer_step_heat_map(values, label="z")
    assert labels(figure, "y") == ["98", "99", "100", "101"]


def test_heat_map_of_one_sign_uses_its_own_range() -> None:
    figure = layer_step_heat_map({3: {"layer_00": 0.25, "layer_01": 0.75}}, label="accuracy")
    assert figure.axes[0].get_images()[0].get_clim() == (0.25, 0.75)
    assert labels(figure, "y") == ["00", "01"]


def test_heat_map_of_nothing_finite_stays_empty() -> None:
    figure = layer_step_heat_map({0: {"layer_00": math.nan}}, label="PGA z")
    assert not figure.axes[0].get_images()
    assert len(figure.axes) == 1


def test_heat_map_labels_at_most_a_dozen_steps_and_the_last() -> None:
    values = {step: {"layer_00": float(step)} for step in range(40)}
    shown = labels(layer_step_heat_map(values, label="z"), "x")
    assert len(shown) <= 12
    assert shown[-1] == "39"


def test_histograms_are_densities() -> None:
    counts = {
        "input": torch.tensor([0, 0, 6, 2, 0, 0]),
        "output": torch.tensor([0, 0, 0, 1, 3, 0]),
    }
    epsilons = {"input": 0.2, "output": 0.5}
    figure = cosine_histograms(counts, step=7, epsilons=epsilons)
    axes = figure.axes[0]
    drawn = [patch.get_data() for patch in axes.patches]  # type: ignore[attr-defined]
    for found, bins in zip(drawn, counts.values(), strict=True):
        assert (found.values * np.diff(found.edges)).sum() == pytest.approx(1)
        np.testing.assert_allclose(found.values, bins / bins.sum() * 3)
    positions = {line.get_label(): line.get_xdata()[0] for line in axes.get_lines()}  # type: ignore[index]
    assert positions["epsilon 0.2000"] == 0.2
    assert positions["epsilon 0.5000"] == 0.5
    low, high = axes.get_xlim()
    assert low < -1 / 3
    assert high > 2 / 3
    assert axes.get_title() == "Cosines of all pairs, step 7"
    some = cosine_histograms(counts, step=7, epsilons=epsilons, num_drawn=4096)
    assert some.axes[0].get_title() == "Cosines of pairs of 4,096 rows, step 7"
