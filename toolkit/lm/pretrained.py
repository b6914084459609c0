"""Tokenizers by name, with errors that say what to do."""

from typing import TYPE_CHECKING

from toolkit.functional._checks import optional, valid_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_tokenizer(
    name: str, *, revision: str | None = None, gguf_file: str | None = None
) -> "PreTrainedTokenizerBase":
    """Return a tokenizer from a folder or from the Hub; none of its code is run.

    Args:
        name: Folder, or name on the Hub.
        revision: Branch, tag or commit on the Hub.
        gguf_file: Name of a GGUF file in the folder, which holds the tokenizer.

    Raises:
        ValueError: If it cannot be had.
    """
    from transformers import AutoTokenizer  # noqa: PLC0415

    valid_text("name", name)
    optional(valid_text, "revision", revision)
    try:
        return AutoTokenizer.from_pretrained(
            name, revision=revision, gguf_file=gguf_file, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().split("\n", maxsplit=1)[0]
        raise ValueError(
            f"tokenizer: expected a folder, or a name on the Hub that is cached or can be "
            f"reached, got {name} ({reason})"
        ) from error
