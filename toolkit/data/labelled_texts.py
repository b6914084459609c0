"""Labelled texts for probes: seeded draws, the same number of each class, no text in both parts."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from toolkit.functional._checks import at_most, is_integer, shown, valid_seed

_TRAIN, _TEST = range(2)


class LabelledTexts(NamedTuple):
    """Texts with a class each, drawn for training and testing a probe.

    Attributes:
        train_texts: Texts a probe is trained on.
        train_labels: Their classes, int64, shape (num_train,).
        test_texts: Texts a probe is tested on; none of them is a training text.
        test_labels: Their classes, int64, shape (num_test,).
        classes: Names of the classes, by label.
        source: Where the texts come from, in words.
        num_removed: Texts left out before the draw because they also stood elsewhere.
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
    """Draw training and test texts, of each class the same number, give or take one.

    Args:
        train: Where training texts are drawn from; texts that also stand in ``test`` are removed.
        test: Where test texts are drawn from. If None, both parts are drawn from ``train``, where
            each text is kept once.
        classes: Names of the classes.
        source: Where the texts come from.
        num_train: Number of training texts.
        num_test: Number of test texts; the draw of the test texts does not depend on
            ``num_train``.
        seed: Fixes the draw, whatever else draws random numbers.

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
    """The texts of the pool that are not among ``texts``, each of them once."""
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
    """For each size, positions in the pool in rising order; no position is drawn twice."""
    generator = np.random.default_rng(key)
    draws: list[list[int]] = [[] for _ in sizes]
    for label, name in enumerate(classes):
        positions = generator.permutation(np.flatnonzero(np.asarray(pool.labels) == label))
        # The first classes take what is left over by an uneven division.
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
