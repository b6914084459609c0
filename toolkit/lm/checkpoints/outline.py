"""Shape of a model from its small files, without its weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from toolkit.lm.architecture.families import language_model_parts
from toolkit.lm.checkpoints.base import Checkpoint
from toolkit.lm.checkpoints.hub_files import CONFIG, needed_files
from toolkit.lm.checkpoints.local import FolderCheckpoint
from toolkit.lm.reading.hidden_states import check_fit
from toolkit.lm.reading.tokenizers import folder_tokenizer, token_ids
from toolkit.lm.weights.vocabulary import tokenizer_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WEIGHTS = (".safetensors", ".bin")


class Outline(NamedTuple):
    """Shape of a model.

    Attributes:
        num_blocks: Number of blocks L.
        num_rows: Rows of the unembedding that the tokenizer reaches.
        dim: Width of the unembedding.
    """

    num_blocks: int
    num_rows: int
    dim: int


def read_outline(checkpoint: Checkpoint, texts: Sequence[str], *, max_length: int) -> Outline:
    """Check a model by its files except the weights; download these files if needed.

    Args:
        checkpoint: A folder or a published checkpoint.
        texts: Texts that the model is going to read.
        max_length: Largest number of tokens of a text; longer texts are cut.

    Raises:
        ValueError: If the weights or the tokenizer are missing, the family is unknown, or the
            model cannot read the texts.
    """
    checkpoint.fetch(file for file in checkpoint.missing() if file.path.suffix not in _WEIGHTS)
    folder = checkpoint.cache_folder
    if isinstance(checkpoint, FolderCheckpoint):
        folder = checkpoint.folder
        names = [path.name for path in folder.iterdir()]
        if CONFIG not in names:
            raise ValueError(f"checkpoint: expected a model's folder with {CONFIG}, got {folder}")
        needed_files(names, str(folder), allow_pickle=checkpoint.allow_pickle)
    if folder is None:
        raise ValueError(
            f"checkpoint: expected a folder or a published checkpoint, got {checkpoint.label}"
        )
    tokenizer = folder_tokenizer(folder)
    if tokenizer is None:
        raise ValueError(
            f"tokenizer: expected a tokenizer beside the weights, got none in {folder}; "
            "save it there"
        )
    model = _without_weights(folder)
    parts = language_model_parts(model)
    check_fit(token_ids(tokenizer, texts, max_length=max_length), parts, model)
    weight: Any = parts.unembedding.weight
    return Outline(len(parts.blocks), min(len(weight), tokenizer_rows(tokenizer)), weight.shape[1])


def _without_weights(folder: Path) -> "PreTrainedModel":
    """Return the model on the meta device: shapes without values."""
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
                config, trust_remote_code=False
            )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).strip().split("\n", maxsplit=1)[0]
        raise ValueError(
            f"config: expected a causal language model in {folder}, got {reason}"
        ) from error
    return model
