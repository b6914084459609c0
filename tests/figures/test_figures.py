"""Figures say what they show: labels, ticks, and exactly the numbers they were given."""

import math
import subprocess
import sys
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from toolkit.figures.packing import abs_cosine_histogram, measured_against_fitted
from toolkit.figures.toy import loss_against_width, norm_histogram, overlap_against_width

LOSSES = {10: 1.1, 51: 0.2, 23: 0.5}
LINES = {"fit": {10: 1.0, 23: 0.45, 51: 0.21}, "strong": {10: 1.2, 23: 0.4, 51: 0.1}}


def axes_of(figure: Figure) -> Axes:
    (axes,) = figure.axes
    return axes


def pixels(figure: Figure) -> np.ndarray:
    data = BytesIO()
    figure.savefig(data, format="raw", dpi=figure.dpi)
    return np.frombuffer(data.getvalue(), np.uint8).reshape(440, 616, 4)


def curves(figure: Figure) -> dict[Any, tuple[list[float], list[float]]]:
    lines = axes_of(figure).get_lines()
    return {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))  # type: ignore[arg-type]
        for line in lines
    }


def test_loss_against_width_shows_points_and_lines() -> None:
    figure = loss_against_width(LOSSES, step=1000, lines=LINES)
    assert curves(figure) == {
        "fit": ([10, 23, 51], [1.0, 0.45, 0.21]),
        "strong": ([10, 23, 51], [1.2, 0.4, 0.1]),
        "measured": ([10, 23, 51], [1.1, 0.5, 0.2]),
    }
    axes = axes_of(figure)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_title() == "Loss against width, step 1,000"
    assert axes.get_xlabel() == "width m"
    assert axes.get_ylabel() == "loss (squared error, sum over features)"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["10", "23", "51"]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["fit", "strong", "measured"]


def test_what_a_logarithm_cannot_show_is_left_out() -> None:
    losses = {1: math.nan, 2: 0.0, 3: -1.0, 4: math.inf, 5: 0.5}
    figure = loss_against_width(losses, step=0, lines={"weak": {4: 1.0, 5: 0.0}})
    assert curves(figure) == {"weak": ([4], [1.0]), "measured": ([5], [0.5])}
    assert pixels(figure).std() > 0


def test_norm_histogram_counts_every_feature() -> None:
    norms = {10: torch.tensor([0.0, 0.1, 1.0, 1.1]), 5: torch.tensor([0.9, 1.0, 3.0, 1.0])}
    axes = axes_of(norm_histogram(norms, step=5, threshold=0.5))
    shares = [patch.get_data() for patch in axes.patches]  # type: ignore[attr-defined]
    for data, m in zip(shares, (5, 10), strict=True):
        assert data.values.sum() == pytest.approx(1)
        above = data.values[data.edges[:-1] >= 0.5].sum()
        assert above == pytest.approx((norms[m] > 0.5).double().mean().item())
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["m = 5", "m = 10"]
    assert axes.get_xlabel() == "row norm of W (one row per feature)"
    assert axes.get_ylabel() == "share of features"
    assert list(axes.get_lines()[0].get_xdata()) == [0.5, 0.5]  # type: ignore[arg-type]


def test_overlap_against_width_draws_both_limits() -> None:
    overlap = {4: 0.3, 8: 0.15}
    figure = overlap_against_width(
        overlap, step=0, represented={4: math.nan, 8: 0.2}, welch=overlap
    )
    assert curves(figure) == {
        "random directions, 1/m": ([4, 8], [0.25, 0.125]),
        "tight frame (Welch)": ([4, 8], [0.3, 0.15]),
        "all rows": ([4, 8], [0.3, 0.15]),
        "represented rows": ([8], [0.2]),
    }
    assert axes_of(figure).get_ylabel() == "mean squared cosine of different rows"


