"""What the end of a run says beside its last values: the first ones, and what chance explains."""

from math import nan

import pytest

from callbacks import EmbeddingDeviation, LinearProbe


def accuracies(*values: float, num_test: int = 400) -> dict[str, float]:
    measured = {"probe/chance": 0.25}
    for index, accuracy in enumerate(values):
        measured[f"probe/accuracy/layer_{index:02d}"] = accuracy
        stderr = (accuracy * (1 - accuracy) / num_test) ** 0.5
        measured[f"probe/stderr/layer_{index:02d}"] = stderr
    return measured


@pytest.mark.parametrize(
    ("last", "line"),
    [
        # sqrt(.37 * .63 / 400) = .0241, sqrt(.39 * .61 / 400) = .0244, together .0343.
        (
            (0.36, 0.39),
            (
                "probe: largest gain at layer_01, 0.39 ± 0.024 after step 1,000 against "
                "0.37 ± 0.024 after step 0: 0.02 ± 0.034, no more than 2 standard errors"
            ),
        ),
        # sqrt(.6 * .4 / 400) = .0245, with .0242 of .375 together .0344.
        (
            (0.6, 0.3),
            (
                "probe: largest gain at layer_00, 0.6 ± 0.024 after step 1,000 against "
                "0.375 ± 0.024 after step 0: 0.22 ± 0.034, more than 2 standard errors"
            ),
        ),
    ],
    ids=["chance", "learnt"],
)
def test_a_probe_is_compared_with_the_untrained_model(last: tuple[float, float], line: str) -> None:
    probe = LinearProbe()
    probe.history = {0: accuracies(0.375, 0.37), 10: accuracies(0.9, 0.9), 1000: accuracies(*last)}
    assert probe.headline_lines() == ["probe: chance is 0.25", line]


@pytest.mark.parametrize(
    "history",
    [{7: accuracies(0.4)}, {0: accuracies(nan), 7: accuracies(0.4)}, {0: {}, 7: accuracies(0.4)}],
    ids=["one step", "not finite", "failed"],
)
def test_without_a_first_value_a_probe_claims_nothing(history: dict[int, dict[str, float]]) -> None:
    probe = LinearProbe()
    probe.history = history
    assert probe.headline_lines() == ["probe: chance is 0.25"]


def test_epsilon_stands_beside_that_of_the_first_step() -> None:
    deviation = EmbeddingDeviation()
    last = {"epsilon/value/input": 0.05, "epsilon/class/input": 2, "capacity/log10/input": 4.5}
    deviation.history = {8: last}
    line = "epsilon = 0.0500 (input, class 2), capacity 10^4.50"
    assert deviation.headline_lines() == [line]
    deviation.history = {0: {"epsilon/value/input": 0.07}, 8: last}
    assert deviation.headline_lines() == [f"{line}; 0.0700 after step 0"]
