"""The useful sentence of a nested message of jsonargparse."""

import re
import sys
from typing import NamedTuple

from toolkit.console.parser import did_you_mean

_OWN_CLASS = "; give a full class_path for a class of your own"
# The modules, by option, with classes that a short name can mean.
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
# Messages that begin so keep all their lines.
_WHOLE = ("Problems parsing config", "unrecognized arguments: ", "Option '")
# Lines without information: frames of a message, and other types that were tried.
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
        message: A message; messages from other sources are returned unchanged.
        from_parser: Whether the message is known to come from a parser. Then an unknown message is
            reduced to its last line.

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
        # In an unknown message the last line has the most information.
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
    """Return the sentence for a name that is no class, if all alternatives are classes."""
    texts = {leaf.text for leaf in alternatives} - {"Expected a <class 'list'>"}
    unknown = _UNKNOWN_CLASS.fullmatch(texts.pop()) if len(texts) == 1 else None
    if unknown is None or not unknown[1].isidentifier():
        return None
    hint = did_you_mean(unknown[1], _short_names(alternatives[0].keys))
    return f"no class named {unknown[1]}{hint or _OWN_CLASS}"


def _short_names(keys: tuple[str, ...]) -> list[str]:
    """Return the short names of the toolkit's classes, if imported, that an option takes."""
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
    """Return whether YAML read a number or a switch where a text was expected."""
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