@pytest.mark.parametrize("published", [None, 0.5])
def test_abs_cosine_histogram_folds_the_signs(published: float | None) -> None:
    counts = torch.zeros(400, dtype=torch.int64)
    counts[[195, 204, 240]] = torch.tensor([1, 2, 5])  # |cos| 0.02 to 0.025 and 0.2 to 0.205
    axes = axes_of(
        abs_cosine_histogram(counts, step=9, largest=0.203, welch=0.1, published=published)
    )
    (patch,) = axes.patches
    data = patch.get_data()  # type: ignore[attr-defined]
    assert data.values.sum() == pytest.approx(1)
    assert len(data.values) <= 60
    filled = np.flatnonzero(data.values)
    assert data.edges[filled] == pytest.approx([0.02, 0.2])
    assert data.values[filled] == pytest.approx([3 / 8, 5 / 8])
    legend = axes.get_legend()
    assert legend is not None
    expected = ["largest 0.2030", "Welch bound 0.1000", "published 0.5000"]
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == expected[: 3 if published else 2]
    assert axes.get_xlabel() == "|cos|"
    assert axes.get_ylabel() == "share of pairs"


@pytest.mark.parametrize(("filled", "joined"), [(60, 1), (61, 2), (120, 2), (122, 3)])
def test_abs_cosine_histogram_joins_neighbouring_bins(filled: int, joined: int) -> None:
    """The fewest neighbours that leave at most 60 bins; the last one may hold fewer."""
    positive = torch.arange(1, 201) * (torch.arange(200) < filled)
    counts = torch.cat([torch.zeros(200), positive])
    axes = axes_of(abs_cosine_histogram(counts, step=1, largest=0.6, welch=0.1, published=None))
    data = axes.patches[0].get_data()  # type: ignore[attr-defined]
    starts = range(0, filled, joined)
    sums = [sum(range(start + 1, min(start + joined, filled) + 1)) for start in starts]
    assert data.values == pytest.approx([each / (filled * (filled + 1) / 2) for each in sums])
    assert data.edges == pytest.approx([start / 200 for start in (*starts, starts[-1] + joined)])


def test_measured_against_fitted_shows_every_law() -> None:
    measured = {"full": [0.1, 0.4], "jl": [0.1, 0.2, 0.4]}
    figure = measured_against_fitted(measured, {"full": [0.11, 0.39], "jl": [0.2, 0.2, 0.3]})
    shown = curves(figure)
    assert shown["full"] == ([0.11, 0.39], [0.1, 0.4])
    assert shown["jl"] == ([0.2, 0.2, 0.3], [0.1, 0.2, 0.4])
    axes = axes_of(figure)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("fitted", "measured")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


@pytest.mark.parametrize("decades", [0.1, 0.9, 2, 5, 12])
def test_loss_ticks_are_few_and_present(decades: float) -> None:
    losses = {10: 1.0, 100: 10**-decades}
    figure = loss_against_width(losses, step=0, lines={})
    pixels(figure)
    axes = axes_of(figure)
    low, high = axes.get_ylim()
    assert 2 <= sum(low <= tick <= high for tick in axes.get_yticks()) <= 14


def test_width_labels_do_not_touch() -> None:
    widths = [*range(8, 40, 2), 1024]
    figure = loss_against_width(dict.fromkeys(widths, 1.0), step=0, lines={})
    positions = np.log(axes_of(figure).get_xticks())
    assert np.diff(positions).min() > 0.05 * np.log(1024 / 8)


def test_nothing_measured_is_still_a_figure() -> None:
    for figure in (
        loss_against_width({3: math.nan}, step=0, lines={}),
        norm_histogram({}, step=0, threshold=0.5),
        overlap_against_width({3: math.nan}, step=0, represented={}, welch={}),
    ):
        assert pixels(figure).std() > 0


def test_pyplot_and_matplotlib_stay_out_until_a_figure_is_drawn() -> None:
    code = (
        "import sys, toolkit.figures.toy as f; assert 'matplotlib' not in sys.modules; "
        "f.loss_against_width({1: 1.0, 2: 0.5}, step=0, lines={}); "
        "assert 'matplotlib' in sys.modules; assert 'matplotlib.pyplot' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
