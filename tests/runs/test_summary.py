"""The table at the end of a run, and its file."""

import json
import math
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from rich.console import Console

from toolkit.runs.summary import Summary, collect


class Measuring:
    """Looks like a measuring callback."""

    def __init__(
        self, prefix: str, columns: dict[str, str], history: dict[int, Any], *lines: str
    ) -> None:
        self.prefix = prefix
        self.headline_columns = columns
        self.history = history
        self._lines = list(lines)

    @property
    def latest(self) -> dict[str, float]:
        return self.history[max(self.history)] if self.history else {}

    heat_maps: ClassVar[dict[str, str]] = {}
    layers = None

    def number_among(self, callbacks: Any) -> None:
        pass

    def headline_lines(self) -> list[str]:
        return self._lines

    def nonfinite_lines(self) -> list[str]:
        return [f"{self.prefix}: 3 values not finite"] if self.prefix == "broken" else []


SCALING = Measuring(
    "scaling",
    {"loss": "loss (sum)"},
    {
        0: {"scaling/loss/m_0010": 9.0},
        30: {
            "scaling/loss/m_0010": 0.25,
            "scaling/loss/m_0002": 1.5,
            "scaling/loss_mean/m_0010": 7.0,
            "scaling/alpha_m": 1.1,
        },
    },
    "alpha_m = 1.1 [window]",
)
GEOMETRY = Measuring(
    "superposition",
    {"represented_fraction": "represented"},
    {20: {"superposition/represented_fraction/m_0010": math.nan}},
)


def printed(summary: Summary) -> str:
    text = StringIO()
    summary.print(Console(file=text, width=80))
    return text.getvalue()


def test_collect_takes_the_last_values_in_order() -> None:
    summary = collect([object(), SCALING, GEOMETRY])
    assert summary.step == 30
    assert summary.columns == ["loss (sum)", "represented"]
    assert list(summary.cells) == ["m_0002", "m_0010"]
    assert summary.cells["m_0002"] == {"loss (sum)": 1.5}
    assert summary.cells["m_0010"]["loss (sum)"] == 0.25
    assert math.isnan(summary.cells["m_0010"]["represented"])
    assert summary.lines == ["alpha_m = 1.1 [window]"]
    assert summary.values["scaling/loss_mean/m_0010"] == 7.0


def test_the_printed_table() -> None:
    lines = printed(collect([SCALING, GEOMETRY])).splitlines()
    words = [line.replace("│", " ").replace("┃", " ").split() for line in lines]
    assert ["width", "loss", "(sum)", "represented"] in words
    assert ["2", "1.5", "-"] in words
    # The first step stands beside the last one.
    assert ["10", "0.25", "(9)", "-"] in words
    assert "After step 30 (in brackets: step 0)" in lines[0]
    assert lines[-1] == "alpha_m = 1.1 [window]"


def test_layers_that_are_no_widths_keep_their_names() -> None:
    layers = {"pga/z/layer_01": 2.0, "pga/z/final": 3.0}
    text = printed(collect([Measuring("pga", {"z": "z"}, {5: layers})]))
    assert "layer_01" in text
    assert "layer " in text


@pytest.mark.parametrize("callbacks", [[], [Measuring("scaling", {"loss": "loss"}, {})]])
def test_nothing_measured_prints_nothing(callbacks: list[Any]) -> None:
    summary = collect(callbacks)
    assert summary.step is None
    assert printed(summary) == ""


def test_a_failed_last_step_shows_no_older_value() -> None:
    failed = Measuring("scaling", {"loss": "loss"}, {0: {"scaling/loss/m_0010": 9.0}, 8: {}})
    assert collect([failed]).cells == {}
    assert collect([failed]).step == 8


def test_the_file_is_json_with_null_for_nan(tmp_path: Path) -> None:
    path = tmp_path / "run" / "summary.json"
    collect([SCALING, GEOMETRY]).write(path)
    content = json.loads(path.read_text())
    assert content["step"] == 30
    assert content["cells"]["m_0010"] == {"loss (sum)": 0.25, "represented": None}
    assert content["values"]["scaling/alpha_m"] == 1.1
    assert content["values"]["superposition/represented_fraction/m_0010"] is None
    assert content["lines"] == ["alpha_m = 1.1 [window]"]
    assert content["first_step"] == 0
    assert content["first_cells"] == {"m_0010": {"loss (sum)": 9.0}}
    assert [p.name for p in path.parent.iterdir()] == ["summary.json"]


def test_a_kill_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        collect([SCALING]).write(path)
    assert path.read_text() == "old"


def test_two_callbacks_with_the_same_titles_have_columns_of_their_own() -> None:
    first = Measuring("test", {"z": "z"}, {5: {"test/z/final": 1.0}})
    second = Measuring("test_2", {"z": "z"}, {5: {"test_2/z/final": 2.0}})
    summary = collect([first, second])
    assert summary.columns == ["z", "z (test_2)"]
    assert summary.cells == {"final": {"z": 1.0, "z (test_2)": 2.0}}


@pytest.mark.parametrize(
    ("ordered", "names"),
    [
        (["layer_99", "layer_100", "final"], ["layer_99", "layer_100", "final"]),
        # Alphabetically, input and others would come behind final as well.
        (["a_block", "input", "final"], ["a_block", "input", "final"]),
        (["m_0010", "m_12000"], ["10", "12000"]),
    ],
    ids=["layers", "final", "widths"],
)
def test_layers_and_widths_are_in_their_order(ordered: list[str], names: list[str]) -> None:
    values = {f"pga/z/{layer}": 1.0 for layer in reversed(ordered)}
    summary = collect([Measuring("pga", {"z": "z"}, {5: values})])
    assert list(summary.cells) == ordered
    cells = [line.replace("│", " ").split() for line in printed(summary).splitlines()]
    assert [row[0] for row in cells if row[1:] == ["1"]] == names


@pytest.mark.parametrize(
    "attribute", ["history", "headline_columns", "heat_maps", "layers", "texts", "latest"]
)
def test_one_attribute_makes_no_measuring_callback(attribute: str) -> None:
    other = SimpleNamespace(**{attribute: ["of the user"]})
    assert collect([other, SCALING]).columns == ["loss (sum)"]
