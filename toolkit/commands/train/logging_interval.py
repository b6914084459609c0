"""How often a run logs its training loss, unless it is told: about a hundred times."""

import lightning as L
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

# Lightning's own interval, which is right for long runs.
_LONGEST = 50
_POINTS = 100


class LoggingInterval(Callback):
    """Sets the Trainer's ``log_every_n_steps`` by the number of steps that it is to take."""

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Choose the interval; that of a continued run is that of the whole run."""
        trainer.log_every_n_steps = interval(  # type: ignore[attr-defined]
            trainer.estimated_stepping_batches
        )


def interval(num_steps: float) -> int:
    """Return the number of steps from one logged loss to the next.

    Args:
        num_steps: Steps of the whole run; infinity where there is no limit.

    Returns:
        Up to 50, at most a hundredth of the run, and a divisor of its length where a large enough
        one exists, so that the last step is logged, too.

    Example:
        >>> [interval(steps) for steps in (20, 1000, 1010, 1009, 100_000, float("inf"))]
        [1, 10, 10, 10, 50, 50]
    """
    limit = max(1, int(min(_LONGEST, num_steps / _POINTS)))
    divisors = [n for n in range(limit, limit // 4, -1) if num_steps % n == 0]
    return divisors[0] if divisors else limit
