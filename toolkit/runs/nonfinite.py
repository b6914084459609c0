"""One warning a run about values that are not finite, whichever callback meets them first."""

from collections.abc import Iterable


class WarnsOfNonfinite:
    """A callback that warns of values that are not finite, unless another one has warned.

    A class, not an attribute that any callback may have by accident.

    Attributes:
        has_warned: Whether this callback has warned.
    """

    has_warned: bool = False


def has_been_warned(callbacks: Iterable[object]) -> bool:
    """Return whether one of the callbacks has warned of values that are not finite."""
    return any(
        callback.has_warned for callback in callbacks if isinstance(callback, WarnsOfNonfinite)
    )
