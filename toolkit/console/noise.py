"""Messages of Lightning that are useless to users of a command, each with its reason."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_WARNINGS: tuple[tuple[str, type[Warning]], ...] = (
    # Lightning's own use of torch: https://github.com/Lightning-AI/pytorch-lightning/issues/21283
    (r".*LeafSpec.*", FutureWarning),
    # Lightning's own use of jsonargparse, which announces its version 5.
    (r"[\s\S]*was\s+deprecated\s+in\s+v4\.", DeprecationWarning),
    (r"\s*By default only one JsonargparseDeprecationWarning", DeprecationWarning),
    # On a cluster's login node; a run on one machine needs no srun.
    (r"The `srun` command is available on your system", UserWarning),
    # The version folder of a continued run is not empty, on purpose.
    (r"Checkpoint directory .* exists and is not empty", UserWarning),
    # The folder holds the run's lock; a folder with an earlier run has been refused before.
    (r"Experiment logs directory .* exists and is not empty", UserWarning),
    # The user asked to start a new version from a checkpoint of another version.
    (r"The dirpath has changed from ", UserWarning),
    # Only the names of older files are not restored if the interval has changed.
    (r"Be aware that when using `ckpt_path`.* \[\"RunCheckpoint\{[^}]*\}\"\]", UserWarning),
)
_INFOS = (
    # Advertisements for packages that are not needed.
    "💡 Tip: ",
    # An unused accelerator is no problem if the user did not ask for it.
    "TPU available: False",
    # Matrix products stay in exact float32 as in the published runs; there is no option.
    "You are using a CUDA device",
    # The command itself handles Ctrl-C.
    "\nDetected KeyboardInterrupt",
)
_LOGGER = "lightning.pytorch.utilities.rank_zero"


@contextmanager
def without_noise() -> Iterator[None]:
    """Suppress the messages above while the body runs."""
    logger = logging.getLogger(_LOGGER)
    logger.addFilter(_is_news)
    try:
        with warnings.catch_warnings():
            for message, category in _WARNINGS:
                warnings.filterwarnings("ignore", message, category)
            yield
    finally:
        logger.removeFilter(_is_news)


@contextmanager
def said_once() -> Iterator[None]:
    """Show each message of Lightning once, for any number of trainers in the body."""
    logger = logging.getLogger(_LOGGER)
    said: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        new = message not in said
        said.add(message)
        return new

    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_INFOS)
