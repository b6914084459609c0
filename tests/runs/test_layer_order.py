"""One order of layers, widths and matrices, wherever they are listed."""

import pytest

from tests.figures.test_layers import labels
from toolkit.figures.layers import against_depth, layer_step_heat_map
from toolkit.runs.layer_order import in_layer_order


@pytest.mark.parametrize(
    "ordered",
    [
        ["layer_00", "layer_02", "layer_10", "layer_99", "layer_100", "layer_101", "final"],
        ["m_0010", "m_0010_m_0015", "m_0015", "m_9999", "m_10000", "m_12000"],
        ["input", "output"],
        ["", "layer_00", "final"],
    ],
    ids=["layers", "widths", "matrices", "none"],
)
def test_numbers_count_by_their_size_and_final_is_last(ordered: list[str]) -> None:
    assert in_layer_order(reversed(ordered)) == ordered
    assert in_layer_order(sorted(ordered)) == ordered


def test_figures_take_the_same_order() -> None:
    values = {"final": 3.0, "layer_100": 2.0, "layer_99": 1.0}
    assert labels(layer_step_heat_map({0: values}, label="z"), "y") == ["99", "100*", "final"]
    (line, *_) = (
        line
        for line in against_depth({"m": values}, label="z").axes[0].get_lines()
        if line.get_label() == "m"
    )
    assert list(line.get_ydata()) == [1.0, 2.0, 3.0]  # type: ignore[arg-type]
