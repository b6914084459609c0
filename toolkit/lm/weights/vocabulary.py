"""Number of embedding rows that a tokenizer reaches, from its files or its object."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from toolkit.lm.weights.stores import Store

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def reached_rows(names: Mapping[int, str]) -> int:
    """Return the largest token id plus one; it may exceed the number of rows of the model.

    The number of tokens is smaller if the ids have gaps. Tokens ``[PAD<id>]`` at the end do not
    count: converters to GGUF add them until every row has a token.

    Args:
        names: Token of each id.
    """
    number = 1 + max(names)
    while names.get(number - 1) == f"[PAD{number - 1}]":
        number -= 1
    return number


def tokenizer_rows(tokenizer: "PreTrainedTokenizerBase") -> int:
    """Return `reached_rows` of a loaded tokenizer."""
    return reached_rows({index: name for name, index in tokenizer.get_vocab().items()})


def vocabulary_size(store: Store) -> int | None:
    """Return the value of `tokenizer_rows` from the files of the tokenizer alone.

    Args:
        store: The store of the model's files. ``tokenizer.json`` is read or, without it,
            ``vocab.json``, and the additional tokens in ``added_tokens.json`` and
            ``tokenizer_config.json``.

    Returns:
        The number, None without ``tokenizer.json`` and ``vocab.json``.

    Raises:
        ValueError: If a file has an unexpected form.
    """
    file, content = "tokenizer.json", store.json("tokenizer.json")
    if content is None:
        file, content = "vocab.json", store.json("vocab.json")
    if content is None:
        return None
    try:
        listed = _names_of_tokenizer if file == "tokenizer.json" else _names_of_parts
        names = listed(content, store)
        if not all(type(index) is int and index >= 0 for index in names):
            raise ValueError("an id is no number from 0 on")  # noqa: TRY301
        # Tokens without an id in the files get the next free ids.
        return reached_rows(names) + len(set(_added(store)) - set(names.values()))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"source: expected a tokenizer with token ids in {store.label}/{file}, got something "
            "else; measure all rows (--rows all)"
        ) from error


def _names_of_tokenizer(content: Any, store: Store) -> dict[int, str]:  # noqa: ANN401
    del store  # the other files give these tokens without ids
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, list):
        # Unigram models list their tokens in the order of ids.
        vocabulary = {name: index for index, (name, _) in enumerate(vocabulary)}
    added = content.get("added_tokens") or ()
    return _by_id(vocabulary) | {token["id"]: token["content"] for token in added}


def _names_of_parts(content: Any, store: Store) -> dict[int, str]:  # noqa: ANN401
    added = store.json("added_tokens.json") or {}
    decoder = (store.json("tokenizer_config.json") or {}).get("added_tokens_decoder") or {}
    named = {int(index): token["content"] for index, token in decoder.items()}
    return _by_id(content) | _by_id(added) | named


def _by_id(vocabulary: Mapping[str, int]) -> dict[int, str]:
    return {index: name for name, index in vocabulary.items()}


def _added(store: Store) -> Iterator[str]:
    """Yield the names of tokens that are added to the vocabulary."""
    config = store.json("tokenizer_config.json") or {}
    yield from store.json("added_tokens.json") or {}
    given = [value for key, value in config.items() if key.endswith("_token")]
    for key in ("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"):
        several = config.get(key) or ()
        given += several.values() if isinstance(several, dict) else several
    for token in given:
        name = token.get("content") if isinstance(token, dict) else token
        if isinstance(name, str):
            yield name
