"""Schedules: sets of step numbers, described by plain types."""

from math import inf
from typing import Literal, TypeGuard

import lightning as L

from toolkit.functional._checks import (
    different,
    integer_at_least,
    integers_at_least,
    is_integer,
    shown,
)


class Schedule:
    """A set of scheduled steps, used as ``step in schedule``.

    Args:
        schedule: An integer n for every n steps, a list of steps, or ``"log"`` for the steps at
            which the Pythia suite saved checkpoints: 0, 1, 2, 4, ..., 512, 1000, 2000, ...
            (arXiv 2304.01373, section 2).

    Raises:
        ValueError: If the integer is below 1, the list is empty or holds anything but
            non-negative integers, or an integer is 2^53 or more.

    Example:
        >>> [step for step in range(3001) if step in Schedule("log")][-4:]
        [512, 1000, 2000, 3000]
    """

    def __init__(self, schedule: int | list[int] | Literal["log"]) -> None:
        self._every: int | None = None
        self._steps: frozenset[int] | None = None
        if is_integer(schedule) and schedule >= 1:
            self._every = integer_at_least("schedule", schedule, 1)
        elif _is_steps(schedule):
            steps = integers_at_least("schedule", schedule, 0)
            self._steps = frozenset(different("schedule", steps))
        elif not isinstance(schedule, str) or schedule != "log":
            raise ValueError(
                "schedule: expected a positive integer, a list of non-negative integers or 'log', "
                f"got {shown(schedule)}"
            )

    def __contains__(self, step: int) -> bool:
        if self._every is not None:
            return step % self._every == 0
        if self._steps is not None:
            return step in self._steps
        # Clearing the lowest set bit leaves 0 for 0 and for powers of two.
        return step & (step - 1) == 0 if step < 1000 else step % 1000 == 0

    def within(self, after: int, step: int) -> bool:
        """Return whether the schedule holds a step above ``after`` and up to ``step``.

        A batch counts a step for each optimiser that it updates.
        """
        return any(between in self for between in range(after + 1, step + 1))


class DueSteps:
    """The scheduled steps and the last step of a running training.

    Args:
        schedule: See `Schedule`.
    """

    def __init__(self, schedule: int | list[int] | Literal["log"]) -> None:
        self._schedule = Schedule(schedule)
        self._last: float = inf
        self._before = 0

    def begin(self, trainer: L.Trainer) -> None:
        """Start at the trainer's step."""
        self._last = last_step(trainer)
        self._before = trainer.global_step

    def __contains__(self, step: int) -> bool:
        return step in self._schedule

    def reached(self, step: int) -> bool:
        """Return whether the last batch has reached a scheduled step or the last step."""
        before, self._before = self._before, step
        return self._schedule.within(before, step) or step >= self._last


def _is_steps(schedule: object) -> TypeGuard[list[int]]:
    if not isinstance(schedule, list) or not schedule:
        return False
    return all(is_integer(step) and step >= 0 for step in schedule)


def last_step(trainer: L.Trainer) -> float:
    """Return the last step of the run, infinite if it is not known in advance."""
    number = trainer.estimated_stepping_batches
    return number if number >= 0 else inf


def takes_no_step(trainer: L.Trainer) -> bool:
    """Return whether a new run has no steps: it calls no hook of training."""
    return trainer.ckpt_path is None and 0 in {trainer.max_steps, trainer.max_epochs}
