"""Write a language model as a folder that `transformers` loads."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from toolkit.atomic import new_folder
from toolkit.lm.checkpoints.loading import without_bars
from toolkit.lm.weights.names import without_wrappers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_OS_ERROR = re.compile(r"os error (\d+)")


def save_folder(
    path: Path, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase | None"
) -> None:
    """Write weights (safetensors), configuration and tokenizer, all of them or none.

    The weights get the names of the plain model, also if parts of it are compiled or wrapped: no
    other program knows the names of wrapped weights.

    Args:
        path: The folder; an existing folder is left unchanged.
        model: The model.
        tokenizer: Its tokenizer, or None.
    """
    if path.is_dir():
        return
    with new_folder(path) as temporary, without_bars():
        state = model.state_dict()
        named = {without_wrappers(name): value for name, value in state.items()}
        with _full_disk_as_os_error(path):
            model.save_pretrained(temporary, state_dict=named)
        if tokenizer is not None:
            tokenizer.save_pretrained(temporary)


@contextmanager
def _full_disk_as_os_error(path: Path) -> Iterator[None]:
    """Raise an OSError for a full disk: the error of safetensors has its number only as text."""
    try:
        yield
    except SafetensorError as error:
        number = _OS_ERROR.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
