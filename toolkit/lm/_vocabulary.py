"""How many rows of an embedding a tokenizer can reach, by its files alone."""

from collections.abc import Iterable, Iterator
from typing import Any

from toolkit.lm._stores import Store


def vocabulary_size(store: Store) -> int | None:
    """Return the largest token id plus one, which is ``len(tokenizer)`` where ids have no gaps.

    Args:
        store: Where the model's files lie; asked for ``tokenizer.json``, else for ``vocab.json``
            with what ``added_tokens.json`` and ``tokenizer_config.json`` add.

    Returns:
        The number, None if there is no such file.

    Raises:
        ValueError: If a file has another form.
    """
    name, ids = "tokenizer.json", _ids_of_tokenizer
    content = store.json(name)
    if content is None:
        name, ids = "vocab.json", _ids_of_parts
        content = store.json(name)
    if content is None:
        return None
    try:
        return 1 + max(ids(content, store))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"source: expected a tokenizer with token ids in {store.label}/{name}, got something "
            "else; measure all rows (--rows all)"
        ) from error


def _ids_of_tokenizer(content: Any, store: Store) -> Iterator[int]:  # noqa: ANN401
    del store  # everything stands in this file
    vocabulary = content["model"]["vocab"]
    # Unigram models list their tokens in the order of ids.
    yield from range(len(vocabulary)) if isinstance(vocabulary, list) else vocabulary.values()
    yield from (token["id"] for token in content.get("added_tokens") or ())


def _ids_of_parts(content: Any, store: Store) -> Iterator[int]:  # noqa: ANN401
    yield from content.values()
    yield from (store.json("added_tokens.json") or {}).values()
    config = store.json("tokenizer_config.json") or {}
    added: Iterable[str] = config.get("added_tokens_decoder") or ()
    yield from map(int, added)
