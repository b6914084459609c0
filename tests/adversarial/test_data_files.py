"""Data files as users have them: each gives the right texts and labels, or one line why not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.adversarial.corpus_files import CORPORA
from tests.adversarial.labelled_files import (
    CSV_FILES,
    OTHER_FILES,
    PARQUET_FILES,
    SAVED_FOLDERS,
    Given,
    Refused,
)
from tests.adversarial.trials import check_message
from toolkit.data import LabelledTexts, TextCorpus, load_ag_news, load_texts
from toolkit.data.documents import read_documents
from toolkit.measures import TextSet

LABELLED: dict[str, Given | Refused] = {
    f"{kind}, {name}": case
    for kind, table in (
        ("CSV", CSV_FILES),
        ("Parquet", PARQUET_FILES),
        ("saved", SAVED_FOLDERS),
        ("other", OTHER_FILES),
    )
    for name, case in table.items()
}
READERS = {
    "load_texts": lambda source: load_texts(source, num_train=8, num_test=4),
    "load_ag_news": lambda source: load_ag_news(source, num_train=8, num_test=4),
    "TextSet": lambda source: TextSet(source=source, num_train=8, num_test=4).load(),
}


def of_kind(cases: Mapping[str, Any], kind: type) -> list[str]:
    return [name for name, case in cases.items() if isinstance(case, kind)]


def test_two_hundred_files_are_tried() -> None:
    assert len(LABELLED) + len(CORPORA) >= 200


def check_texts(drawn: LabelledTexts, labels: Mapping[str, int], per_class: int) -> None:
    """The texts of both parts, their labels and nothing else."""
    train = zip(drawn.train_texts, drawn.train_labels.tolist(), strict=True)
    test = zip(drawn.test_texts, drawn.test_labels.tolist(), strict=True)
    found = [*train, *test]
    assert dict(found) == {text: labels[text] for text, _ in found}
    assert len(found) == len(dict(found)) == 4 * per_class


@pytest.mark.parametrize("name", of_kind(LABELLED, Given))
def test_what_is_right_is_read(name: str, tmp_path: Path) -> None:
    case = LABELLED[name]
    assert isinstance(case, Given)
    source = str(case.write(tmp_path))
    classes = [list(case.labels.values()).count(label) for label in range(4)]
    per_class = min(classes)

    def read() -> LabelledTexts:
        return load_texts(source, num_train=4 * (per_class - 1), num_test=4)

    if case.warning is None:
        drawn = read()
    else:
        with pytest.warns(UserWarning, match=f"^source: left out of .*: .*{case.warning}$"):
            drawn = read()
    check_texts(drawn, case.labels, per_class)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", of_kind(LABELLED, Refused))
def test_what_is_wrong_is_named(name: str, reader: str, tmp_path: Path) -> None:
    case = LABELLED[name]
    assert isinstance(case, Refused)
    source = case.write(tmp_path)
    with pytest.raises(ValueError, match=case.reason) as caught:
        READERS[reader](str(source))
    argument = "num_train" if case.reason.startswith("num_train") else "source"
    check_message(str(caught.value), argument)
    assert source.name in str(caught.value)


@pytest.mark.parametrize("name", of_kind(CORPORA, Given))
def test_documents_are_read(name: str, tmp_path: Path) -> None:
    case = CORPORA[name]
    assert isinstance(case, Given)
    source = case.write(tmp_path)
    if case.warning is None:
        documents = read_documents(str(source))
    else:
        with pytest.warns(UserWarning, match=f"^source: left out of .*: {case.warning}$"):
            documents = read_documents(str(source))
    assert documents.texts == list(case.labels)


@pytest.mark.parametrize("name", of_kind(CORPORA, Refused))
def test_what_is_no_corpus_is_named(name: str, tmp_path: Path) -> None:
    case = CORPORA[name]
    assert isinstance(case, Refused)
    source = case.write(tmp_path)
    with pytest.raises(ValueError, match=case.reason) as caught:
        TextCorpus(str(source), cache_dir=str(tmp_path / "cache")).setup("fit")
    check_message(str(caught.value), "source")
    assert source.name in str(caught.value)
    assert not (tmp_path / "cache").exists()
