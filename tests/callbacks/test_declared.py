"""Callbacks made from a declaration: their arguments, their documentation, and what they refuse."""

import inspect
import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import toolkit.commands.probe.report as walk_report
from callbacks import (
    LanguageModelCallback,
    LinearProbe,
    MeasurementCallback,
    Spectrum,
    SubspacePGA,
    TextCallback,
    UnembeddingOverlap,
)
from tests.callbacks.language import small_texts
from tests.commands.probe.probing import local, probe
from tests.lm.listed_hub import save_revision
from toolkit.cli import main
from toolkit.measures import MEASURES, Measure, NoOptions, Quantity
from toolkit.measures.places import Value, layer_points
from toolkit.runs.table import read_measurements

INHERITED = ["texts", "layers", "rows", "tokenizer", "attribute", "paths", "schedule", "on_error"]
CALLBACKS: list[type[LanguageModelCallback]] = [
    SubspacePGA,
    LinearProbe,
    Spectrum,
    UnembeddingOverlap,
]
LENGTH = Quantity(name="length", label="mean length", meaning="mean norm of the states", unit="1")
DRAWN = Quantity(name="drawn", label="drawn", meaning="twice that", heat_map=True, headline=True)


@dataclass(frozen=True, kw_only=True)
class LengthOptions:
    """Options of the length.

    Args:
        times: Factor.
    """

    times: float = 1.0


def _length_points(subject: Any, options: LengthOptions) -> Any:
    def values(layer: str, hidden: Any) -> dict[str, float | Value]:
        length = options.times * float(hidden.norm(dim=1).mean())
        return {"length": length, "drawn": 2 * length}

    return layer_points(subject, [LENGTH, DRAWN], values)


MEASURE = Measure(
    name="length",
    summary="the length of each layer's states",
    needs=frozenset({"texts"}),
    options=LengthOptions,
    quantities=(LENGTH, DRAWN),
    points=_length_points,
)


class MeanLength(TextCallback):
    """The measure ``length`` as a callback."""

    declaration = MEASURE


