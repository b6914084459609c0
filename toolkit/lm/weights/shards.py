"""Weights that are cut into several files, by the names of these files."""

import re

from toolkit.functional._checks import shown_list
from toolkit.lm.weights.stores import Store

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})(?P<suffix>\.\w+)")
_SHOWN_NAMES = 3


def whole_set(store: Store, name: str) -> list[str]:
    """Return the names of all parts of the set that ``name`` belongs to, in order.

    Args:
        store: Where the file lies.
        name: Its name; the only one in the result unless it reads ``x-00001-of-00002.y``.

    Raises:
        ValueError: If other parts of the set do not lie beside it.
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
    """Return what the parts of a set are called, ``name`` alone if it is no part of one."""
    match = _PART.fullmatch(name)
    if match is None or not 1 <= int(match["number"]) <= int(match["total"]):
        return [name]
    numbers = range(1, int(match["total"]) + 1)
    return [f"{match['stem']}-{one:05}-of-{match['total']}{match['suffix']}" for one in numbers]


def index_of_set(name: str) -> str | None:
    """Return the name of the index that belongs to a part of a set, None if it is none."""
    match = _PART.fullmatch(name)
    return None if match is None else f"{match['stem']}{match['suffix']}.index.json"
