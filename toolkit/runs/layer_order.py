"""The order of layers, matrices and widths in tables and figures."""

import re
from collections.abc import Iterable

_FINAL = "final"
_NUMBER = re.compile(r"(\d+)")


def in_layer_order(names: Iterable[str]) -> list[str]:
    """Return the names from input to output: numbers by their size, ``final`` last.

    Example:
        >>> in_layer_order(["final", "layer_100", "layer_99"])
        ['layer_99', 'layer_100', 'final']
        >>> in_layer_order(["m_12000", "m_0010_m_0015", "m_0010"])
        ['m_0010', 'm_0010_m_0015', 'm_12000']
    """
    return sorted(names, key=_position)


def _position(name: str) -> tuple[bool, list[str | int]]:
    # Texts are at even positions and numbers at odd positions, so that types agree.
    parts = _NUMBER.split(name)
    return name == _FINAL, [int(part) if index % 2 else part for index, part in enumerate(parts)]
