"""Frequency families: closed forms and refusals."""

import math

import pytest
import torch

from toolkit.data import (
    ExponentialFrequencies,
    Frequencies,
    LinearFrequencies,
    PowerFrequencies,
    SparseFeatures,
    UniformFrequencies,
)

KINDS = [
    pytest.param(PowerFrequencies(1.5), lambda i, n: i**-1.5, id="power"),
    pytest.param(ExponentialFrequencies(3.0), lambda i, n: math.exp(-i / 3), id="exponential"),
    pytest.param(LinearFrequencies(), lambda i, n: (n - i) / n, id="linear"),
    pytest.param(UniformFrequencies(), lambda i, n: 1.0, id="uniform"),
]


@pytest.mark.parametrize(("frequencies", "formula"), KINDS)
@pytest.mark.parametrize("density", [1.0, 0.25])
def test_probabilities_follow_the_formula(
    frequencies: Frequencies, formula: object, density: float
) -> None:
    assert callable(formula)
    n = 11
    relative = [formula(i, n) for i in range(1, n + 1)]
    expected = [density * value / sum(relative) for value in relative]
    probabilities = frequencies.probabilities(n, density=density)
    assert probabilities.dtype == torch.float64
    assert probabilities.tolist() == pytest.approx(expected, rel=1e-13)
    assert probabilities.sum().item() == pytest.approx(density, rel=1e-13)


def test_density_may_raise_the_first_feature_to_certainty() -> None:
    harmonic = sum(1 / i for i in range(1, 1001))
    probabilities = PowerFrequencies(1.0).probabilities(1000, density=harmonic)
    assert probabilities[0].item() == 1.0
    assert probabilities[1].item() == pytest.approx(0.5)


def test_density_beyond_certainty_names_the_limit() -> None:
    with pytest.raises(
        ValueError, match=r"density: expected every probability at most 1.*1\.83333"
    ):
        PowerFrequencies(1.0).probabilities(3, density=1.9)


def test_a_small_scale_does_not_underflow() -> None:
    probabilities = ExponentialFrequencies(1e-3).probabilities(5)
    assert probabilities.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (
            lambda: PowerFrequencies(-1.0),
            "exponent: expected a finite number of at least 0, got -1.0",
        ),
        (lambda: PowerFrequencies(math.nan), "exponent: expected a finite number"),
        (lambda: ExponentialFrequencies(0.0), "scale: expected a positive finite number"),
        (
            lambda: UniformFrequencies().probabilities(0),
            "num_features: expected an integer of at least 1",
        ),
        (
            lambda: LinearFrequencies().probabilities(1),
            "num_features: expected at least 2",
        ),
        (lambda: UniformFrequencies().probabilities(5, density=0), "density: expected a positive"),
    ],
)
def test_bad_numbers(build: object, match: str) -> None:
    assert callable(build)
    with pytest.raises(ValueError, match=match):
        build()


def test_from_config_undoes_as_config_and_names_what_it_does_not_know() -> None:
    for frequencies in (PowerFrequencies(0.5), LinearFrequencies()):
        assert Frequencies.from_config(frequencies.as_config()) == frequencies
    with pytest.raises(ValueError, match="frequencies: expected the class_path of one of"):
        Frequencies.from_config({"class_path": "os.system"})
    with pytest.raises(TypeError, match="frequencies: expected Frequencies, got str"):
        SparseFeatures(5, "power")  # type: ignore[arg-type]


def test_as_config_is_plain() -> None:
    assert PowerFrequencies(0.5).as_config() == {
        "class_path": "toolkit.data.frequencies.PowerFrequencies",
        "init_args": {"exponent": 0.5},
    }


@pytest.mark.parametrize("base", [Frequencies, PowerFrequencies], ids=["beside", "below"])
def test_a_class_of_the_same_name_in_another_module_is_another_class(
    base: type[Frequencies],
) -> None:
    def relative(self: Frequencies, num_features: int) -> torch.Tensor:
        return torch.arange(num_features, 0, -1, dtype=torch.float64)

    content = {"__module__": f"mine_{base.__name__}", "relative": relative}
    theirs = type("PowerFrequencies", (base,), content)
    stored = [theirs(), PowerFrequencies(0.5)]
    loaded = [Frequencies.from_config(frequencies.as_config()) for frequencies in stored]
    assert [type(frequencies) for frequencies in loaded] == [theirs, PowerFrequencies]
    assert loaded[0].probabilities(2).tolist() == pytest.approx([2 / 3, 1 / 3])
    assert SparseFeatures(2, stored[1]).hparams["frequencies"] == stored[1].as_config()
