"""AG News in each of its forms gives the same texts; what is ambiguous is refused in one line."""

import csv
import math
import os
import random
from collections.abc import Callable
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
    assert load(f"{tmp_path}/saved/").source == f"{tmp_path}/saved"
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
        ([[0, "a", "b"]], "expected each of the labels 0 to 3, or each of 1 to 4, .* got 0; which"),
        ([["text", "label"], ["a", 4]], "expected each of the labels 0 to 3.* got 4; which class"),
        ([["text", "label"]], "expected rows in .*news.csv, got none"),
        ([], "expected rows in .*news.csv, got an empty file"),
        ([["text", "label"], *[["a", i] for i in range(9)]], "got 0, 1, 2, 3, 4, 5, ...; which"),
        ([["text", "label"], *[["a", i] for i in range(5)]], "got 0, 1, 2, 3, 4; which"),
        ([["text", "label"], *[["a", i + 0.5] for i in range(4)]], "got 0.5, 1.5, 2.5, 3.5; wh"),
        ([["text", "class"], ["a", 1]], "expected columns text,label or .* got text,class; which"),
        (
            [["title", "text", "description", "label"], ["a"] * 4],
            "got title,text,description,label; which",
        ),
        ([["text", "label", "Text"], ["a", 1, "b"]], "got text,label,Text; which"),
        ([["text", "label", "text"], ["a", 1, "b"]], "expected different columns in .*news.csv"),
        ([[1, "a"]], "expected rows of label,title,description in .* got a row with 2 columns"),
        (
            [["text", "label"], ["a", 1], ["b"]],
            "news.csv, got 1 columns instead of 2 in the row that begins in line 3; correct",
        ),
        ([["text", "label"], ["a\nb\0", 1]], "got a NUL character in line 3 of .*news.csv; remove"),
    ],
)
def test_ambiguous_files_are_refused(rows: list[list[Any]], match: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        load(write(tmp_path / "news.csv", *rows))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("form", [published, with_header])
def test_labels_count_from_0_or_from_1(
    form: Callable[[Path, int], Path], first: int, tmp_path: Path
) -> None:
    check(load(form(tmp_path / "news.csv", first)))


def test_the_header_of_a_copy(tmp_path: Path) -> None:
    labels = [label + 1 for label in LABELS]
    rows = [list(row) for row in zip(labels, TITLES, DESCRIPTIONS, strict=True)]
    check(load(write(tmp_path / "train.csv", ["Class Index", "Title", "Description"], *rows)))


def test_quotes_behind_backslashes(tmp_path: Path) -> None:
    lines = [
        rf'"{label + 1}","\"Quoted\" title {i}","first line\second, {i}\\"'
        for i, label in enumerate(LABELS)
    ]
    (tmp_path / "news.csv").write_text("\n".join(lines))
    check(load(tmp_path / "news.csv"))


def read_in_one_way(path: Path) -> LabelledTexts | None:
    """The texts, None where they could be others."""
    try:
        return load_ag_news(str(path), num_train=4, num_test=4)
    except ValueError as error:
        if "expected quotes that can be read in one way" not in str(error):
            raise
        return None


def test_quotes_and_backslashes_are_never_read_wrongly(tmp_path: Path) -> None:
    source = random.Random(0)
    kinds: list[dict[str, Any]] = [{}, {"doublequote": False, "escapechar": "\\"}]
    refused = 0
    for number in range(400):
        cells = ["".join(source.choices('ab"\\,\n ;\r', k=source.randint(1, 9))) for _ in range(8)]
        with (tmp_path / f"{number}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL, **kinds[number % 2])
            writer.writerows([i // 2 + 1, f"t{i}{cell}", cell] for i, cell in enumerate(cells))
        expected = {
            " ".join(f"t{i}{cell} {cell}".replace("\\", " ").split()): i // 2
            for i, cell in enumerate(cells)
        }
        texts = read_in_one_way(tmp_path / f"{number}.csv")
        if texts is None:
            refused += 1
            continue
        drawn = [*texts.train_texts, *texts.test_texts]
        labels = [*texts.train_labels.tolist(), *texts.test_labels.tolist()]
        assert dict(zip(drawn, labels, strict=True)) == expected
    assert refused <= 4


def test_a_field_of_any_length(tmp_path: Path) -> None:
    long = "word " * 30_000
    rows = [[f"{i} {long}", label] for i, label in enumerate(LABELS)]
    texts = load(write(tmp_path / "news.csv", ["text", "label"], *rows))
    drawn = [*texts.train_texts, *texts.test_texts]
    assert sorted(map(len, drawn)) == [150_001] * 10 + [150_002] * 14
    with pytest.raises(csv.Error, match="field larger than field limit"):
        next(csv.reader([long]))


def incomplete() -> dict[str, list[Any]]:
    """Rows of which every class has two without text, one without a title, one without a label."""
    texts = [f"title {i}" for i in range(40)]
    columns: dict[str, list[Any]] = {
        "label": [float(i % 4) for i in range(40)],
        "title": [*texts[:28], *[None] * 12],
        "description": [*["" for _ in range(28)], *[f"text {i}" for i in range(4)], *[None] * 8],
    }
    columns["label"][:4] = [None, math.nan, None, math.nan]
    return columns


def check_incomplete(source: Path) -> None:
    with pytest.warns(
        UserWarning, match=r"left out of .*: rows without text \(8\), rows without a"
    ):
        texts = load_ag_news(str(source), num_train=20, num_test=8)
    expected = {f"title {i}": i % 4 for i in range(4, 28)} | {f"text {i}": i for i in range(4)}
    drawn = [*texts.train_texts, *texts.test_texts]
    labels = [*texts.train_labels.tolist(), *texts.test_labels.tolist()]
    assert dict(zip(drawn, labels, strict=True)) == expected


def test_a_missing_cell_is_no_text(tmp_path: Path) -> None:
    from datasets import Dataset

    dataset = Dataset.from_dict(incomplete())
    dataset.to_parquet(tmp_path / "news.parquet")
    dataset.save_to_disk(tmp_path / "saved")
    for name in ("", "NaN", "None", "<NA>", "null"):
        dataset.to_pandas().to_csv(tmp_path / f"na{name}.csv", index=False, na_rep=name)
    for source in sorted(tmp_path.iterdir()):
        check_incomplete(source)


def test_byte_order_marks_are_no_text(tmp_path: Path) -> None:
    path = with_header(tmp_path / "news.csv")
    content = path.read_text(encoding="utf-8").replace('"first', '"\ufefffirst')
    path.write_text("\ufeff" + content.replace("title", "ti\ufefftle"), encoding="utf-8")
    with pytest.warns(UserWarning, match=r"left out of .*news.csv: byte order marks \(24\)"):
        check(load(path))


@pytest.mark.parametrize(
    ("values", "shown"),
    [([[1], [2]] * 12, r"\[1\]"), ([b"a"] * 24, "b'a'"), (list(range(24)), "0")],
    ids=["lists", "bytes", "numbers"],
)
def test_a_column_of_no_text_is_refused(values: list[Any], shown: str, tmp_path: Path) -> None:
    from datasets import Dataset

    path = tmp_path / "news.parquet"
    Dataset.from_dict({"text": values, "label": LABELS}).to_parquet(path)
    with pytest.raises(ValueError, match=f"expected text under text in .*, got {shown} in row 1"):
        load(path)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("news.txt", b"", r"expected a \.csv or \.parquet file, got"),
        (
            "news.csv",
            b"1,\xff,b",
            "expected UTF-8 text in .*news.csv, got byte 0xff in line 1; con",
        ),
        ("news.csv", b"1,a,b\r\n2,\n\xc3(,b", "expected UTF-8 text in .* got byte 0xc3 in line 3;"),
        (
            "news.csv",
            b'1,"a"b,c',
            "expected rows .*, got .* in the row that begins in line 1; correct",
        ),
        (
            "news.csv",
            b'1,a,b\n2,"a,b\n3,a,b',
            ".*got unexpected end of data in the row .* in line 2",
        ),
        ("news.csv", rb'1,"\"a",b,"c"d', ".*news.csv, got ',' expected after '\"' in the row that"),
        ("news.parquet", b"1,a,b", "expected a whole Parquet file, got"),
        ("news.parquet", b"", "expected rows in .*news.parquet, got an empty file"),
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
