"""The one useful sentence in the nested messages of jsonargparse."""

import re
import sys
from typing import NamedTuple

from toolkit.console.parser import did_you_mean

_OWN_CLASS = "; give a full class_path for a class of your own"
# Where the classes of an option are that go by their short names.
_MODULES = {
    "callbacks": ("callbacks",),
    "model": ("toolkit.models",),
    "data": ("toolkit.data",),
    "series": (
        "toolkit.lm.checkpoints.local",
        "toolkit.lm.checkpoints.models",
        "toolkit.lm.checkpoints.hub",
        "toolkit.lm.checkpoints.lightning",
    ),
}
_KEY = re.compile(r'Parser key "([^"]+)":\s*')
_CLASS = re.compile(r"Problem with given class_path '([^']+)':")
_OPTION = re.compile(
    r"(?:Option '(?P<key>[^']+)' is not accepted|unrecognized arguments: --(?P<option>[^=\s]+).*?)"
    r"(?P<hint>; did you mean .*)?"
)
_UNKNOWN_CLASS = re.compile(r"Expected a dot import path string: (.*)")
_EXPECTED = re.compile(r"Expected an? (?P<what>.+?)(\. Got value: (?P<got>.*))?")
_GIVEN = re.compile(r"Given value: (.*?)(\. Got value: .*)?$")
_NESTED = re.compile(r"NestedArg\(key='([^']+)', .*\)")
_CALLABLE = re.compile(r"Type .* expects a function or a callable class: ")
# Beginnings of messages that keep all their lines: the YAML reader's, or those of a typed text.
_WHOLE = ("Problems parsing config", "unrecognized arguments: ", "Option '")
# Lines that frame a message, or tell of alternatives that were never meant.
_FRAME = re.compile(
    r"Does not validate against|Subtypes: |Errors:|Given value|Expected a <class 'NoneType'>"
    r"|Not a valid subclass of|Subclass types expect|a class path \(str\)|a dict with"
    r"|Expected a path but "
)


class _Leaf(NamedTuple):
    """A sentence of the message, and the keys and class it stands under."""

    indent: int
    keys: tuple[str, ...]
    class_path: str
    text: str
    line: int


def shortened(message: str, *, from_parser: bool = False) -> str:
    r"""Return the deepest useful sentence of a parser's message, with the full key in front.

    Args:
        message: Any message; one of another source comes back unchanged.
        from_parser: Whether it is known to be a parser's. Then its last line is returned where
            its sentences are none of those that jsonargparse writes today.

    Example:
        >>> shortened("Parser key \"trainer.max_steps\":\n  Expected a <class 'int'>. Got value: x")
        'trainer.max_steps: expected int, got x'
    """
    if not (_KEY.search(message) or message.startswith("Does not validate against")):
        return _last_line(message) if from_parser else message
    lines = message.splitlines()
    leaves = _leaves(lines)
    if not leaves:
        return _last_line(message) if from_parser else message
    best = max(leaves, key=lambda leaf: len(leaf.keys))
    alternatives = [leaf for leaf in leaves if leaf[:3] == best[:3]]
    if all(_EXPECTED.fullmatch(leaf.text) for leaf in alternatives):
        sentence = _unknown_class(alternatives) or _expectation(alternatives, lines)
    else:
        # Of sentences that are none of jsonargparse's today, the last one says most.
        unknown = [leaf for leaf in leaves if leaf.keys == best.keys and not _is_known(leaf)]
        sentence = _reworded(best if _is_known(best) else unknown[-1])
    return ": ".join([*([".".join(best.keys)] if best.keys else []), sentence])


def _last_line(message: str) -> str:
    whole = message.strip()
    return whole if whole.startswith(_WHOLE) else whole.rpartition("\n")[2].strip()


def _leaves(lines: list[str]) -> list[_Leaf]:
    leaves = []
    above: list[tuple[int, str, str]] = []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        body = re.sub(r"^(\s|- )*", "", line)
        indent = len(line) - len(body)
        above = [entry for entry in above if entry[0] < indent]
        body = _CALLABLE.sub("", body)
        if key := _KEY.match(body):
            above.append((indent, key[1], ""))
            body = body[key.end() :]
        if class_path := _CLASS.fullmatch(body):
            above.append((indent, "", class_path[1]))
        elif body and not _FRAME.match(body):
            keys = tuple(key for _, key, _ in above if key)
            class_path_above = above[-1][2] if above else ""
            leaves.append(_Leaf(indent, keys, class_path_above, body, number))
    return leaves


def _is_known(leaf: _Leaf) -> bool:
    return any(pattern.fullmatch(leaf.text) for pattern in (_OPTION, _EXPECTED))


def _unknown_class(alternatives: list[_Leaf]) -> str | None:
    """The sentence for a name that is no class, where nothing but classes was asked for."""
    texts = {leaf.text for leaf in alternatives} - {"Expected a <class 'list'>"}
    unknown = _UNKNOWN_CLASS.fullmatch(texts.pop()) if len(texts) == 1 else None
    if unknown is None or not unknown[1].isidentifier():
        return None
    hint = did_you_mean(unknown[1], _short_names(alternatives[0].keys))
    return f"no class named {unknown[1]}{hint or _OWN_CLASS}"


def _short_names(keys: tuple[str, ...]) -> list[str]:
    """The names of the toolkit's own classes that an option takes, as far as they are imported."""
    options = set(".".join(keys).split("."))
    modules = [name for option in options for name in _MODULES.get(option, ())]
    contents = [vars(sys.modules[name]) for name in modules if name in sys.modules]
    return [name for content in contents for name in content if name[:1].isupper()]


def _expectation(alternatives: list[_Leaf], lines: list[str]) -> str:
    matches = [match for leaf in alternatives if (match := _EXPECTED.fullmatch(leaf.text))]
    what = " or ".join(dict.fromkeys(_plain(match["what"]) for match in matches))
    got = matches[0]["got"]
    if got is None:
        given = (_GIVEN.search(line) for line in lines[alternatives[0].line :])
        got = next((match[1] for match in given if match), "something else")
    if nested := _NESTED.fullmatch(got):
        return f"there is no argument {nested[1]!r}; {what} has none"
    hint = "; put a text that looks like this in quotes"
    return f"expected {what}, got {got}{hint if _needs_quotes(what, got) else ''}"


def _needs_quotes(what: str, got: str) -> bool:
    """Whether a text was due that YAML took for a number or a switch."""
    if "str" not in what.split():
        return False
    try:
        float(got)
    except ValueError:
        return got in {"True", "False"}
    return True


def _plain(type_name: str) -> str:
    if type_name.startswith("dot import path string"):
        return "a class path"
    return re.sub(r"<class '([^']+)'>|typing\.", lambda match: match[1] or "", type_name)


def _reworded(leaf: _Leaf) -> str:
    if option := _OPTION.fullmatch(leaf.text):
        owner = f"{leaf.class_path} has no" if leaf.class_path else "there is no"
        name = option["key"] or option["option"]
        return f"{owner} argument {name!r}{(option['hint'] or '').replace(' --', ' ')}"
    return f"{leaf.class_path}: {leaf.text}" if leaf.class_path else leaf.text
