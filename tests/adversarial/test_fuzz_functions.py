"""Fuzzing of the pure functions: right, wrong and strange arguments, drawn by hypothesis.

A few examples of each function belong to the default run. The profile ``long`` tries 300 of each
test, more than 20,000 with those of `tests.adversarial.test_fuzz_invariances`, in two minutes:
``HYPOTHESIS_PROFILE=long python -m pytest tests/adversarial -k fuzz``. What was found stays as a
test of its own.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.adversarial.functional_calls import FUNCTIONS
from tests.adversarial.fuzzing import arguments
from tests.adversarial.trials import equal, message_fault, snapshot
from toolkit import functional

Given = dict[str, Any]


def _constant(values: Tensor) -> bool:
    return bool((values == values[..., :1]).all(-1).any())


def _few_rows(name: str, minimum: float = 0.0) -> Callable[[Given], bool]:
    """Whether some layer has fewer than two rows that are long enough."""

    def found(drawn: Given) -> bool:
        norms = torch.linalg.vector_norm(drawn[name].double(), dim=-1)
        return bool(((norms > minimum).sum(-1) < 2).any())

    return found


def _square_overflows(drawn: Given) -> bool:
    """Whether squares, which a reconstruction has squared once more, are beyond float32."""
    tensors = [value for value in drawn.values() if isinstance(value, Tensor)]
    return max(float(value.abs().max()) for value in tensors) > 1e9


def _always(_: Given) -> bool:
    return True


# Where a result that is not finite is documented, and what must hold of the arguments then.
NOT_FINITE: dict[str, Callable[[Given], bool]] = {
    "alpha_req": _always,
    "component_alignment": _always,
    "condition_number": _always,
    "dense_reconstruction_loss": _square_overflows,
    "fit_packing_law": _always,
    "fit_power_law": _always,
    "local_slopes": _always,
    "log10_model_capacity": _always,
    "mean_cosine": _few_rows("features"),
    "mean_squared_overlap": _few_rows("weight", 1e-6),
    "pairwise_agreement": _always,
    "participation_ratio": _always,
    "rankme": _always,
    "reconstruct": _square_overflows,
    "reconstruction_loss": _square_overflows,
    "spearman": lambda drawn: _constant(drawn["x"]) or _constant(drawn["y"]),
    "subspace_pga": _always,
    "two_nn": _always,
}


def all_finite(result: Any) -> bool:
    if isinstance(result, Tensor):
        return bool(torch.isfinite(result).all())
    if isinstance(result, float):
        return math.isfinite(result)
    if isinstance(result, Mapping):
        return all(map(all_finite, result.values()))
    if isinstance(result, tuple | list):
        return all(map(all_finite, result))
    return True


@pytest.mark.parametrize("name", FUNCTIONS)
@given(data=st.data())
def test_a_call_returns_numbers_or_names_an_argument(name: str, data: st.DataObject) -> None:
    drawn = data.draw(arguments(FUNCTIONS[name]))
    before = {key: snapshot(value) for key, value in drawn.items() if key != "generator"}
    result, refusal = outcome(getattr(functional, name), drawn)
    named = refusal.partition(":")[0].split(", ")[0]
    if refusal:
        assert named in drawn, refusal
        assert not message_fault(refusal, named)
    elif not all_finite(result) and all(map(all_finite, drawn.values())):
        assert name in NOT_FINITE, result
        assert NOT_FINITE[name](drawn), result
    assert all(equal(snapshot(drawn[key]), value) for key, value in before.items())


FOUND: dict[str, tuple[str, Given, str]] = {
    "overflow of a power": (
        "deviation_for",
        {"dim": 64, "num_vectors": 1000.0, "a": 1e300},
        "num_vectors: expected a result that float64 can hold",
    ),
    "a law without a small constant": (
        "log10_capacity",
        {"dim": 4096, "epsilon": 0.9, "a": 1e-308},
        "dim: expected a result that float64 can hold",
    ),
    "a line too steep": (
        "slope_guide",
        {"x": torch.tensor([1.0, 0.1]), "y": torch.ones(2), "exponent": 1000.0},
        "exponent: expected a line whose values float64 can hold",
    ),
    "cells beyond the weights": (
        "reconstruction_loss",
        {
            "weight": torch.ones(2, 1),
            "bias": torch.ones(2),
            "cells": functional.cell_layout(
                torch.tensor([0]), torch.tensor([2]), torch.tensor([1.0]), 1
            ),
        },
        "cells: expected features below 2",
    ),
}


@pytest.mark.parametrize("found", FOUND)
def test_found_refusals(found: str) -> None:
    name, drawn, message = FOUND[found]
    _, refusal = outcome(getattr(functional, name), drawn)
    assert refusal.startswith(message)


def test_found_error_of_a_huge_multiple() -> None:
    """Squares of the leave-one-out deviations overflowed."""
    rows = torch.tensor([[1.0, 0.2], [0.3, 1.0], [-1.0, 0.5], [0.1, -1.0]])
    once = functional.deviation_stderr(rows, num_sigma=1e100, num_blocks=4)
    huge = functional.deviation_stderr(rows, num_sigma=1e300, num_blocks=4)
    assert huge == pytest.approx(once * 1e200, rel=1e-9)


def outcome(function: Callable[..., Any], drawn: Given) -> tuple[Any, str]:
    """The result, or the message of the refusal; any other exception is a fault."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unembedding: rank", UserWarning)
        try:
            return function(**drawn), ""
        except (ValueError, TypeError) as error:
            return None, str(error)
