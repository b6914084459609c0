"""Corpora as arrays of token ids, cached together with their tokenizers."""

import hashlib
import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from toolkit.atomic import new_folder
from toolkit.data.documents import Documents
from toolkit.lm.reading.tokenizers import load_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

_END_OF_TEXT = "<|endoftext|>"
# All bytes and the end-of-text token.
SMALLEST_VOCABULARY = 257
_TOKENS_FILE, _ENDS_FILE, _TOKENIZER_FILE = "tokens.npy", "ends.npy", "tokenizer.json"
_DOCUMENTS_AT_ONCE = 256


class TokenizedCorpus(NamedTuple):
    """Token ids of all documents, one document after the other.

    Attributes:
        tokens: Token ids, int32, shape (num_tokens,). Each document ends with the tokenizer's
            end-of-text token, if the tokenizer has one.
        ends: End position of each document, int64, shape (num_documents,).
    """

    tokens: NDArray[np.int32]
    ends: NDArray[np.int64]


def default_cache() -> Path:
    """Return the folder of tokenized corpora: ``superposition-toolkit`` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "superposition-toolkit")


def trained_tokenizer(
    documents: Documents, vocab_size: int, *, cache: Path
) -> "PreTrainedTokenizerFast":
    """Return a byte-level BPE tokenizer trained on the documents, from the cache if possible.

    Args:
        documents: Training texts of the tokenizer; it can encode any other text, too.
        vocab_size: Largest number of tokens, the end-of-text token included.
        cache: Folder of cached results.
    """
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    settings = f"byte-level bpe {vocab_size} {version('tokenizers')}"
    folder = cache / _key(documents.digest(), settings)
    if not folder.is_dir():
        with new_folder(folder) as temporary:
            _train_bpe(documents.texts, vocab_size, temporary / _TOKENIZER_FILE)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_file=str(folder / _TOKENIZER_FILE),
        bos_token=_END_OF_TEXT,
        eos_token=_END_OF_TEXT,
    )


def pretrained_tokenizer(name: str) -> "PreTrainedTokenizerFast":
    """Return the tokenizer of a model, by the model's name on the Hub or its folder.

    Raises:
        ValueError: If the tokenizer cannot be loaded, or is not a fast tokenizer.
    """
    tokenizer = load_tokenizer(name)
    if not tokenizer.is_fast:
        raise ValueError(
            f"tokenizer: expected a fast tokenizer, got {type(tokenizer).__name__} of {name}; "
            "convert it with transformers or leave it out to have one trained"
        )
    return cast("PreTrainedTokenizerFast", tokenizer)


def tokenize(
    documents: Documents, tokenizer: "PreTrainedTokenizerFast", *, cache: Path
) -> TokenizedCorpus:
    """Return the token ids of the documents, from the cache if possible.

    Args:
        documents: The texts.
        tokenizer: The tokenizer. Only its end-of-text token is added to a document; its settings
            of truncation and padding are for batches and are ignored.
        cache: Folder of cached results.
    """
    own = tokenizer.backend_tokenizer
    backend = type(own).from_str(own.to_str())
    backend.no_truncation()
    backend.no_padding()
    settings = f"{backend.to_str()} {tokenizer.eos_token_id}"
    folder = cache / _key(documents.digest(), settings)
    if not folder.is_dir():
        with new_folder(folder) as temporary:
            tokens, ends = _encode(documents.texts, backend, tokenizer.eos_token_id)
            np.save(temporary / _TOKENS_FILE, tokens)
            np.save(temporary / _ENDS_FILE, ends)
    return TokenizedCorpus(np.load(folder / _TOKENS_FILE), np.load(folder / _ENDS_FILE))


def _key(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def _train_bpe(texts: Sequence[str], vocab_size: int, path: Path) -> None:
    from tokenizers import Tokenizer  # noqa: PLC0415
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder  # noqa: PLC0415
    from tokenizers.models import BPE  # noqa: PLC0415
    from tokenizers.pre_tokenizers import ByteLevel  # noqa: PLC0415
    from tokenizers.trainers import BpeTrainer  # noqa: PLC0415

    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[_END_OF_TEXT],
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))


def _encode(
    texts: Sequence[str], backend: "Tokenizer", end_of_text: int | None
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    end = [] if end_of_text is None else [end_of_text]
    documents = []
    for start in range(0, len(texts), _DOCUMENTS_AT_ONCE):
        batch = list(texts[start : start + _DOCUMENTS_AT_ONCE])
        encodings = backend.encode_batch_fast(batch, add_special_tokens=False)
        documents += [np.array([*encoding.ids, *end], dtype=np.int32) for encoding in encodings]
    return np.concatenate(documents), np.cumsum([len(ids) for ids in documents])
