"""Where a running trainer stands between two batches."""

from typing import Any

from lightning.pytorch import Trainer


def validation_follows(trainer: Trainer) -> bool:
    """Return whether the batch that has just been trained on is followed by a validation."""
    # Lightning's own decision; it has no public name.
    fetcher = trainer.fit_loop._data_fetcher  # noqa: SLF001
    if fetcher is None:
        return False
    due = trainer.fit_loop.epoch_loop._should_check_val_fx(fetcher)  # noqa: SLF001
    return due and sum(trainer.num_val_batches) > 0


def is_update(trainer: Trainer, batch_idx: int) -> bool:
    """Return whether the batch was the last one before an update, of those accumulated for it."""
    return trainer.is_last_batch or (batch_idx + 1) % trainer.accumulate_grad_batches == 0


def is_between_updates(trainer: Trainer) -> bool:
    """Return whether no update is under way: the weights are those after the last one."""
    loop = trainer.fit_loop.epoch_loop
    begun = loop.batch_progress.current.ready
    return 0 < begun == _processed(trainer) and is_update(trainer, loop.batch_idx)


def is_in_hooks(trainer: Trainer) -> bool:
    """Return whether the callbacks of the last batch have not all been called yet."""
    return trainer.fit_loop.epoch_loop.batch_progress.current.completed < _processed(trainer)


def log_batch(trainer: Trainer) -> None:
    """Log what the module has logged in the last batch: a run that ends in its hooks would not."""
    connector = trainer._logger_connector  # noqa: SLF001 - what the loop itself calls
    connector.on_batch_end()
    connector.update_train_step_metrics()


def is_at_end(trainer: Trainer) -> bool:
    """Return whether the run has taken its last step."""
    if 0 <= trainer.max_steps <= trainer.global_step:
        return True
    epochs = trainer.max_epochs
    return trainer.is_last_batch and epochs is not None and 0 <= epochs <= trainer.current_epoch + 1


def restore_loaders(trainer: Trainer) -> None:
    """Let the training loaders go on where the checkpoint left them.

    Lightning does so only if it asks for the loaders after the checkpoint has been read, and not
    at the end of an epoch. A run that is limited by epochs, whose optimiser asks how many steps
    that makes, would begin with the first batch again.
    """
    loop = trainer.fit_loop
    states = loop._combined_loader_states_to_load  # noqa: SLF001 - there is no public name
    loader, fetcher = loop._combined_loader, loop._data_fetcher  # noqa: SLF001
    if states and loader is not None and fetcher is not None:
        loader._load_state_dicts(states)  # noqa: SLF001
        loop._combined_loader_states_to_load = []  # noqa: SLF001
        iter(fetcher)


def due_validation_in(fit_loop: dict[str, Any]) -> None:
    """Change the saved state of the loops to that of a batch whose validation is about to begin.

    A validation that was under way is begun again.

    Args:
        fit_loop: What ``trainer.fit_loop.state_dict()`` returned after the update.
    """
    for progress in fit_loop["epoch_loop.batch_progress"].values():
        if isinstance(progress, dict):
            progress["completed"] = progress["processed"]
    validation = fit_loop["epoch_loop.val_loop.batch_progress"]
    done = validation["total"]["completed"]
    validation["total"] = {
        "ready": done + 1,
        "started": done + 1,
        "processed": done,
        "completed": done,
    }
    validation["current"] = {"ready": 1, "started": 1, "processed": 0, "completed": 0}


def _processed(trainer: Trainer) -> int:
    """Batches of this epoch that have been trained on, whether or not their hooks were called."""
    current: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    return int(current.processed)
