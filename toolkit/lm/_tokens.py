"""Token ids of texts, as a tokenizer wants them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolkit.functional._checks import function, shown

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
