"""Weights in several files (shards), recognised by the names of the files."""

import re

from toolkit.functional._checks import shown_list
from toolkit.lm.weights.stores import Store

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})(?P<suffix>\.\w+)")
_SHOWN_NAMES = 3


def whole_set(store: Store, name: str) -> list[str]:
    """Return the names of all parts of the set that ``name`` belongs to, in order.

    Args:
        store: The store of the file.
        name: Name of the file. Unless it has the form ``x-00001-of-00002.y``, the result is this
            name alone.

    Raises:
        ValueError: If the store lacks other parts of the set.
    """
    names = names_of_set(name)
    missing = [part for part in names if not store.holds(part)]
    if missing:
        raise ValueError(
            f"source: expected all {len(names)} parts of the weights beside {store.label}/{name}, "
            f"got none named {shown_list(missing, _SHOWN_NAMES)}; fetch them, too"
        )
    return names


def names_of_set(name: str) -> list[str]:
    """Return the names of all parts of a set, ``name`` alone if it is not a part of a set."""
    match = _PART.fullmatch(name)
    if match is None or not 1 <= int(match["number"]) <= int(match["total"]):
        return [name]
    numbers = range(1, int(match["total"]) + 1)
    return [f"{match['stem']}-{part:05}-of-{match['total']}{match['suffix']}" for part in numbers]


def index_of_set(name: str) -> str | None:
    """Return the name of the index of a set of parts, None if ``name`` is not a part of a set."""
    match = _PART.fullmatch(name)
    return None if match is None else f"{match['stem']}{match['suffix']}.index.json"
