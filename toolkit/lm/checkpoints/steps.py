"""Steps of checkpoints: the step in a name, and the selected steps of a series."""

import re
from collections.abc import Collection
from pathlib import Path

from toolkit.functional._checks import LARGEST_INTEGER, different, integers_at_least, shown
from toolkit.lm.paths import fits

# Mark for the place of the step in a pattern.
STEP_PLACE = "{step}"
_MARK = r"(?<![a-z])(?:global_?)?(?:step|checkpoint)[-_=]?"
_MARKED = re.compile(rf"{_MARK}\d", re.IGNORECASE)
# Not 4k, 1e3, 1.5, 1_000 or 1,000; a number of 19 digits or more cannot be logged as a step.
_STATED = re.compile(rf"{_MARK}(\d{{1,18}})(?![\da-z,]|[._]\d)", re.IGNORECASE)
_EPOCH = re.compile(r"epoch[-_=]?\d+[-_]", re.IGNORECASE)
_RANGE = re.compile(r"(\d{1,30}):(\d{1,30}):([1-9]\d{0,29})")
_LAST_OF_PYTHIA = 143_000
_MOST_STEPS = 1_000_000


def pythia_steps() -> list[int]:
    """Return the 154 steps of Pythia's revisions: 0, 1, 2, 4, ..., 512, 1000, 2000, ..., 143000."""
    return [0, *(2**i for i in range(10)), *range(1000, _LAST_OF_PYTHIA + 1, 1000)]


def step_in_name(name: str) -> int | None:
    """Return the step in the name of a folder, file or revision, None without a clear step.

    The step is recognised in names from Lightning (``epoch=E-step=N``), Hugging Face's Trainer
    (``checkpoint-N``), OLMo (``stage1-stepN-tokens4B``), Pythia (``stepN``) and the toolkit
    (``step-N``). Other text before and after it is allowed if the step stays unambiguous.

    Example:
        >>> [step_in_name(name) for name in ("epoch=0-step=200-v1", "checkpoint-7", "step4k")]
        [200, 7, None]
    """
    stated = [int(number) for number in _STATED.findall(name)]
    certain = len(stated) == len(_MARKED.findall(name)) and len(set(stated)) == 1
    return stated[0] if certain else None


def step_at(path: Path, pattern: str) -> int | None:
    """Return the number at ``{step}`` of a pattern, None without exactly one such number.

    Example:
        >>> step_at(Path("runs/iter_0500_v2"), "runs/iter_{step}_*")
        500
    """
    before, after = str(Path(pattern).expanduser()).split(STEP_PLACE)
    text = str(path)
    numbers = [
        int(number[0])
        for number in re.finditer(r"\d+", text)
        if fits(text[: number.start()], before) and fits(text[number.end() :], after)
    ]
    return numbers[0] if len(numbers) == 1 else None


def name_before_step(name: str) -> str:
    """Return the name up to the step, without an epoch: all steps of a run share it."""
    mark = _MARKED.search(name)
    return _EPOCH.sub("", name[: mark.start()] if mark else name)


def check_steps(steps: str | list[int]) -> None:
    """Raise a ValueError unless ``steps`` is a valid argument of `wanted_steps`."""
    if not isinstance(steps, str):
        different("steps", integers_at_least("steps", steps, 0))
    elif steps not in {"all", "log", "pythia"} and _RANGE.fullmatch(steps) is None:
        raise ValueError(
            "steps: expected 'all', 'log', 'pythia', 'FIRST:LAST:EVERY' or a list of steps, "
            f"got {shown(steps)}"
        )
    elif _RANGE.fullmatch(steps) is not None:
        _check_range(steps)


def _check_range(steps: str) -> None:
    """Raise a ValueError for a range that is empty, has too many steps or only its first step."""
    first, last, every = map(int, steps.split(":"))
    if last > LARGEST_INTEGER or (last - first) // every >= _MOST_STEPS:
        raise ValueError(
            f"steps: expected a range of at most {_MOST_STEPS:,} steps up to "
            f"{LARGEST_INTEGER:,}, got {shown(steps)}"
        )
    if first > last:
        raise ValueError(f"steps: expected FIRST up to LAST in a range, got {shown(steps)}")
    if first < last < first + every:
        raise ValueError(
            f"steps: expected an EVERY that fits between FIRST and LAST, got {shown(steps)}; "
            f"for step {first} alone give [{first}]"
        )


def wanted_steps(steps: str | list[int], available: Collection[int]) -> list[int]:
    """Return the selected steps in rising order, whether or not they are available.

    Args:
        steps: ``all`` available steps; ``log`` for the steps nearest to 0, 1, 2, 4, ..., 512,
            1000, 2000, 4000, ... and the last step; ``pythia``; ``FIRST:LAST:EVERY``; or a list.
        available: The available steps.
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
    return sorted({*(min(available, key=lambda step: abs(step - target)) for target in grid), last})
