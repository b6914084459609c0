"""How messages show lists, and what each check takes and refuses."""

from pathlib import Path

import pytest
import torch

from toolkit.functional._checks import (
    as_many,
    at_most,
    enough,
    fewer_than,
    of_shape,
    one_length,
    shown_list,
)


@pytest.mark.parametrize(
    ("values", "dots", "counted"),
    [
        ([], "", ""),
        (["a"], "a", "a"),
        (["a", "b"], "a, b", "a, b"),
        (["a", "b", "c"], "a, b, ...", "a, b and 1 more"),
        ([1, Path("x"), 3, 4, 5], "1, x, ...", "1, x and 3 more"),
    ],
)
def test_lists_are_shortened(values: list[object], dots: str, counted: str) -> None:
    assert shown_list(values, 2) == dots
    assert shown_list(values, 2, count_rest=True) == counted


def test_only_one_function_shortens_lists() -> None:
    root = Path(__file__).parent.parent.parent
    sources = [path for top in ("toolkit", "callbacks") for path in (root / top).rglob("*.py")]
    found = {path.name for path in sources if '", ..."' in path.read_text()}
    assert found == {"_checks.py"}


def test_limits() -> None:
    assert at_most("k", 3, 3) == 3
    assert fewer_than("k", 2, 3) == 2
    with pytest.raises(ValueError, match=r"^k: expected at most 3, got 4$"):
        at_most("k", 4, 3)
    with pytest.raises(ValueError, match=r"^k: expected fewer than d = 3, got 3; take fewer$"):
        fewer_than("k", 3, 3, limit="d = 3", advice="take fewer")
    with pytest.raises(ValueError, match=r"^k: expected at most 3, got k = 4$"):
        at_most("k", 4, 3, given="k = 4")


def test_too_few() -> None:
    assert enough("x", 2, 2, "rows") == 2
    with pytest.raises(ValueError, match=r"^x: expected at least 2 rows, got 1$"):
        enough("x", 1, 2, "rows")
    with pytest.raises(ValueError, match=r"^x: expected at least 2 rows, got 1 of 9; pass more$"):
        enough("x", 1, 2, "rows", given="1 of 9", advice="pass more")


def test_shapes_and_lengths() -> None:
    pair, triple = torch.zeros(2), torch.zeros(3)
    assert of_shape("x", pair, (2,)) is pair
    with pytest.raises(ValueError, match=r"^x: expected shape \(3, 1\), got \(2,\)$"):
        of_shape("x", pair, (3, 1))
    with pytest.raises(ValueError, match=r"^x: expected shape \(3,\) of y, got \(2,\); cut it$"):
        of_shape("x", pair, triple.shape, reason=" of y", advice="cut it")
    one_length("x", [pair, pair])
    with pytest.raises(ValueError, match=r"^x: expected columns of one length, got .* \[2, 3\]$"):
        one_length("x", [pair, triple])
    as_many("y", pair, "x", pair)
    with pytest.raises(ValueError, match=r"^y: expected as many values as x, got 3 and 2$"):
        as_many("y", triple, "x", pair)
