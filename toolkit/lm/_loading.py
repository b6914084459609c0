"""Load a causal language model from a folder: safely, whole, or with one line that says why not."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import torch

from toolkit.lm.checkpoints import OpenedModel
from toolkit.lm.pretrained import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")
_SHOWN_NAMES = 3


def load_folder(folder: Path, dtype: torch.dtype, *, label: str, allow_pickle: bool) -> OpenedModel:
    """Load the model in ``folder`` and its tokenizer, without any code of its own.

    Args:
        folder: A folder of a Hugging Face model.
        dtype: What the weights become, however they are stored.
        label: What to call the model in messages.
        allow_pickle: Whether to load pickled weights where there are no safetensors.

    Raises:
        ValueError: If there are no such weights, they lack a tensor, or the model needs code of
            its own.
    """
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    if not allow_pickle and not any(folder.glob("*.safetensors")):
        pickles = sorted(path.name for path in folder.glob("*.bin"))
        advice = "; convert them or set allow_pickle" if pickles else ""
        raise ValueError(
            f"checkpoint: expected safetensors in {label}, got {', '.join(pickles) or 'no weights'}"
            f"{advice}"
        )
    try:
        with _quiet():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                trust_remote_code=False,
                use_safetensors=None if allow_pickle else True,
                output_loading_info=True,
                local_files_only=True,
            )
    except UnpicklingError as error:
        raise ValueError(
            f"checkpoint: expected plain tensors in {label}, got a pickle that asks for code; "
            "refused, nothing in it was run"
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).strip().split("\n", maxsplit=1)[0]
        raise ValueError(f"checkpoint: expected a whole model in {label}, got {reason}") from error
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        shown = ", ".join(missing[:_SHOWN_NAMES]) + (", ..." if missing[_SHOWN_NAMES:] else "")
        raise ValueError(
            f"checkpoint: expected all weights in {label}, got none for {shown}; they would be "
            "random"
        )
    model.eval()
    return OpenedModel(model, _tokenizer(folder))


def _tokenizer(folder: Path) -> "PreTrainedTokenizerBase | None":
    if any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return load_tokenizer(str(folder))
    return None


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out bars and reports on names that a model has never used: one for each checkpoint."""
    logging: Any = importlib.import_module("transformers.utils.logging")
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
