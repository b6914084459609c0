"""The default interval of logged training losses: about a hundred in a run."""

import lightning as L
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

# Lightning's own interval, which suits long runs.
_LONGEST = 50
_POINTS = 100


class LoggingInterval(Callback):
    """Sets the Trainer's ``log_every_n_steps`` from the number of steps of the run."""

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Set the interval; a continued run uses the length of the whole run."""
        trainer.log_every_n_steps = interval(  # type: ignore[attr-defined]
            trainer.estimated_stepping_batches
        )


def interval(num_steps: float) -> int:
    """Return the number of steps from one logged loss to the next.

    Args:
        num_steps: Steps of the whole run; infinity without a limit.

    Returns:
        At most 50 and at most a hundredth of the run; if possible a divisor of its length, so that
        the last step is logged, too.

    Example:
        >>> [interval(steps) for steps in (20, 1000, 1010, 1009, 100_000, float("inf"))]
        [1, 10, 10, 10, 50, 50]
    """
    limit = max(1, int(min(_LONGEST, num_steps / _POINTS)))
    divisors = [n for n in range(limit, limit // 4, -1) if num_steps % n == 0]
    return divisors[0] if divisors else limit
