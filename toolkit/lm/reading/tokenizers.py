"""Tokenizers by name or folder, and the token ids of texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.functional._checks import function, optional, shown, valid_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")


def token_ids(
    tokenizer: "PreTrainedTokenizerBase",
    texts: Sequence[str],
    *,
    max_length: int,
    min_length: int = 1,
) -> list[list[int]]:
    """Return each text's token ids, with special tokens and without padding.

    Args:
        tokenizer: The tokenizer; its settings are restored.
        texts: The texts. A text that already begins with the BOS token does not get a second one.
        max_length: Largest number of tokens of a text; longer texts are cut.
        min_length: Smallest number of tokens of a text.

    Raises:
        TypeError: If ``texts`` is not a sequence of strings.
        ValueError: If there is no text, a text has too few tokens, or the special tokens alone
            exceed ``max_length``.
    """
    function("tokenizer", tokenizer)
    check_texts(texts)
    with _unchanged(tokenizer):
        encoded = tokenizer(list(texts), padding=False, truncation=True, max_length=max_length)
    ids = [_once(tokenizer.bos_token_id, list(tokens)) for tokens in encoded["input_ids"]]
    short = [index for index, tokens in enumerate(ids) if len(tokens) < min_length]
    if short:
        raise ValueError(
            f"texts: expected at least {min_length} token(s) to pool in each text, got "
            f"{len(ids[short[0]])} in text {short[0]} ({len(short)} such texts); drop them"
        )
    if max(map(len, ids)) > max_length:
        raise ValueError(
            f"max_length: expected room for the special tokens of {type(tokenizer).__name__}, "
            f"got {max_length}; raise it"
        )
    return ids


def check_texts(texts: object) -> None:
    """Raise a TypeError unless ``texts`` are ordered strings, a ValueError if there are none."""
    ordered = isinstance(texts, Iterable) and not isinstance(texts, str | bytes | Mapping | Set)
    listed = list(texts) if isinstance(texts, Iterable) else []
    if not ordered or not all(isinstance(text, str) for text in listed):
        raise TypeError(
            f"texts: expected a list of strings, got {shown(texts)}; put them in a list"
        )
    if not listed:
        raise ValueError("texts: expected at least one text, got none")


def _once(first: int | None, ids: list[int]) -> list[int]:
    """Return ``ids`` without a repetition of the first token."""
    return ids[1:] if first is not None and ids[:2] == [first, first] else ids


@contextmanager
def _unchanged(tokenizer: "PreTrainedTokenizerBase") -> Iterator[None]:
    """Restore the truncation and padding of a fast tokenizer, which every call replaces."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        yield
        return
    truncation, padding = backend.truncation, backend.padding
    try:
        yield
    finally:
        backend.no_truncation()
        backend.no_padding()
        if truncation is not None:
            backend.enable_truncation(**truncation)
        if padding is not None:
            backend.enable_padding(**padding)


def folder_tokenizer(folder: Path) -> "PreTrainedTokenizerBase | None":
    """Return the tokenizer in a model's folder, None if the folder contains none."""
    if any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return load_tokenizer(str(folder))
    return None


def load_tokenizer(
    name: str, *, revision: str | None = None, gguf_file: str | None = None
) -> "PreTrainedTokenizerBase":
    """Return a tokenizer from a folder or from the Hub; none of its code is run.

    Args:
        name: Folder, or name on the Hub.
        revision: Branch, tag or commit on the Hub.
        gguf_file: Name of a GGUF file in the folder that contains the tokenizer.

    Raises:
        ValueError: If the tokenizer cannot be loaded.
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
