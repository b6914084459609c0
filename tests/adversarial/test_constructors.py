"""Bad arguments of models, data, callbacks, metrics and series: one line that names each."""

import inspect
from pathlib import Path
from typing import Any

import pytest

import callbacks
from tests.adversarial.constructor_calls import CONSTRUCTORS, TABLE
from tests.adversarial.trials import arguments_of, check_refusals, right_arguments
from toolkit import data, metrics, models

# Values and base classes, which nothing is configured with.
_NOT_TRIED = {"ActiveCells", "Frequencies", "LabelledTexts", "MeasurementCallback", "Moment"}
_NOT_TRIED |= {"LanguageModelCallback", "TextCallback"}
_NOT_TRIED |= {"Point", "load_ag_news"}  # tried with the files that it reads


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of models are no folders here."""
    monkeypatch.chdir(tmp_path)


def test_every_public_class_is_tried() -> None:
    public = {name for module in (callbacks, data, metrics, models) for name in module.__all__}
    tried = {function for function, _ in CONSTRUCTORS.values()}
    missing = {
        name
        for name in public - _NOT_TRIED
        for module in (callbacks, data, metrics, models)
        if hasattr(module, name) and getattr(module, name) not in tried
    }
    assert not missing


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_every_argument_is_tried(name: str) -> None:
    function, arguments = CONSTRUCTORS[name]
    parameters = inspect.signature(function).parameters.values()
    assert {p.name for p in parameters if p.kind is not p.VAR_KEYWORD} <= arguments.keys()


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_right_arguments_are_accepted(name: str) -> None:
    function, arguments = CONSTRUCTORS[name]
    function(**right_arguments(arguments))
    assert not list(Path().iterdir()), "a constructor wrote something"


@pytest.mark.parametrize(("name", "argument"), arguments_of(TABLE))
def test_bad_argument_is_named(name: str, argument: str) -> None:
    check_refusals(CONSTRUCTORS[name][0], TABLE[name], argument)


def test_bad_argument_builds_no_model() -> None:
    """Nothing large is allocated before everything has been checked."""
    huge: dict[str, Any] = {"num_features": 8, "widths": [2], "step": "sparse"}
    with pytest.raises(ValueError, match=r"^num_features, widths: expected what fits into memory"):
        models.SuperpositionAutoencoder(**{**huge, "widths": [10**12]})
