"""The position of a running trainer between two batches."""

from typing import Any

from lightning.pytorch import Trainer

from toolkit.lightning_private import BATCH_PROGRESS, VALIDATION_PROGRESS, checks_validation


def validation_follows(trainer: Trainer) -> bool:
    """Return whether a validation follows the last training batch."""
    return checks_validation(trainer) and sum(trainer.num_val_batches) > 0


def is_update(trainer: Trainer, batch_idx: int) -> bool:
    """Return whether the last batch completed an update, with accumulation."""
    return trainer.is_last_batch or (batch_idx + 1) % trainer.accumulate_grad_batches == 0


def is_between_updates(trainer: Trainer) -> bool:
    """Return whether no update is in progress."""
    loop = trainer.fit_loop.epoch_loop
    begun = loop.batch_progress.current.ready
    return 0 < begun == _processed(trainer) and is_update(trainer, loop.batch_idx)


def is_in_hooks(trainer: Trainer) -> bool:
    """Return whether some callbacks of the last batch have not been called yet."""
    return trainer.fit_loop.epoch_loop.batch_progress.current.completed < _processed(trainer)


def is_at_end(trainer: Trainer) -> bool:
    """Return whether the run has taken its last step."""
    if 0 <= trainer.max_steps <= trainer.global_step:
        return True
    epochs = trainer.max_epochs
    return trainer.is_last_batch and epochs is not None and 0 <= epochs <= trainer.current_epoch + 1


def due_validation_in(fit_loop: dict[str, Any]) -> None:
    """Change the saved state of the loops to the state before the batch's validation.

    An interrupted validation begins again.

    Args:
        fit_loop: What ``trainer.fit_loop.state_dict()`` returned after the update.
    """
    for progress in fit_loop[BATCH_PROGRESS].values():
        if isinstance(progress, dict):
            progress["completed"] = progress["processed"]
    validation = fit_loop[VALIDATION_PROGRESS]
    done = validation["total"]["completed"]
    validation["total"] = {
        "ready": done + 1,
        "started": done + 1,
        "processed": done,
        "completed": done,
    }
    validation["current"] = {"ready": 1, "started": 1, "processed": 0, "completed": 0}


def _processed(trainer: Trainer) -> int:
    """Return the trained batches of this epoch, with or without their hooks."""
    current: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    return int(current.processed)
