"""Messages of Lightning that nobody who types a command can act on, each with its reason."""

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
    # A version folder is not empty when its run is continued, which was asked for.
    (r"Checkpoint directory .* exists and is not empty", UserWarning),
    # The lock of a run lies in its folder; a folder with an earlier run has been refused.
    (r"Experiment logs directory .* exists and is not empty", UserWarning),
    # A new version folder starts from a checkpoint of another one, which was asked for.
    (r"The dirpath has changed from ", UserWarning),
    # With another interval, or none, the names of older files are all that is not restored.
    (r"Be aware that when using `ckpt_path`.* \[\"RunCheckpoint\{[^}]*\}\"\]", UserWarning),
)
_INFOS = (
    # Advertisements for packages that are not needed.
    "💡 Tip: ",
    # Nobody misses an accelerator that was not asked for.
    "TPU available: False",
    # Products stay exact float32, as in the published runs: there is no option to set.
    "You are using a CUDA device",
    # Ctrl-C is answered by the command itself.
    "\nDetected KeyboardInterrupt",
)
_LOGGER = "lightning.pytorch.utilities.rank_zero"


@contextmanager
def without_noise() -> Iterator[None]:
    """Leave the messages above out while the body runs."""
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
    """Let each message of Lightning through once, however many trainers the body has."""
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
