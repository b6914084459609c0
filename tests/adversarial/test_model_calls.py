"""Bad arguments of what measures a language model: one line that names each."""

import inspect
from pathlib import Path

import huggingface_hub
import pytest

from tests.adversarial.model_calls import CALLS, FILES, TABLE
from tests.adversarial.trials import arguments_of, check_refusals, right_arguments
from toolkit.measures import MEASURES, Measure

FUNCTIONS = {name: function for name, (function, _) in {**CALLS, **FILES}.items()}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of models are no folders here, and nothing is fetched."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def test_every_measure_is_tried() -> None:
    assert set(MEASURES.values()) <= {function for function, _ in CALLS.values()}


@pytest.mark.parametrize("name", CALLS)
def test_every_argument_is_tried(name: str) -> None:
    function = FUNCTIONS[name]
    if isinstance(function, Measure):
        assert {"subject", *function.option_names} == TABLE[name].keys()
    else:
        assert inspect.signature(function).parameters.keys() == TABLE[name].keys()


@pytest.mark.parametrize("name", CALLS)
def test_right_arguments_are_accepted(name: str) -> None:
    FUNCTIONS[name](**right_arguments(TABLE[name]))


@pytest.mark.parametrize(("name", "argument"), arguments_of(TABLE))
def test_bad_argument_is_named(name: str, argument: str) -> None:
    check_refusals(FUNCTIONS[name], TABLE[name], argument)
