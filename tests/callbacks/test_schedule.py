"""Which steps a schedule holds."""

from typing import Any

import pytest

from callbacks import Schedule


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(1, list(range(11)), id="every-step"),
        pytest.param(4, [0, 4, 8], id="every-4"),
        pytest.param([7, 2, 0], [0, 2, 7], id="list"),
        pytest.param("log", [0, 1, 2, 4, 8], id="log"),
    ],
)
def test_members_up_to_ten(spec: Any, expected: list[int]) -> None:
    schedule = Schedule(spec)
    assert [step for step in range(11) if step in schedule] == expected


def test_log_is_the_published_series() -> None:
    """Pythia's 154 revisions: step0, 1, 2, 4, ..., 512, 1000, 2000, ..., 143000."""
    published = [0, *(2**i for i in range(10)), *range(1000, 143001, 1000)]
    assert [step for step in range(143001) if step in Schedule("log")] == published
    assert len(published) == 154


@pytest.mark.parametrize(
    "spec", [0, -1, 1.5, True, [], [1, -2], [0.5], [True], "linear", None, (1, 2)], ids=repr
)
def test_anything_else_is_refused_in_one_line(spec: Any) -> None:
    with pytest.raises(ValueError, match="schedule: expected a positive integer, a list") as caught:
        Schedule(spec)
    assert "\n" not in str(caught.value)
    assert repr(spec) in str(caught.value)
