"""The deepest useful sentence of jsonargparse's own messages, taken from a real parser."""

from argparse import ArgumentError
from typing import Literal

import pytest
from jsonargparse import ArgumentParser

from toolkit.console.held_stderr import one_line
from toolkit.console.parser_messages import shortened


class Shape:
    pass


class Circle(Shape):
    def __init__(self, radius: float = 1.0) -> None:
        if radius < 0:
            raise ValueError(f"radius: expected 0 or more, got {radius}")


class Picture:
    def __init__(
        self,
        shape: Shape | None = None,
        size: int = 1,
        scale: float | list[float] = 1.0,
        mode: Literal["a", "b"] = "a",
        numbers: list[int] | None = None,
        more: list[Shape] | Shape | None = None,
        centre: float | Shape = 0.0,
    ) -> None:
        pass


def message_of(*args: str) -> str:
    """What jsonargparse says about the arguments, parsed or built."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Picture, "picture", required=False)
    parser.add_argument("--count", type=int)
    with pytest.raises((ArgumentError, ValueError)) as caught:
        parser.instantiate(parser.parse_args(["--picture", "Picture", *args]))
    return str(caught.value)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--count=x"], "count: expected int, got x"),
        (["--picture.size=x"], "picture.size: expected int, got x"),
        (["--picture.size=1.5"], "picture.size: expected int, got 1.5"),
        (["--picture.scale=x"], "picture.scale: expected float or list, got x"),
        (["--picture.mode=c"], "picture.mode: expected Literal['a', 'b'], got c"),
        (["--picture.numbers=[1, x]"], "picture.numbers: expected int, got x"),
        (["--picture.colour=1"], "picture: {module}.Picture has no argument 'colour'"),
        (
            ["--picture.shape=Circle", "--picture.shape.radius=x"],
            "picture.shape.radius: expected float, got x",
        ),
        (
            ["--picture.shape=Circle", "--picture.shape.radios=1"],
            "picture.shape: {module}.Circle has no argument 'radios'",
        ),
        (
            ["--picture.shape=Square"],
            "picture.shape: no class named Square; give a full class_path for a class of your own",
        ),
        (
            ["--picture.shape=Circle", "--picture.shape.radius=-1"],
            "radius: expected 0 or more, got -1.0",
        ),
        (
            ["--picture.more=Square"],
            "picture.more: no class named Square; give a full class_path for a class of your own",
        ),
        (["--picture.more=3"], "picture.more: expected list or a class path, got 3"),
        (["--picture.centre=x"], "picture.centre: expected float or a class path, got x"),
        (
            ["--picture.more=Circle", "--picture.more.radius=x"],
            "picture.more.radius: expected float, got x",
        ),
        (
            ["--picture.more+=Circle", "--picture.more.radius=-1"],
            "radius: expected 0 or more, got -1.0",
        ),
        (
            ["--picture.shape=no_package.Square"],
            "picture.shape: no_package.Square: No module named 'no_package'",
        ),
        (["--colour=1"], "unrecognized arguments: --colour=1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_names_the_argument_and_says_what_is_wrong(args: list[str], expected: str) -> None:
    assert shortened(message_of(*args)) == expected.format(module=__name__)


@pytest.mark.parametrize(
    "message",
    ["", "lr: expected a positive number, got 0", "two\nlines", 'Parser key "a":', "- a\n- b"],
)
def test_leaves_other_messages_alone(message: str) -> None:
    assert shortened(message) == message


INVENTED = [
    (
        "The value of picture.size is unusable:\n  it was 'x'\n  a whole number is needed here\n",
        "a whole number is needed here",
    ),
    ("one line: as it is", "one line: as it is"),
    (
        'Parser key "picture.size":\n  a whole number is needed, not x',
        "picture.size: a whole number is needed, not x",
    ),
    (
        'Parser key "picture.shape":\n  No way:\n    - Circle:\n      radius: expected 1, got 0',
        "picture.shape: radius: expected 1, got 0",
    ),
    (
        'Parser key "picture.shape":\n  No way:\n    - It is no list\n    - It is no type',
        "picture.shape: It is no type",
    ),
    (
        "Problems parsing config: no mapping\n  in line 1",
        "Problems parsing config: no mapping\n  in line 1",
    ),
    ("Does not validate against\n  Subtypes: []\n  Errors:\n", "Errors:"),
]


@pytest.mark.parametrize(("message", "expected"), INVENTED)
def test_of_sentences_that_it_does_not_know_the_last_line_is_left(
    message: str, expected: str
) -> None:
    assert shortened(message, from_parser=True) == expected


def test_an_error_of_the_parser_is_known_by_its_class() -> None:
    text = INVENTED[0][0]
    assert one_line(ArgumentError(None, text)) == "a whole number is needed here"
    assert one_line(ValueError(text)) == " ".join(text.split())
