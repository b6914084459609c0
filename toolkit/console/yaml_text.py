"""Reading and writing of YAML: limits, no duplicate keys, texts as they were typed."""

from typing import Any

import yaml  # type: ignore[import-untyped]
from jsonargparse import get_loader, set_dumper, set_loader

YAMLError: type[Exception] = yaml.YAMLError
_MAX_DEPTH = 50
# jsonargparse takes some milliseconds for each value.
_MAX_VALUES = 5_000
_NULLS = ("null", "Null", "NULL", "~", "")
_MERGE = "<<"
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_read = get_loader("yaml")


class _Level:
    """A list or mapping that is open while a text is read.

    Attributes:
        anchor: Its anchor, None without an anchor.
        line: First line, from 1.
        keys: Keys and their lines, None for a list.
        values: Number of values so far; an alias counts as many as its target.
        is_key: Whether the next value is a key.
    """

    def __init__(self, event: yaml.CollectionStartEvent) -> None:
        self.anchor: str | None = event.anchor
        self.line: int = event.start_mark.line + 1
        self.keys: dict[str, int] | None = {} if isinstance(event, yaml.MappingStartEvent) else None
        self.values = 0
        self.is_key = self.keys is not None

    def add(self, event: yaml.Event, values: int) -> None:
        """Count a value; refuse a key that the mapping has already."""
        self.values += values
        if self.values > _MAX_VALUES:
            raise ValueError(
                f"line {event.start_mark.line + 1}: expected at most {_MAX_VALUES:,} values, "
                "aliases counted as what they stand for, got more"
            )
        if self.keys is None:
            return
        if self.is_key and isinstance(event, yaml.ScalarEvent) and event.value != _MERGE:
            line = event.start_mark.line + 1
            if event.value in self.keys:
                raise ValueError(
                    f"line {line}: key {event.value!r} stands in line "
                    f"{self.keys[event.value]} already; keep one of them"
                )
            self.keys[event.value] = line
        self.is_key = not self.is_key


def load(text: str) -> Any:  # noqa: ANN401
    """Return the data of a YAML text, as jsonargparse reads it.

    Args:
        text: A configuration, or a value of the command line.

    Raises:
        ValueError: If a mapping has a key twice, a list or mapping contains itself, or the text
            has more than 50 levels or 5,000 values; an alias counts as many as its target.
        yaml.YAMLError: If the text is not YAML.
    """
    _check(text)
    value = _read(text)
    # A text that is only a comment, such as a name that begins with #, is not null.
    return text if value is None and text.strip() not in _NULLS else value


def dump(data: Any) -> str:  # noqa: ANN401
    """Return data as YAML; every version of YAML reads each text back as the same text."""
    text: str = yaml.dump(
        data, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False
    )
    return text


def install() -> None:
    """Make jsonargparse read and write YAML by the functions above."""
    set_loader("yaml", load, exceptions=(YAMLError,))
    set_dumper("yaml", dump)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes texts that some version of YAML reads as a number, as 1e5 and 0o17 in 1.2."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _read_scalar(text)
    style = None if isinstance(plain, str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _read_scalar(text: str) -> Any:  # noqa: ANN401
    """Return the text's value without quotes in YAML 1.1, YAML 1.2 and jsonargparse."""
    for number in (float, lambda digits: int(digits, 0)):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _check(text: str) -> None:
    levels: list[_Level] = []
    sizes: dict[str, int] = {}
    for event in yaml.parse(text, Loader=_PARSER):
        values = 1
        if isinstance(event, yaml.CollectionStartEvent):
            levels.append(_Level(event))
            _check_depth(levels)
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            closed = levels.pop()
            values += closed.values
            sizes[closed.anchor or ""] = values
        elif isinstance(event, yaml.AliasEvent):
            values = _values_behind(event, levels, sizes)
        elif not isinstance(event, yaml.ScalarEvent):
            continue
        if levels:
            levels[-1].add(event, values)


def _check_depth(levels: list[_Level]) -> None:
    if len(levels) > _MAX_DEPTH:
        raise ValueError(
            f"line {levels[-1].line}: expected at most {_MAX_DEPTH} levels of lists and mappings, "
            "got more"
        )


def _values_behind(event: yaml.AliasEvent, levels: list[_Level], sizes: dict[str, int]) -> int:
    """Return the number of values of an alias's target."""
    if any(level.anchor == event.anchor for level in levels):
        raise ValueError(
            f"line {event.start_mark.line + 1}: alias *{event.anchor} stands inside "
            f"&{event.anchor} itself; a list or mapping cannot contain itself"
        )
    return sizes.get(event.anchor, 1)
