"""All classes below a class, by their class paths in a configuration."""

from typing import Any


def subclasses(kind: type) -> dict[str, type[Any]]:
    """Return every loaded class below ``kind`` by its class path.

    Of two siblings with one path, as after a second run of a notebook cell, the newer counts.
    """
    found: dict[str, type[Any]] = {}
    direct: type[Any]
    for direct in kind.__subclasses__():
        found |= {class_path(direct): direct, **subclasses(direct)}
    return found


def class_path(kind: type) -> str:
    """Return the module and name of a class, with a dot between them."""
    return f"{kind.__module__}.{kind.__qualname__}"
