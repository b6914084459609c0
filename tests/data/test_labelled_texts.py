"""Draws are balanced, disjoint and fixed by their seed; a text never stands in both parts."""

from typing import Any

import pytest
import torch

from toolkit.data import LabelledTexts, load_texts
from toolkit.data.labelled_texts import Pool, draw_texts

CLASSES = ("even", "odd")


def numbered(prefix: str, count: int) -> Pool:
    return Pool([f"{prefix} {i}" for i in range(count)], [i % 2 for i in range(count)])


def draw(train: Pool, test: Pool | None = None, **options: Any) -> LabelledTexts:
    sizes: dict[str, Any] = {"num_train": 6, "num_test": 4, "seed": 0, "source": "here"} | options
    return draw_texts(train, test, classes=CLASSES, **sizes)


def check_labels(drawn: LabelledTexts) -> None:
    for texts, labels in (
        (drawn.train_texts, drawn.train_labels),
        (drawn.test_texts, drawn.test_labels),
    ):
        assert labels.dtype == torch.int64
        assert [int(text.split()[1]) % 2 for text in texts] == labels.tolist()


@pytest.mark.parametrize("two_parts", [False, True], ids=["one", "two"])
def test_draws_are_balanced_and_disjoint(two_parts: bool) -> None:
    drawn = draw(numbered("a", 30), numbered("b", 20) if two_parts else None)
    check_labels(drawn)
    assert drawn.train_labels.bincount().tolist() == [3, 3]
    assert drawn.test_labels.bincount().tolist() == [2, 2]
    assert not set(drawn.train_texts) & set(drawn.test_texts)
    assert len(set(drawn.train_texts)) == 6
    assert (drawn.classes, drawn.source, drawn.num_removed) == (CLASSES, "here", 0)


def test_uneven_numbers_favour_the_first_classes() -> None:
    drawn = draw(numbered("a", 30), num_train=7, num_test=3)
    assert drawn.train_labels.bincount().tolist() == [4, 3]
    assert drawn.test_labels.bincount().tolist() == [2, 1]


def test_a_class_may_be_used_up() -> None:
    drawn = draw(numbered("a", 10))
    assert sorted(drawn.train_texts + drawn.test_texts) == [f"a {i}" for i in range(10)]


def test_a_seed_fixes_the_draw_whatever_else_is_drawn() -> None:
    first = draw(numbered("a", 50), seed=3)
    torch.rand(3)
    assert draw(numbered("a", 50), seed=3).train_texts == first.train_texts
    assert draw(numbered("a", 50), seed=4).train_texts != first.train_texts


@pytest.mark.parametrize("two_parts", [False, True], ids=["one", "two"])
def test_test_texts_do_not_depend_on_the_number_of_training_texts(two_parts: bool) -> None:
    pools = numbered("a", 50), numbered("b", 50) if two_parts else None
    assert draw(*pools, num_train=6).test_texts == draw(*pools, num_train=20).test_texts


def test_training_draws_of_other_seeds_cover_the_pool_evenly() -> None:
    counts = torch.zeros(20)
    for seed in range(200):
        for text in draw(numbered("a", 20), numbered("b", 20), seed=seed).train_texts:
            counts[int(text.split()[1])] += 1
    # Binomial(200, 6 / 20): mean 60, standard deviation 6.5.
    assert (counts - 60).abs().max() < 4.5 * 6.5


def test_texts_in_both_parts_leave_the_training_part() -> None:
    train = Pool(["b 2", "a 1", "a 0", "a 1", "a 2", "b 3", "a 3"], [0, 1, 0, 1, 0, 1, 1])
    drawn = draw(train, numbered("b", 8), num_train=4)
    check_labels(drawn)
    assert drawn.train_texts == ["a 1", "a 0", "a 2", "a 3"]
    assert drawn.num_removed == 3


def test_a_single_part_keeps_each_text_once() -> None:
    pool = Pool([f"a {i // 2 % 10}" for i in range(40)], [i // 2 % 2 for i in range(40)])
    drawn = draw(pool)
    assert drawn.num_removed == 30
    assert len({*drawn.train_texts, *drawn.test_texts}) == 10


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"num_train": 1},
            "num_train: expected an integer of at least 2, one text of each class, got 1",
        ),
        (
            {"num_test": 0},
            "num_test: expected an integer of at least 2, one text of each class, got 0",
        ),
        ({"num_test": 4.5}, "num_test: expected an integer of at least 2, .*, got 4.5"),
        ({"seed": -1}, "seed: expected an integer of at least 0, got -1"),
        (
            {"num_train": 8},
            "num_train, num_test: expected at most 5 texts of class 'even' in here, got 6; ask",
        ),
    ],
)
def test_bad_arguments(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        draw(numbered("a", 10), **options)


def test_too_few_test_texts_are_named() -> None:
    with pytest.raises(ValueError, match="expected at most 1 texts of class 'even' in here, got 2"):
        draw(numbered("a", 10), numbered("b", 2))


def test_names() -> None:
    assert load_texts("docstrings", num_train=8, num_test=4).classes[0] == "networking"
    with pytest.raises(ValueError, match=r"source: expected a CSV .* got 'docstring', which does"):
        load_texts("docstring", num_train=8, num_test=4)
