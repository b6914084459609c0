"""Which steps of a published series are wanted."""

import re
from collections.abc import Collection

_RANGE = re.compile(r"(\d+):(\d+):([1-9]\d*)")
_LAST_OF_PYTHIA = 143_000


def pythia_steps() -> list[int]:
    """Return the 154 steps of Pythia's revisions: 0, 1, 2, 4, ..., 512, 1000, 2000, ..., 143000."""
    return [0, *(2**i for i in range(10)), *range(1000, _LAST_OF_PYTHIA + 1, 1000)]


def check_steps(steps: str | list[int]) -> None:
    """Raise a ValueError unless `wanted_steps` knows what ``steps`` means."""
    if isinstance(steps, str):
        known = steps in {"all", "log", "pythia"} or _RANGE.fullmatch(steps) is not None
    else:
        known = bool(steps) and all(step >= 0 for step in steps)
    if not known:
        raise ValueError(
            "steps: expected 'all', 'log', 'pythia', 'FIRST:LAST:EVERY' or a list of steps, "
            f"got {steps!r}"
        )


def wanted_steps(steps: str | list[int], available: Collection[int]) -> list[int]:
    """Return the steps that are asked for, in rising order, whether they are there or not.

    Args:
        steps: ``all`` that are available; ``log`` for those nearest to 0, 1, 2, 4, ..., 512, 1000,
            2000, 4000, ... and the last one; ``pythia``; ``FIRST:LAST:EVERY``; or a list.
        available: Steps that are there.
    """
    if not isinstance(steps, str):
        return sorted(set(steps))
    if steps == "all":
        return sorted(available)
    if steps == "log":
        return _doubling(available)
    if steps == "pythia":
        return pythia_steps()
    first, last, every = map(int, steps.split(":"))
    return list(range(first, last + 1, every))


def _doubling(available: Collection[int]) -> list[int]:
    last = max(available)
    grid = [0, *(2**i for i in range(10))]
    while 2 * grid[-1] <= last:
        grid.append(1000 if grid[-1] == 512 else 2 * grid[-1])
    return sorted({*(min(available, key=lambda step: abs(step - aim)) for aim in grid), last})
