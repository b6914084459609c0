"""Bad calls of the pure functions: each ends in one line that names the argument."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.adversarial.bad_values import Argument
from tests.adversarial.constructor_calls import TABLE
from tests.adversarial.functional_calls import FUNCTIONS
from tests.adversarial.trials import (
    arguments_of,
    check_refusals,
    equal,
    number_of_bad_calls,
    right_arguments,
    snapshot,
)
from toolkit import functional


def public_functions() -> list[str]:
    named = {name: getattr(functional, name) for name in functional.__all__}
    return [name for name, value in named.items() if inspect.isfunction(value)]


def test_every_public_function_is_tried() -> None:
    assert sorted(FUNCTIONS) == sorted(public_functions())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_is_tried(name: str) -> None:
    parameters = inspect.signature(getattr(functional, name)).parameters.values()
    wanted = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    extra = FUNCTIONS[name].keys() - wanted
    assert wanted <= FUNCTIONS[name].keys()
    assert not extra or any(p.kind is p.VAR_KEYWORD for p in parameters)


def test_number_of_bad_calls() -> None:
    assert number_of_bad_calls(FUNCTIONS) >= 2500
    assert number_of_bad_calls(TABLE) >= 2000


@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_arguments_are_accepted_and_kept(name: str) -> None:
    given = right_arguments(FUNCTIONS[name])
    before = {key: snapshot(value) for key, value in given.items() if key != "generator"}
    getattr(functional, name)(**given)
    for key, value in before.items():
        assert equal(snapshot(given[key]), value), key


@pytest.mark.parametrize(("name", "argument"), arguments_of(FUNCTIONS))
def test_bad_argument_is_named(name: str, argument: str) -> None:
    check_refusals(getattr(functional, name), FUNCTIONS[name], argument)


def with_pending_negation(values: Tensor) -> Tensor:
    pending = torch.complex(torch.zeros_like(values), -values).conj().imag
    assert pending.is_neg()
    return pending


def strided(values: Tensor) -> Tensor:
    return torch.stack([values, values], -1)[..., 0]


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "pending negation": with_pending_negation,
    "strided": strided,
    "learnable": lambda values: values.clone().requires_grad_(),
}


def floats(arguments: dict[str, Argument]) -> list[str]:
    right = right_arguments(arguments)
    return [
        name
        for name, value in right.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    ]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if floats(FUNCTIONS[name])])
def test_how_a_tensor_is_stored_changes_nothing(name: str, view: str) -> None:
    def called(**changed: Any) -> Any:
        return getattr(functional, name)(**right_arguments(FUNCTIONS[name]) | changed)

    right = right_arguments(FUNCTIONS[name])
    changed = {key: VIEWS[view](right[key]) for key in floats(FUNCTIONS[name])}
    assert equal(called(**changed), called(), tolerance=1e-6)
