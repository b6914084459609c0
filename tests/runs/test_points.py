"""Points have plain numbers, whatever a measurement returns."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from toolkit.runs.points import Point, plain_points


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor(0.5), 0.5),
        (torch.tensor([0.5], requires_grad=True), 0.5),
        (torch.tensor(3), 3.0),
        (torch.tensor(True), 1.0),
        (torch.tensor(0.1, dtype=torch.float64), 0.1),
        (torch.tensor(0.25, dtype=torch.bfloat16), 0.25),
        (np.float64(0.1), 0.1),
        (np.int64(7), 7.0),
        (np.bool_(True), 1.0),
        (7, 7.0),
        (True, 1.0),
    ],
    ids=str,
)
def test_values_are_floats(value: Any, expected: float) -> None:
    (point,) = plain_points([Point("norm", "final", value, value)])
    assert (point.value, type(point.value)) == (expected, float)
    assert (point.num_points, type(point.num_points)) == (int(expected), int)
    assert point[:2] == ("norm", "final")


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (torch.ones(2), "a tensor of shape (2,)"),
        (None, "None"),
        ("many", "'many'"),
        (1j, "an object of type complex"),
    ],
    ids=str,
)
def test_what_is_not_one_number_is_refused(value: Any, got: str) -> None:
    message = f"value: expected one number for norm/final, got {got}; return one point for each"
    with pytest.raises(ValueError, match=re.escape(message)):
        plain_points([Point("norm", "final", value)])


def test_no_number_of_points_stays_none() -> None:
    assert plain_points([Point("norm", "", 1)]) == [Point("norm", "", 1.0, None)]
