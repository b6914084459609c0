"""The sampler's law against exact expectations, and the stream's position."""

import math

import lightning as L
import numpy as np
import pytest
import torch

from toolkit.data import (
    ActiveCells,
    ExponentialFrequencies,
    Frequencies,
    LinearFrequencies,
    PowerFrequencies,
    SparseFeatures,
    UniformFrequencies,
)
from toolkit.data.batch_stream import BatchStream
from toolkit.data.sparse_features import CellSampler

NUM_BATCHES, BATCH_SIZE = 200, 500
SAMPLES = NUM_BATCHES * BATCH_SIZE


def sampled(probabilities: torch.Tensor) -> list[ActiveCells]:
    sampler = CellSampler(probabilities, BATCH_SIZE)
    return [sampler((7, i)) for i in range(NUM_BATCHES)]


@pytest.mark.parametrize(
    ("frequencies", "density"),
    [
        pytest.param(PowerFrequencies(1.0), 1.0, id="power"),
        pytest.param(PowerFrequencies(1.0), sum(1 / i for i in range(1, 21)), id="certain"),
        pytest.param(ExponentialFrequencies(4.0), 1.0, id="exponential"),
        pytest.param(LinearFrequencies(), 5.0, id="linear"),
        pytest.param(UniformFrequencies(), 1.0, id="uniform"),
        pytest.param(UniformFrequencies(), 20.0, id="all_certain"),
    ],
)
def test_law(frequencies: Frequencies, density: float) -> None:
    """Counts per feature, pairs of features, empty rows: z-scores against Bernoulli cells."""
    p = frequencies.probabilities(20, density=density).numpy()
    batches = sampled(torch.from_numpy(p))
    active = np.concatenate([batch.dense().numpy() > 0 for batch in batches])
    assert_binomial(active.sum(axis=0), p)
    assert_binomial((active[:, 0] & active[:, 1]).sum(), p[0] * p[1])
    assert_binomial((~active.any(axis=1)).sum(), np.prod(1 - p))


def assert_binomial(counts: np.ndarray | np.integer, chance: np.ndarray | float) -> None:
    """Counts out of all samples lie within 4.5 standard deviations; 0 or exact if certain."""
    deviation = np.sqrt(SAMPLES * np.asarray(chance) * (1 - np.asarray(chance)))
    difference = np.abs(counts - SAMPLES * np.asarray(chance))
    assert np.all(difference <= 4.5 * deviation + 1e-9)


def test_values_are_uniform_up_to_two() -> None:
    values = torch.cat([batch.value for batch in sampled(torch.full((50,), 0.1))])
    assert values.dtype == torch.float32
    assert values.min() >= 0
    assert values.max() < 2
    count = len(values)
    assert values.mean().item() == pytest.approx(1.0, abs=4.5 / math.sqrt(3 * count))
    # <v^2> = 4/3, variance of v^2: 16/5 - 16/9.
    assert values.square().mean().item() == pytest.approx(4 / 3, abs=4.5 * (1.4223 / count) ** 0.5)


def test_cells_are_sorted_and_distinct() -> None:
    batch = CellSampler(torch.full((30,), 0.4), 100)((1,))
    key = batch.row * 30 + batch.feature
    assert (key.diff() > 0).all()


def test_no_feature_possible_gives_an_empty_batch() -> None:
    batch = CellSampler(torch.zeros(4), 3)((1,))
    assert len(batch.row) == 0
    assert batch.dense().tolist() == [[0.0] * 4] * 3


def test_dense_round_trip() -> None:
    dense = torch.tensor([[0.0, 1.5], [0.0, 0.0], [0.5, 0.0]])
    cells = ActiveCells.from_dense(dense)
    assert (cells.num_rows, cells.num_features) == (3, 2)
    assert cells.value.tolist() == [1.5, 0.5]
    assert torch.equal(cells.dense(), dense)


def equal(first: ActiveCells, second: ActiveCells) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first[:3], second[:3], strict=True))


def test_a_seed_fixes_the_stream_whatever_else_is_drawn() -> None:
    first = list(SparseFeatures(20, steps_per_epoch=3, seed=5).train_dataloader())
    torch.rand(7)
    second = list(SparseFeatures(20, steps_per_epoch=3, seed=5).train_dataloader())
    other = list(SparseFeatures(20, steps_per_epoch=3, seed=6).train_dataloader())
    assert all(map(equal, first, second))
    assert not equal(first[0], other[0])
    assert not equal(first[0], first[1])


def test_seed_defaults_to_torchs() -> None:
    torch.manual_seed(11)
    assert SparseFeatures(20).seed == 11


def test_streams_differ_and_held_out_repeats() -> None:
    data = SparseFeatures(20, steps_per_epoch=2, num_held_out=2, seed=1)
    train, held, test = (
        next(iter(loader))
        for loader in (data.train_dataloader(), data.held_out(), data.test_dataloader())
    )
    assert not any([equal(train, held), equal(held, test), equal(train, test)])
    assert all(map(equal, data.held_out(), data.val_dataloader()))
    assert all(map(equal, data.test_dataloader(), data.predict_dataloader()))


def test_a_stream_continues_where_it_stood() -> None:
    data = SparseFeatures(20, steps_per_epoch=5, seed=1)
    whole = list(data.train_dataloader())
    first = data.train_dataloader()
    iterator = iter(first)
    head = [next(iterator), next(iterator)]
    second = data.train_dataloader()
    second.load_state_dict(first.state_dict())
    assert all(map(equal, whole, head + list(second)))


def test_epochs_follow_each_other_without_repeating() -> None:
    nothing = torch.tensor([])
    stream = BatchStream(lambda i: ActiveCells(nothing, nothing, nothing, i, 1), 3)
    assert [batch.num_rows for _ in range(2) for batch in stream] == [0, 1, 2, 3, 4, 5]
    assert len(stream) == 3


def test_each_rank_has_its_own_stream() -> None:
    data = SparseFeatures(20, steps_per_epoch=1, seed=1)
    first = next(iter(data.train_dataloader()))

    class OtherRank(L.Trainer):
        global_rank = 1

    data.trainer = OtherRank(logger=False, enable_checkpointing=False, accelerator="cpu")
    assert not equal(first, next(iter(data.train_dataloader())))


def test_the_saved_seed_is_taken_over() -> None:
    data = SparseFeatures(20, seed=1)
    data.load_state_dict(SparseFeatures(20, seed=2).state_dict())
    assert all(map(equal, data.held_out(), SparseFeatures(20, seed=2).held_out()))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"num_features": 0}, "num_features: expected an integer of at least 1, got 0"),
        ({"batch_size": 0}, "batch_size: expected an integer of at least 1, got 0"),
        ({"num_held_out": 0}, "num_held_out: expected an integer of at least 1, got 0"),
        ({"steps_per_epoch": 0}, "steps_per_epoch: expected an integer of at least 1, got 0"),
        ({"seed": -1}, "seed: expected an integer of at least 0, got -1"),
        ({"density": 100.0}, "density: expected every probability at most 1"),
    ],
)
def test_bad_arguments(arguments: dict[str, int], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        SparseFeatures(**{"num_features": 20, **arguments})  # type: ignore[arg-type]


def test_without_a_number_of_steps_the_length_is_unknown() -> None:
    with pytest.raises(ValueError, match="steps_per_epoch: expected a number"):
        SparseFeatures(20).train_dataloader()
