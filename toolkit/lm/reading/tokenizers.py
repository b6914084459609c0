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
    """Return each text's token ids with the special tokens that the tokenizer adds, unpadded.

    Args:
        tokenizer: Left as it was.
        texts: The texts. One that begins with the first token's own text does not get it twice.
        max_length: Longer texts are cut to so many tokens.
        min_length: How many tokens a text needs at least.

    Raises:
        TypeError: If ``texts`` is no sequence of strings.
        ValueError: If there is no text, one has too few tokens, or the special tokens alone are
            more than ``max_length``.
    """
    function("tokenizer", tokenizer)
    check_texts(texts)
    with _unchanged(tokenizer):
        encoded = tokenizer(list(texts), padding=False, truncation=True, max_length=max_length)
    ids = [_once(tokenizer.bos_token_id, list(one)) for one in encoded["input_ids"]]
    short = [index for index, one in enumerate(ids) if len(one) < min_length]
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
    """Raise a TypeError unless these are strings in an order, a ValueError if there are none."""
    ordered = isinstance(texts, Iterable) and not isinstance(texts, str | bytes | Mapping | Set)
    listed = list(texts) if isinstance(texts, Iterable) else []
    if not ordered or not all(isinstance(text, str) for text in listed):
        raise TypeError(
            f"texts: expected a list of strings, got {shown(texts)}; put them in a list"
        )
    if not listed:
        raise ValueError("texts: expected at least one text, got none")


def _once(first: int | None, ids: list[int]) -> list[int]:
    """Return ``ids`` without the first token's repetition."""
    return ids[1:] if first is not None and ids[:2] == [first, first] else ids


@contextmanager
def _unchanged(tokenizer: "PreTrainedTokenizerBase") -> Iterator[None]:
    """Give a fast tokenizer its truncation and padding back, which every call replaces."""
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
    """Return the tokenizer in a model's folder, None if there is none."""
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
