"""Blocks of tokens for training a language model, by default from Python's sources."""

import platform
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from typing_extensions import override

from toolkit.data.batch_stream import BatchStream, FixedBatches
from toolkit.data.documents import read_documents
from toolkit.data.token_blocks import (
    Blocks,
    CorpusParts,
    ShuffledBlocks,
    TokenBatch,
    as_batch,
    split_blocks,
    unigram_entropy,
)
from toolkit.data.tokenized_corpus import (
    SMALLEST_VOCABULARY,
    TokenizedCorpus,
    default_cache,
    pretrained_tokenizer,
    tokenize,
    trained_tokenizer,
)
from toolkit.functional._checks import (
    inner_share,
    integer_at_least,
    optional,
    valid_seed,
    valid_text,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Token ids are stored as int32.
_LARGEST_VOCABULARY = 2**31 - 1


class TextCorpus(L.LightningDataModule):
    """Blocks of consecutive tokens, shuffled anew in every epoch; a batch holds ``input_ids``.

    Whole documents are held out for validation and test. A batch is a function of the seed and its
    position, so that a resumed run gets the same batches as an uninterrupted run. Corpus and
    tokenizer are cached by the hash of the texts; the hash, the number of tokens, the seed and
    Python's version are logged as hyper-parameters.

    Args:
        source: A text file with one document in each paragraph; a folder with one document in each
            file that is not hidden; the name of a data set on the Hub; by default the source files
            of Python's standard library, except the files that `load_docstring_topics` reads.
        subset: Configuration of the data set, if it has several on the Hub.
        split: Part of the data set, such as ``train[:10000]``.
        tokenizer: Folder, or name on the Hub, of a model with a tokenizer; by default a
            byte-level BPE tokenizer is trained on the corpus.
        vocab_size: Largest number of tokens of a trained tokenizer.
        block_size: Tokens in a block.
        batch_size: Blocks in a batch, on each process.
        held_out_fraction: Share of the tokens for validation, and as many for test.
        cache_dir: Folder of tokenized corpora, by default in the user's cache folder.
        seed: Fixes the split and the stream, independently of other random numbers; by default
            torch's seed.

    Attributes:
        tokenizer: The tokenizer; None before ``prepare_data`` or ``setup``.

    Raises:
        ValueError: If a number is out of range or, in ``setup``, the texts cannot be read.
    """

    tokenizer: "PreTrainedTokenizerFast | None"

    def __init__(
        self,
        source: str | None = None,
        *,
        subset: str | None = None,
        split: str = "train",
        tokenizer: str | None = None,
        vocab_size: int = 4096,
        block_size: int = 128,
        batch_size: int = 16,
        held_out_fraction: float = 0.02,
        cache_dir: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        for name, given in (("source", source), ("subset", subset), ("tokenizer", tokenizer)):
            optional(valid_text, name, given)
        valid_text("split", split)
        optional(valid_text, "cache_dir", cache_dir)
        integer_at_least("vocab_size", vocab_size, SMALLEST_VOCABULARY, most=_LARGEST_VOCABULARY)
        integer_at_least("block_size", block_size, 2)
        integer_at_least("batch_size", batch_size, 1)
        inner_share("held_out_fraction", held_out_fraction, below=0.5)
        seed = torch.initial_seed() if seed is None else valid_seed("seed", seed)
        self.save_hyperparameters()
        self.source, self.subset, self.split = source, subset, split
        self.tokenizer_name, self.vocab_size = tokenizer, vocab_size
        self.block_size, self.batch_size = block_size, batch_size
        self.held_out_fraction = held_out_fraction
        self.cache = default_cache() if cache_dir is None else Path(cache_dir)
        self.seed = seed
        self.tokenizer = None
        self._corpus: TokenizedCorpus | None = None
        self._name, self._hash = "", ""
        self._expected_hash: str | None = None

    @override
    def prepare_data(self) -> None:
        """Fill the cache, which the other processes of this machine read later."""
        self._load()

    @override
    def setup(self, stage: str) -> None:
        """Read the corpus, and add the conditions of its batches to the hyper-parameters."""
        self._load()
        self.save_hyperparameters(self.conditions)

    @property
    def conditions(self) -> dict[str, Any]:
        """Conditions that determine the content of the batches, as plain types.

        Raises:
            ValueError: If the corpus has not been read.
        """
        return {
            "corpus": self._name,
            "corpus_hash": self._hash,
            "corpus_tokens": len(self._read.tokens),
            "data_seed": self.seed,
            "python": platform.python_version(),
        }

    @cached_property
    def unigram_entropy(self) -> float:
        """Entropy of single tokens of the training part, in nats per token.

        A model that ignores the context cannot have a smaller loss on this part.
        """
        return unigram_entropy(self.parts.train)

    @cached_property
    def parts(self) -> CorpusParts:
        """Blocks for training, validation and test."""
        return split_blocks(
            self._read,
            block_size=self.block_size,
            held_out_fraction=self.held_out_fraction,
            seed=self.seed,
        )

    @override
    def train_dataloader(self) -> BatchStream[TokenBatch]:
        """Return the training stream; the blocks of an epoch are divided among the processes."""
        rank, num_ranks = 0, 1
        if self.trainer is not None:
            rank, num_ranks = self.trainer.global_rank, self.trainer.world_size
        draw = ShuffledBlocks(
            self.parts.train, self.batch_size, seed=self.seed, rank=rank, num_ranks=num_ranks
        )
        return BatchStream(draw, draw.length)

    @override
    def val_dataloader(self) -> FixedBatches[TokenBatch]:
        """Return the validation batches, the same on every process."""
        return self._in_order(self.parts.validation)

    @override
    def test_dataloader(self) -> FixedBatches[TokenBatch]:
        """Return the test batches, the same on every process."""
        return self._in_order(self.parts.test)

    @override
    def predict_dataloader(self) -> FixedBatches[TokenBatch]:
        return self.test_dataloader()

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return the seed and the hash of the corpus, with which a run is resumed."""
        return {"seed": self.seed, "corpus_hash": self._hash}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the seed of the run that is continued.

        Raises:
            ValueError: If the corpus has another hash.
        """
        self.seed, self._expected_hash = state_dict["seed"], state_dict["corpus_hash"]
        for derived in ("parts", "unigram_entropy"):
            self.__dict__.pop(derived, None)
        self._check_hash()

    def _load(self) -> None:
        if self._corpus is not None:
            return
        documents = read_documents(self.source, subset=self.subset, split=self.split)
        self._name, self._hash = documents.name, documents.digest()
        self._check_hash()
        if self.tokenizer_name is None:
            self.tokenizer = trained_tokenizer(documents, self.vocab_size, cache=self.cache)
        else:
            self.tokenizer = pretrained_tokenizer(self.tokenizer_name)
        self._corpus = tokenize(documents, self.tokenizer, cache=self.cache)

    def _check_hash(self) -> None:
        if self._hash and self._expected_hash not in {None, self._hash}:
            raise ValueError(
                f"source: expected the corpus of the checkpoint, hash {self._expected_hash}, got "
                f"{self._hash}; the texts or Python's version have changed, start a new run"
            )

    @property
    def _read(self) -> TokenizedCorpus:
        if self._corpus is None:
            raise ValueError("source: expected texts that have been read; call setup('fit') first")
        return self._corpus

    def _in_order(self, blocks: Blocks) -> FixedBatches[TokenBatch]:
        size = self.batch_size
        length = -(-len(blocks) // size)
        return FixedBatches(lambda i: as_batch(blocks[i * size : (i + 1) * size]), length)