class MeanLengthSometimes(MeanLength):
    """Has a constructor with an argument of its own."""

    def __init__(self, *, sometimes: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.sometimes = sometimes


@pytest.mark.parametrize("kind", CALLBACKS, ids=lambda kind: kind.__name__)
def test_arguments_are_the_options_and_those_of_the_bases(kind: Any) -> None:
    declared = kind.declaration
    parameters = inspect.signature(kind).parameters
    inherited = INHERITED if issubclass(kind, TextCallback) else INHERITED[2:]
    assert list(parameters) == [*declared.option_names, *inherited]
    options = declared.options()
    for name in declared.option_names:
        assert parameters[name].default == getattr(options, name)
        assert f"\n    {name}: " in kind.__doc__
    for quantity in declared.quantities:
        assert quantity.meaning in kind.__doc__


def test_the_names_of_metrics_columns_and_figures_are_declared() -> None:
    assert [kind.metric for kind in CALLBACKS] == ["pga", "probe", "spectrum", "unembedding"]
    assert [kind.heat_maps for kind in CALLBACKS] == [
        {"z": "PGA z"},
        {"accuracy": "probe accuracy"},
        {"rankme": "RankMe"},
        {},
    ]
    assert SubspacePGA.headline_columns == {"z": "PGA z", "rho": "rho"}
    # The title of a column has no unit, the label of a figure has one.
    assert (DRAWN.axis_label, LENGTH.axis_label) == ("drawn", "mean length (1)")


def test_the_state_key_keeps_the_order_of_arguments() -> None:
    """A checkpoint of an earlier version continues with its history."""
    assert Spectrum(fit_range=(1, 8), schedule=[0]).state_key == (
        "Spectrum{'schedule': [0], 'rows': 'tokenizer', 'tokenizer': None, 'attribute': None, "
        "'paths': None, 'texts': {'source': 'ag_news', 'num_train': 4000, 'num_test': 1000, "
        "'seed': 0, 'max_length': 128, 'pooling': 'last', 'skip_first': False, 'batch_size': 32}, "
        "'layers': None, 'fit_range': [1, 8]}"
    )


def no_declaration() -> object:
    return TextCallback()


def a_method_alone() -> object:
    class Alone(TextCallback):
        def measure(self, moment: Any) -> Any:
            return []

    return Alone


def a_constructor_beside() -> object:
    class Built(TextCallback):
        declaration = MEASURE

        def __init__(self) -> None:
            super().__init__()

    return Built


def texts_without_their_base() -> object:
    class Matrices(LanguageModelCallback):
        declaration = MEASURE

    return Matrices


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (no_declaration, r"^declaration: expected that of a measure in TextCallback, got none; "),
        (a_method_alone, r"^declaration: expected that of a measure in Alone, got none; "),
        (a_constructor_beside, r"^declaration: expected a class without a constructor, got Built"),
        (
            texts_without_their_base,
            r"^declaration: expected TextCallback .* of Matrices, .* texts,",
        ),
        (lambda: SubspacePGA(depth=3), r"^SubspacePGA: expected no argument depth; remove it$"),
    ],
    ids=["none", "method", "constructor", "base", "argument"],
)
def test_a_class_that_cannot_be_made_is_refused(define: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        define()
    assert "\n" not in str(caught.value)


def test_help_shows_options_with_type_default_and_meaning() -> None:
    output = io.StringIO()
    with redirect_stdout(output):
        assert main(["fit", "--trainer.callbacks.help=LinearProbe"]) == 0
    text = " ".join(output.getvalue().split())
    assert "float | list[float], default: 0.1)" in text
    assert "Penalty of the probe, or several to choose from" in text
    assert "The measured rows of the embedding matrices" in text
    assert "An integer n for every n steps" in text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"class_path": "LinearProbe", "init_args": {"max_iter": "many"}}, "max_iter"),
        ({"class_path": "LinearProbe", "init_args": {"rows": "some"}}, "rows"),
        ({"class_path": "LinearProbe", "init_args": {"depth": 3}}, "depth"),
    ],
    ids=["option", "base", "unknown"],
)
def test_a_configuration_with_a_wrong_argument_is_refused(
    tmp_path: Path, settings: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump({"callbacks": [settings], "series": local(str(tmp_path))}))
    assert main(["probe", f"--config={path}"]) != 0
    assert message in capsys.readouterr().err


def test_a_walk_takes_a_measure_of_this_file_and_a_subclass_with_a_constructor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantity = Quantity(name="drawn", label="drawn", meaning="twice that", against_depth=True)
    registered = Measure(
        name="length",
        summary="a length",
        needs=frozenset({"texts"}),
        options=NoOptions,
        quantities=(quantity,),
        points=lambda subject, options: [],
    )
    monkeypatch.setitem(MEASURES, "length", registered)
    for name in ("one", "two"):
        save_revision(tmp_path / name / "step-0", seed=len(name))
    texts = {"source": small_texts(tmp_path).source, "num_train": 16, "num_test": 12}
    callback = {
        "class_path": f"{__name__}.MeanLengthSometimes",
        "init_args": {"times": 3.0, "sometimes": True, "texts": texts},
    }
    models = {
        "class_path": "Models",
        "init_args": {"names": [str(tmp_path / n / "step-0") for n in ("one", "two")]},
    }
    assert probe(tmp_path, models, "--loss=false", callbacks=[callback]) == 0
    version = tmp_path / "runs/walk/version_0"
    rows = read_measurements(version / "measurements.csv")
    values = {(r.model, r.quantity): r.value for r in rows if r.layer == "final"}
    for (model, quantity_name), value in values.items():
        if quantity_name == "drawn":
            assert value == pytest.approx(2 * values[model, "length"])
    assert {row.conditions.get("times") for row in rows if row.metric == "length"} == {3.0}
    figures = {path.name for path in (version / walk_report.FIGURES).rglob("*.png")}
    assert figures == {"length_drawn.png", "length_drawn_against_depth.png"}


def test_every_measure_has_a_callback() -> None:
    import callbacks

    kinds = [getattr(callbacks, name) for name in callbacks.__all__]
    declared = {
        kind.declaration.name
        for kind in kinds
        if isinstance(kind, type)
        and issubclass(kind, MeasurementCallback)
        and hasattr(kind, "declaration")
    }
    assert declared == set(MEASURES)
