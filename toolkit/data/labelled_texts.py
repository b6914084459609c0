"""Labelled texts for probes: balanced, seeded draws of disjoint training and test texts."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from toolkit.functional._checks import at_most, is_integer, shown, valid_seed

_TRAIN, _TEST = range(2)


class LabelledTexts(NamedTuple):
    """Texts with their classes, drawn for training and testing a probe.

    Attributes:
        train_texts: Texts for training a probe.
        train_labels: Their classes, int64, shape (num_train,).
        test_texts: Texts for testing the probe; none of them is a training text.
        test_labels: Their classes, int64, shape (num_test,).
        classes: Names of the classes, by label.
        source: Description of the source of the texts.
        num_removed: Number of texts left out before the draw because they occur more than once.
    """

    train_texts: list[str]
    train_labels: Tensor
    test_texts: list[str]
    test_labels: Tensor
    classes: tuple[str, ...]
    source: str
    num_removed: int


class Pool(NamedTuple):
    """Texts to draw from.

    Attributes:
        texts: All texts.
        labels: Their classes, from 0.
    """

    texts: Sequence[str]
    labels: Sequence[int]


def draw_texts(
    train: Pool,
    test: Pool | None,
    *,
    classes: Sequence[str],
    source: str,
    num_train: int,
    num_test: int,
    seed: int,
) -> LabelledTexts:
    """Draw training and test texts; the numbers of texts per class differ by at most one.

    Args:
        train: Source of the training texts; texts that also occur in ``test`` are removed.
        test: Source of the test texts. If None, both parts are drawn from ``train``, after
            repeated texts are removed.
        classes: Names of the classes.
        source: Description of the source of the texts.
        num_train: Number of training texts.
        num_test: Number of test texts; the draw of the test texts does not depend on
            ``num_train``.
        seed: Fixes the draw, independently of other random numbers.

    Raises:
        ValueError: If a number is below the number of classes or a class has too few texts.
    """
    for argument, number in (("num_train", num_train), ("num_test", num_test)):
        if not is_integer(number) or number < len(classes):
            raise ValueError(
                f"{argument}: expected an integer of at least {len(classes)}, one text of each "
                f"class, got {shown(number)}"
            )
    valid_seed("seed", seed)
    kept = _without(train, () if test is None else test.texts)
    sizes = [num_test, num_train] if test is None else [num_train]
    drawn = _disjoint_draws(kept, sizes, classes, source, (seed, _TRAIN))
    if test is None:
        test_drawn, train_drawn = drawn
        test = kept
    else:
        (train_drawn,) = drawn
        (test_drawn,) = _disjoint_draws(test, [num_test], classes, source, (seed, _TEST))
    return LabelledTexts(
        train_texts=[kept.texts[i] for i in train_drawn],
        train_labels=torch.tensor([kept.labels[i] for i in train_drawn]),
        test_texts=[test.texts[i] for i in test_drawn],
        test_labels=torch.tensor([test.labels[i] for i in test_drawn]),
        classes=tuple(classes),
        source=source,
        num_removed=len(train.texts) - len(kept.texts),
    )


def _without(pool: Pool, texts: Sequence[str]) -> Pool:
    """Return the texts of the pool that are not among ``texts``, without repetitions."""
    seen = set(texts)
    kept = []
    for position, text in enumerate(pool.texts):
        if text not in seen:
            seen.add(text)
            kept.append(position)
    return Pool([pool.texts[i] for i in kept], [pool.labels[i] for i in kept])


def _disjoint_draws(
    pool: Pool, sizes: Sequence[int], classes: Sequence[str], source: str, key: tuple[int, int]
) -> list[list[int]]:
    """Return positions in the pool for each size, in rising order; no position occurs twice."""
    generator = np.random.default_rng(key)
    draws: list[list[int]] = [[] for _ in sizes]
    for label, name in enumerate(classes):
        positions = generator.permutation(np.flatnonzero(np.asarray(pool.labels) == label))
        # If the division leaves a remainder, the first classes get one text more.
        quotas = [(size + len(classes) - 1 - label) // len(classes) for size in sizes]
        limit = f"{len(positions)} texts of class {name!r} in {source}"
        at_most(
            "num_train, num_test",
            sum(quotas),
            len(positions),
            limit=limit,
            advice="ask for fewer",
        )
        ends = np.cumsum(quotas)
        for draw, end, quota in zip(draws, ends, quotas, strict=True):
            draw.extend(positions[end - quota : end].tolist())
    return [sorted(draw) for draw in draws]
