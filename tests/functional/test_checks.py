"""How messages show lists, and what each check takes and refuses."""

from pathlib import Path

import pytest

from toolkit.functional._checks import at_most, fewer_than, shown_list


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
