"""YAML of configurations: limits, keys that stand twice, and texts that come back as they were."""

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonargparse import get_loader

from toolkit.console.yaml_text import dump, install, load

LOOK_LIKE_NUMBERS = [
    "1e5",
    "1e400",
    "2e3",
    "7e10",
    "0x10",
    "017",
    "0o17",
    "0b1",
    "1_000",
    "12:30",
    "1.",
    ".5",
    "+.5",
    "-1e-3",
    ".inf",
    "-.inf",
    "nan",
    ".nan",
    "inf",
    "yes",
    "no",
    "on",
    "off",
    "y",
    "true",
    "null",
    "~",
    "2024-01-01",
    "#a",
    "a:",
]


@pytest.mark.parametrize("text", [*LOOK_LIKE_NUMBERS, "", " 1e5 ", "a: b", "- x", "'1'", "é", "#1"])
def test_a_text_comes_back_whichever_yaml_reads_it(text: str) -> None:
    written = dump({"key": [text], "inner": {"key": text}})
    for read in (load, get_loader("yaml"), yaml.safe_load):
        assert read(written) == {"key": [text], "inner": {"key": text}}


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789eE+-._:xobnaif ~#'\"", max_size=8))
def test_any_short_text_comes_back(text: str) -> None:
    assert load(dump({"key": text})) == {"key": text}
    assert yaml.safe_load(dump({"key": text})) == {"key": text}


def test_numbers_stay_numbers() -> None:
    values = {"a": 1, "b": 1e-05, "c": 1e20, "d": float("inf"), "e": True, "f": None, "g": [0.1]}
    assert load(dump(values)) == values
    assert isinstance(load("a: 1e5")["a"], float)


def bomb(levels: int) -> str:
    lines = ["x0: &a0 [1, 1]"]
    lines += [f"x{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: key 'a' stands in line 1 already; keep one of them"),
        ("x:\n  a: 1\n  a: 2\n", "line 3: key 'a' stands in line 2 already"),
        ("x: {a: 1, a: 2}", "line 1: key 'a' stands in line 1 already"),
        ("- {'a': 1, a: 2}", "line 1: key 'a' stands in line 1 already"),
        ("x: &a\n  y: *a\n", r"line 2: alias \*a stands inside &a itself"),
        ("&a [b, [c, *a]]", r"line 1: alias \*a stands inside &a itself"),
        (bomb(60), "expected at most 5,000 values"),
        (f"[{'1,' * 5_001}]", "line 1: expected at most 5,000 values"),
        ("- " * 51 + "x", "line 1: expected at most 50 levels of lists and mappings, got more"),
        ("[" * 51 + "]" * 51, "line 1: expected at most 50 levels"),
    ],
)
def test_refuses_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, "{a: " * 100_000])
def test_absurd_nesting_is_refused_at_once(text: str) -> None:
    with pytest.raises((ValueError, yaml.YAMLError), match=r"levels|nesting"):
        load(text)


def test_accepts_what_is_right() -> None:
    shared = "x: &t {source: a, n: 1}\ny: *t\nz: {<<: *t, n: 2}\nw: {source: b}\n"
    assert load(shared)["z"] == {"source": "a", "n": 2}
    assert load("x: [{a: 1}, {a: 2}]\ny: {a: 1}") == {"x": [{"a": 1}, {"a": 2}], "y": {"a": 1}}
    assert load("- " * 50 + "x") != "x"
    assert len(load(bomb(10))["x9"]) == 2
    assert len(load(str(list(range(4_999))))) == 4_999


def test_a_comment_alone_is_the_text_and_not_null() -> None:
    assert load("#1") == "#1"
    assert load("null") is None
    assert load("~") is None


def test_jsonargparse_reads_by_it() -> None:
    install()
    assert get_loader("yaml") is load
