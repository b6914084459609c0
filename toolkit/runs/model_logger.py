"""The TensorBoard logger of one of several models in a run."""

import hashlib
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from typing_extensions import override

from toolkit.runs.unfinished import Unfinished

_SECONDS_BETWEEN_FLUSHES = 5
_DIGEST_BYTES = 4


class ModelLogger(TensorBoardLogger):
    """Writes a model's points into a subfolder of the run, which TensorBoard shows as a run.

    Args:
        table_folder: The run's folder, with the table that all its models share.
        model: Name of the model.

    Attributes:
        unfinished: The finished callbacks of the current checkpoint, None outside of a walk.
    """

    def __init__(self, table_folder: Path, model: str) -> None:
        super().__init__(
            table_folder,
            name=model_folder(model),
            version="",
            default_hp_metric=False,
            flush_secs=_SECONDS_BETWEEN_FLUSHES,
        )
        self.table_folder = table_folder
        self.unfinished: Unfinished | None = None

    @override
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Log no hyperparameters: a published model has none."""

    @override
    @rank_zero_only
    def save(self) -> None:
        """Write all points to disk."""
        self.experiment.flush()

    @override
    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Keep the file open: each checkpoint is a separate validation."""
        self.save()

    def close(self) -> None:
        """Close the file after the last checkpoint."""
        self.experiment.close()


def is_walk(loggers: Iterable[Logger]) -> bool:
    """Return whether these are the loggers of a walk over checkpoints."""
    return any(isinstance(logger, ModelLogger) for logger in loggers)


def model_folder(model: str) -> str:
    """Return a model's folder below the run's folder: its name, or a short form of its path.

    Different models have different folders.
    """
    path = PurePath(model)
    if path.parts and not path.is_absolute() and ".." not in path.parts:
        return str(path)
    digest = hashlib.blake2b(str(path).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return "-".join([*(part for part in path.parts[-1:] if part not in {"/", ".."}), digest])
