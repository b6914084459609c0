"""The Welch bound."""

import math

import pytest

from toolkit.functional import welch_bound


@pytest.mark.parametrize(
    ("num_vectors", "dim", "expected"),
    [
        pytest.param(3, 2, 0.5, id="hexagon"),
        pytest.param(4, 3, 1 / 3, id="simplex"),
        pytest.param(28, 7, 1 / 3, id="equiangular_lines"),
        pytest.param(2000, 32, 0.1754, id="published_table"),
        pytest.param(7, 7, 0.0, id="basis"),
        pytest.param(1, 1, 0.0, id="one_vector"),
        pytest.param(10**9, 1, 1.0, id="line"),
    ],
)
def test_bound(num_vectors: int, dim: int, expected: float) -> None:
    assert welch_bound(num_vectors, dim) == pytest.approx(expected, abs=5e-5)


def test_bound_tends_to_one_over_root_d() -> None:
    assert welch_bound(10**12, 64) == pytest.approx(1 / math.sqrt(64), rel=1e-9)


@pytest.mark.parametrize(
    ("num_vectors", "dim", "name"), [(0, 3, "num_vectors"), (3, 0, "dim"), (3, -1, "dim")]
)
def test_bad_counts_are_refused(num_vectors: int, dim: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected an integer of at least 1"):
        welch_bound(num_vectors, dim)
