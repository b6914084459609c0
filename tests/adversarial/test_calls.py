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


# What is trained keeps its dtype, so that its gradients have it, too.
TRAINED = {
    "cell_layout": "value: expected float32 or float64, got dtype",
    "dense_reconstruction_loss": "weight, bias: expected both float32 or both float64, got",
    "reconstruct": "weight, bias: expected both float32 or both float64, got",
    "reconstruction_loss": "weight, bias: expected both float32 or both float64, got",
}
each_half = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


def half_and_lifted(name: str, dtype: torch.dtype) -> tuple[dict[str, Any], dict[str, Any]]:
    """Right arguments in half precision, and the same values in float32."""
    halves = {
        key: right_arguments(FUNCTIONS[name])[key].to(dtype) for key in floats(FUNCTIONS[name])
    }
    lifted = {key: value.float() for key, value in halves.items()}
    return right_arguments(FUNCTIONS[name]) | halves, right_arguments(FUNCTIONS[name]) | lifted


@each_half
@pytest.mark.parametrize(
    "name", [n for n in FUNCTIONS if floats(FUNCTIONS[n]) and n not in TRAINED]
)
def test_half_precision_gives_the_values_of_float32(name: str, dtype: torch.dtype) -> None:
    halves, lifted = half_and_lifted(name, dtype)
    before = {key: halves[key].clone() for key in floats(FUNCTIONS[name])}
    got = getattr(functional, name)(**halves)
    assert equal(got, getattr(functional, name)(**lifted))
    assert equal({key: halves[key] for key in before}, before)
    assert all(halves[key].dtype == dtype for key in before)


@each_half
@pytest.mark.parametrize("name", TRAINED)
def test_half_precision_is_refused_where_gradients_are_taken(name: str, dtype: torch.dtype) -> None:
    halves, _ = half_and_lifted(name, dtype)
    with pytest.raises(ValueError, match=f"^{TRAINED[name]} {dtype}"):
        getattr(functional, name)(**halves)
