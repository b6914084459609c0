"""One warning in a run about values that are not finite."""

from collections.abc import Iterable


class WarnsOfNonfinite:
    """A callback that warns of values that are not finite, unless another callback has warned.

    It is a class, because other callbacks may have an attribute of the same name.

    Attributes:
        has_warned: Whether this callback has warned.
    """

    has_warned: bool = False


def has_been_warned(callbacks: Iterable[object]) -> bool:
    """Return whether a callback has warned of values that are not finite."""
    return any(
        callback.has_warned for callback in callbacks if isinstance(callback, WarnsOfNonfinite)
    )
