"""Blocks of a tokenized corpus: split by document, shuffled in each epoch."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from toolkit.data.tokenized_corpus import TokenizedCorpus
from toolkit.functional._checks import at_most

Blocks = NDArray[np.int32]
TokenBatch = dict[str, Tensor]

_SPLIT, _ORDER = range(2)


class CorpusParts(NamedTuple):
    """Blocks of token ids, each of shape (num_blocks, block_size).

    Attributes:
        train: Blocks of the training documents.
        validation: Blocks of the validation documents.
        test: Blocks of the test documents.
    """

    train: Blocks
    validation: Blocks
    test: Blocks


def split_blocks(
    corpus: TokenizedCorpus, *, block_size: int, held_out_fraction: float, seed: int
) -> CorpusParts:
    """Divide the documents into three parts, and cut the tokens of each part into blocks.

    Args:
        corpus: Token ids of all documents.
        block_size: Tokens in a block; the remaining tokens at the end of a part are dropped.
        held_out_fraction: Share of the tokens for validation, and as many for test. A document
            that is too large for the rest of both shares is a training document.
        seed: Fixes which documents are held out.

    Raises:
        ValueError: If a part would have no block.
    """
    sizes = np.diff(corpus.ends, prepend=0)
    left = [int(held_out_fraction * len(corpus.tokens))] * 2
    part_of = np.zeros(len(sizes), dtype=np.int64)
    for document in np.random.default_rng((seed, _SPLIT)).permutation(len(sizes)):
        fitting = next((i for i, room in enumerate(left) if sizes[document] <= room), None)
        if fitting is not None:
            part_of[document] = fitting + 1
            left[fitting] -= sizes[document]
    part_of_token = np.repeat(part_of, sizes)
    parts = CorpusParts(
        *(_cut(corpus.tokens[part_of_token == part], block_size) for part in range(3))
    )
    empty = [name for name, blocks in parts._asdict().items() if len(blocks) == 0]
    if empty:
        raise ValueError(
            f"held_out_fraction: expected a block of {block_size} tokens in each part, got none in "
            f"{empty[0]} with {held_out_fraction} of {len(corpus.tokens)} tokens in {len(sizes)} "
            "documents; change it or give more text"
        )
    return parts


def unigram_entropy(blocks: Blocks) -> float:
    """Return the entropy of single tokens in nats, 0 if all tokens are the same."""
    counts = np.bincount(blocks.ravel())
    chance = counts[counts > 0] / counts.sum()
    return float(np.abs(chance @ np.log(chance)))


class ShuffledBlocks:
    """Training batches as a function of their position; each epoch has a new random order.

    Args:
        blocks: The training blocks.
        batch_size: Blocks in a batch; the remaining blocks at the end of an epoch are skipped.
        seed: Fixes the order of every epoch.
        rank: Index of this process among the processes that share the blocks.
        num_ranks: Number of these processes.

    Attributes:
        length: Batches of this rank in an epoch.

    Raises:
        ValueError: If there are too few blocks for one batch on each rank.
    """

    def __init__(
        self, blocks: Blocks, batch_size: int, *, seed: int, rank: int = 0, num_ranks: int = 1
    ) -> None:
        most = len(blocks) // num_ranks
        at_most(
            "batch_size",
            batch_size,
            most,
            limit=f"{most}, the number of training blocks for each process",
            advice="make it smaller or give more text",
        )
        self.length = len(blocks) // (batch_size * num_ranks)
        self._blocks, self._batch_size = blocks, batch_size
        self._seed, self._rank, self._num_ranks = seed, rank, num_ranks
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def __call__(self, position: int) -> TokenBatch:
        """Return the batch at a position, counted over all epochs."""
        epoch, index = divmod(position, self.length)
        if epoch != self._epoch:
            generator = np.random.default_rng((self._seed, _ORDER, epoch))
            self._epoch, self._order = epoch, generator.permutation(len(self._blocks))
        start = (index * self._num_ranks + self._rank) * self._batch_size
        return as_batch(self._blocks[self._order[start : start + self._batch_size]])


def as_batch(blocks: Blocks) -> TokenBatch:
    """Return the blocks as the input of a language model."""
    return {"input_ids": torch.from_numpy(blocks.astype(np.int64))}


def _cut(tokens: NDArray[np.int32], block_size: int) -> Blocks:
    num_blocks = len(tokens) // block_size
    return tokens[: num_blocks * block_size].reshape(num_blocks, block_size)
