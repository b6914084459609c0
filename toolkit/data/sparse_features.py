"""Synthetic sparse features of the toy superposition model (arXiv 2505.10465, section 2)."""

import math
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from toolkit.data.active_cells import ActiveCells
from toolkit.data.batch_stream import BatchStream, FixedBatches
from toolkit.data.frequencies import Frequencies, UniformFrequencies
from toolkit.functional._checks import integer_at_least, optional, require_memory, valid_seed

_TRAIN, _HELD_OUT, _TEST = range(3)


class CellSampler:
    """Draws batches with ``x_i = u_i v_i``, ``u_i ~ Bernoulli(p_i)``, ``v_i ~ U(0, 2)``.

    The number of hits on a cell is Poisson with mean ``-log(1 - p_i)``, so that a cell hit at
    least once is active with probability p_i exactly and independently of all others. The cost
    grows with the number of active cells, not with the size of the matrix. Features with p_i = 1
    are written directly.

    Args:
        probabilities: p_i, shape ``(n,)``, each in [0, 1].
        batch_size: Samples in one batch.
    """

    def __init__(self, probabilities: Tensor, batch_size: int) -> None:
        chance = probabilities.double().numpy()
        self.num_features = len(chance)
        self.batch_size = batch_size
        self._always = np.flatnonzero(chance >= 1)
        # Features with p_i = 1 have an infinite rate; the Poisson part leaves them out.
        rates = -np.log1p(-np.where(chance < 1, chance, 0.0))
        self._total_rate = float(rates.sum())
        self._cumulative = np.cumsum(rates) / self._total_rate if self._total_rate else rates
        self._last_possible = int(np.flatnonzero(rates)[-1]) if self._total_rate else 0

    def __call__(self, key: tuple[int, ...]) -> ActiveCells:
        """Return the batch of ``key``; the same key always gives the same batch."""
        generator = np.random.default_rng(key)
        hits = generator.poisson(self.batch_size * self._total_rate)
        feature = np.searchsorted(self._cumulative, generator.random(hits), side="right")
        feature = np.minimum(feature, self._last_possible)
        row = generator.integers(self.batch_size, size=hits)
        cell = np.sort(row * self.num_features + feature)
        cell = cell[np.diff(cell, prepend=-1) != 0]
        if len(self._always):
            rows = np.arange(self.batch_size)[:, None] * self.num_features
            cell = np.sort(np.concatenate([cell, (rows + self._always).ravel()]))
        row, feature = np.divmod(cell, self.num_features)
        value = generator.random(len(cell), dtype=np.float32) * 2
        return ActiveCells(
            torch.from_numpy(row),
            torch.from_numpy(feature),
            torch.from_numpy(value),
            self.batch_size,
            self.num_features,
        )


def _as_frequencies(given: Any) -> Frequencies:  # noqa: ANN401
    """Return the object; `load_from_checkpoint` passes plain types, as it saves only these."""
    if given is None:
        return UniformFrequencies()
    frequencies = Frequencies.from_config(given) if isinstance(given, dict) else given
    if not isinstance(frequencies, Frequencies):
        raise TypeError(f"frequencies: expected Frequencies, got {type(given).__name__}")
    return frequencies


class SparseFeatures(L.LightningDataModule):
    """Fresh sparse samples at every step, and a fixed held-out set.

    Args:
        num_features: Number of features n.
        frequencies: Frequencies of the features, by default uniform.
        density: Expected number of active features in a sample, E of arXiv 2505.10465.
        batch_size: Samples in a batch.
        num_held_out: Batches in the fixed set for validation and measurements.
        steps_per_epoch: Batches in an epoch; by default the whole run is one epoch.
        seed: Fixes the stream, independently of other random numbers; by default torch's seed.

    Raises:
        ValueError: If a number is out of range or a probability would exceed 1.
    """

    def __init__(
        self,
        num_features: int,
        frequencies: Frequencies | None = None,
        *,
        density: float = 1.0,
        batch_size: int = 512,
        num_held_out: int = 32,
        steps_per_epoch: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        integer_at_least("batch_size", batch_size, 1)
        integer_at_least("num_held_out", num_held_out, 1)
        if steps_per_epoch is not None:
            integer_at_least("steps_per_epoch", steps_per_epoch, 1)
        optional(valid_seed, "seed", seed)
        self.num_features = num_features
        self.frequencies = _as_frequencies(frequencies)
        self.probabilities = self.frequencies.probabilities(num_features, density=density)
        # Average number of active cells of a batch, with four numbers of eight bytes each.
        require_memory("batch_size", batch_size, math.ceil(density), itemsize=32)
        self.batch_size = batch_size
        self.num_held_out = num_held_out
        self.steps_per_epoch = steps_per_epoch
        self.seed = torch.initial_seed() if seed is None else seed
        self._sample = CellSampler(self.probabilities, batch_size)
        self.save_hyperparameters(
            {
                "num_features": num_features,
                "frequencies": self.frequencies.as_config(),
                "density": density,
                "batch_size": batch_size,
                "num_held_out": num_held_out,
                "steps_per_epoch": steps_per_epoch,
                "seed": self.seed,
            },
            logger=False,
        )

    def held_out(self) -> FixedBatches[ActiveCells]:
        """Return the fixed batches that measurements use, the same on every rank."""
        return FixedBatches(lambda i: self._sample((self.seed, _HELD_OUT, i)), self.num_held_out)

    @override
    def train_dataloader(self) -> BatchStream[ActiveCells]:
        """Return the training stream, which differs between ranks."""
        trainer = self.trainer
        rank = 0 if trainer is None else trainer.global_rank
        length = self.steps_per_epoch
        if length is None:
            if trainer is None or trainer.max_steps < 0:
                raise ValueError(
                    "steps_per_epoch: expected a number when trainer.max_steps is not set; "
                    "give either"
                )
            # At least one batch, also for 0 steps: Lightning warns of a loader without batches.
            length = max(1, trainer.max_steps) * trainer.accumulate_grad_batches
        return BatchStream(lambda i: self._sample((self.seed, _TRAIN, rank, i)), length)

    @override
    def val_dataloader(self) -> FixedBatches[ActiveCells]:
        """Return the held-out batches."""
        return self.held_out()

    @override
    def test_dataloader(self) -> FixedBatches[ActiveCells]:
        """Return ``num_held_out`` batches from a separate stream."""
        return FixedBatches(lambda i: self._sample((self.seed, _TEST, i)), self.num_held_out)

    @override
    def predict_dataloader(self) -> FixedBatches[ActiveCells]:
        """Return the test batches."""
        return self.test_dataloader()

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return the seed: a resumed run continues its own stream."""
        return {"seed": self.seed}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seed = state_dict["seed"]
