"""Write a language model as a folder that `transformers` loads."""

from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.atomic import new_folder
from toolkit.lm._loading import without_bars
from toolkit.lm._names import without_wrappers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def save_folder(
    path: Path, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase | None"
) -> None:
    """Write weights (safetensors), configuration and tokenizer, all of them or none.

    The weights have the names that they have in the model itself, also where parts of it are
    compiled or wrapped: under others they would be read by nobody.

    Args:
        path: The folder; if it is there, it stays as it is.
        model: The model.
        tokenizer: Its tokenizer, if there is one.
    """
    if path.is_dir():
        return
    with new_folder(path) as temporary, without_bars():
        state = model.state_dict()
        named = {without_wrappers(name): value for name, value in state.items()}
        model.save_pretrained(temporary, state_dict=named)
        if tokenizer is not None:
            tokenizer.save_pretrained(temporary)
