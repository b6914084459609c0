"""The parser of a command's options, with errors of one line."""

import difflib
from collections.abc import Iterable
from typing import Any, NoReturn

from toolkit.console.jsonargparse_private import OpenParser

DID_YOU_MEAN = "; did you mean "
_UNRECOGNIZED = "unrecognized arguments: "


class OneLineParser(OpenParser):
    """A parser that raises a ValueError instead of printing its usage and ending the process.

    Options have no abbreviations: an abbreviation becomes ambiguous when a later version adds an
    option.
    """

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise the message; the caller shows it in one line."""
        message = with_nearest(message, self.option_strings())
        raise ValueError(message.removeprefix("argument --"))


def with_nearest(message: str, options: Iterable[str]) -> str:
    """Return argparse's message about unknown options, with the most similar option.

    Args:
        message: A message of a parser; other messages are returned unchanged.
        options: All options, with their dashes.
    """
    if not message.startswith(_UNRECOGNIZED):
        return message
    given = message.removeprefix(_UNRECOGNIZED).split(" ", maxsplit=1)[0]
    return message + did_you_mean(given.partition("=")[0], options)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean ...?`` for an unknown name, empty if no name is similar.

    Args:
        name: The unknown name.
        known: All known names.
    """
    known = sorted(known)
    complete = [right for right in known if right.startswith(name)] if name.strip("-") else []
    near = complete or difflib.get_close_matches(name, known, n=1)
    return f"{DID_YOU_MEAN}{min(near, key=len)}?" if near else ""
