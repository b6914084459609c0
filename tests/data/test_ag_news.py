"""AG News in each of its forms gives the same texts; what is ambiguous is refused in one line."""

import csv
import os
from pathlib import Path
from typing import Any

import pytest

from tests.ag_news import DEFAULT, VARIABLE, read_ag_news
from toolkit.data import LabelledTexts, load_ag_news, load_texts

TITLES = [f'"Quoted" title {i}' for i in range(24)]
DESCRIPTIONS = [f"first line\\second, {i}\\" for i in range(24)]
TEXTS = [f'"Quoted" title {i} first line second, {i}' for i in range(24)]
LABELS = [i % 4 for i in range(24)]


def load(path: Path | str) -> LabelledTexts:
    return load_ag_news(str(path), num_train=16, num_test=8)


def write(path: Path, *rows: list[Any]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    return path


def published(path: Path, first: int = 1) -> Path:
    rows = zip(LABELS, TITLES, DESCRIPTIONS, strict=True)
    return write(path, *([label + first, *texts] for label, *texts in rows))


def with_header(path: Path, first: int = 0) -> Path:
    rows = zip(TEXTS, LABELS, strict=True)
    return write(path, ["text", "label"], *([text, label + first] for text, label in rows))


def check(texts: LabelledTexts) -> None:
    label_of = dict(zip(TEXTS, LABELS, strict=True))
    assert [label_of[text] for text in texts.train_texts] == texts.train_labels.tolist()
    assert [label_of[text] for text in texts.test_texts] == texts.test_labels.tolist()
    assert set(texts.train_texts) | set(texts.test_texts) == set(TEXTS)
    assert texts.classes == ("World", "Sports", "Business", "Sci/Tech")


def test_published_csv(tmp_path: Path) -> None:
    texts = load(published(tmp_path / "test.csv"))
    check(texts)
    assert texts.source == "test.csv, both parts from this one"


def test_csv_with_header(tmp_path: Path) -> None:
    check(load(with_header(tmp_path / "news.csv")))


def as_columns(named: bool) -> dict[str, list[Any]]:
    if named:
        labels = [label + 1 for label in LABELS]
        return {"label": labels, "title": TITLES, "description": DESCRIPTIONS}
    return {"text": TEXTS, "label": LABELS, "index": list(range(24))}


@pytest.mark.parametrize("named", [False, True], ids=["text", "title"])
def test_parquet_and_saved_folder(named: bool, tmp_path: Path) -> None:
    from datasets import Dataset

    dataset = Dataset.from_dict(as_columns(named))
    dataset.to_parquet(tmp_path / "news.parquet")
    dataset.save_to_disk(tmp_path / "saved")
    for source in ("news.parquet", "saved"):
        texts = load(tmp_path / source)
        check(texts)
        assert texts.source.startswith(source)


def two_parts() -> Any:
    from datasets import Dataset, DatasetDict

    train = {"text": [*TEXTS, "both ways"], "label": [*LABELS, 0]}
    test = {"text": ["both  ways", *(f"other {i}" for i in range(7))], "label": [0, 1, 2, 3] * 2}
    return DatasetDict(train=Dataset.from_dict(train), test=Dataset.from_dict(test))


def test_each_part_is_drawn_from_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_parts().save_to_disk(tmp_path / "saved")
    monkeypatch.setattr("datasets.load_dataset", lambda name: two_parts())
    for source in (str(tmp_path / "saved"), "fancyzhx/ag_news"):
        texts = load(source)
        assert set(texts.train_texts) <= set(TEXTS)
        assert "both ways" in texts.test_texts
        assert texts.num_removed == 1
        assert texts.source == source
    assert load_texts("ag_news", num_train=16, num_test=8).train_texts == texts.train_texts


def test_parts_of_other_names_are_refused(tmp_path: Path) -> None:
    parts = two_parts()
    parts["validation"] = parts.pop("test")
    parts.save_to_disk(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"parts named train and test, got \['train', 'valid"):
        load(tmp_path / "saved")


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([[0, "a", "b"]], "expected each of the labels 1 to 4 .*description, got 0; which"),
        ([["text", "label"], ["a", 4]], "expected each of the labels 0 to 3 .* got 4; which class"),
        ([["text", "label"]], "expected each of the labels 0 to 3 .* got none"),
        ([], "expected each of the labels 1 to 4 .* got none"),
        ([["text", "label"], *[["a", i] for i in range(9)]], "got 0, 1, 2, 3, 4, 5, ...; which"),
        ([["text", "class"], ["a", 1]], "expected columns text,label or .* got text,class; which"),
        ([["title", "text", "description", "label"]], "got title,text,description,label; which"),
        ([[1, "a"]], "expected rows of label,title,description in .* got one with 2 columns"),
    ],
)
def test_ambiguous_files_are_refused(rows: list[list[Any]], match: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        load(write(tmp_path / "news.csv", *rows))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("first", [0, 1], ids=["published", "header"])
def test_labels_counted_the_other_way_are_refused(first: int, tmp_path: Path) -> None:
    path = (published, with_header)[first](tmp_path / "news.csv", first)
    with pytest.raises(ValueError, match="which class is which"):
        load(path)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("news.txt", b"", r"expected a \.csv or \.parquet file, got"),
        ("news.csv", b"1,\xff,b", "expected UTF-8 text in .*news.csv"),
        ("news.parquet", b"1,a,b", "expected a Parquet file, got"),
    ],
)
def test_other_files_are_refused(name: str, content: bytes, match: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"source: {match}"):
        load(tmp_path / name)


def test_other_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a folder written by datasets' save_to_disk"):
        load(tmp_path)
    with pytest.raises(ValueError, match=r"got 'folder/missing\.csv', which does not exist"):
        load("folder/missing.csv")


def test_offline_and_not_cached_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # What HF_HUB_OFFLINE=1 and an empty HF_HOME set when they are imported.
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="give the path of a local CSV file") as caught:
        load_ag_news()
    assert str(caught.value).startswith("source: expected fancyzhx/ag_news in the cache or a netw")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_real_test_part() -> None:
    expected, labels = read_ag_news()
    texts = load_ag_news(os.environ.get(VARIABLE, str(DEFAULT)))
    assert texts.train_labels.bincount().tolist() == [1000] * 4
    assert texts.test_labels.bincount().tolist() == [250] * 4
    label_of = {
        " ".join(text.replace("\\", " ").split()): label
        for text, label in zip(expected, labels, strict=True)
    }
    assert [label_of[text] for text in texts.train_texts] == texts.train_labels.tolist()
    assert not set(texts.train_texts) & set(texts.test_texts)
    assert texts.source.endswith("both parts from this one")
