"""Files and folders of labelled texts, whole, unusual and damaged, and what each has to give."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import parquet

LABELS = [i % 4 for i in range(24)]
TITLES = [f"Title {i}" for i in range(24)]
BODIES = [f"body of {i}" for i in range(24)]
TEXTS = [f"{title} {body}" for title, body in zip(TITLES, BODIES, strict=True)]
ALL = dict(zip(TEXTS, LABELS, strict=True))


class Given(NamedTuple):
    """A source that is accepted.

    Attributes:
        write: Writes it below a folder and returns its path.
        labels: The label of each text that it holds.
        warning: What is said of what was left out, as a regular expression; None for nothing.
    """

    write: Callable[[Path], Path]
    labels: dict[str, int] = ALL
    warning: str | None = None


class Refused(NamedTuple):
    """A source that is refused.

    Attributes:
        write: Writes it below a folder and returns its path.
        reason: What the message says besides the path, as a regular expression.
    """

    write: Callable[[Path], Path]
    reason: str


def file(name: str, content: bytes | str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def csv(content: bytes | str) -> Callable[[Path], Path]:
    return file("news.csv", content)


def lines(
    *,
    first: int = 1,
    header: str = "",
    form: str = '"{label}","{title}","{body}"',
    end: str = "\n",
    labels: Sequence[Any] = LABELS,
) -> str:
    """A CSV file of all texts, each row written by ``form``."""
    rows = [
        form.format(label=label + first, title=title, body=body, text=f"{title} {body}")
        for label, title, body in zip(labels, TITLES, BODIES, strict=True)
    ]
    return end.join([*([header] if header else []), *rows, ""])


def without(*numbers: int) -> dict[str, int]:
    return {text: label for i, (text, label) in enumerate(ALL.items()) if i not in numbers}


def changed(old: str, new: str, **options: Any) -> str:
    """The published form with one place changed."""
    content = lines(**options)
    assert content.count(old) == 1
    return content.replace(old, new)


TEXT_LABEL: dict[str, Any] = {"header": "text,label", "form": '"{text}",{label}', "first": 0}
ESCAPED = r'"{label}","\"Quoted\", {title}","a\\b \"{body}\""'
DOUBLED = '"{label}","""Quoted"", {title}","a\\b ""{body}"""'
QUOTED = {f'"Quoted", Title {i} a b "body of {i}"': label for i, label in enumerate(LABELS)}

CSV_FILES: dict[str, Given | Refused] = {
    "published": Given(csv(lines())),
    "labels from 0": Given(csv(lines(first=0))),
    "text and label": Given(csv(lines(**TEXT_LABEL))),
    "text and label from 1": Given(csv(lines(**(TEXT_LABEL | {"first": 1})))),
    "label before text": Given(csv(lines(header="label,text", form='{label},"{text}"', first=0))),
    "Kaggle header": Given(csv(lines(header='"Class Index","Title","Description"'))),
    "header in capitals": Given(csv(lines(header="LABEL,TITLE,DESCRIPTION"))),
    "header with spaces": Given(csv(lines(header=" label , title , description "))),
    "more columns": Given(
        csv(lines(header="id,label,title,description", form='7,{label},"{title}","{body}"'))
    ),
    "pandas index": Given(csv(lines(header=",text,label", form="{label},{text},{label}", first=0))),
    "byte order mark": Given(csv("\ufeff" + lines())),
    "byte order mark before a header": Given(csv("\ufeff" + lines(**TEXT_LABEL))),
    "byte order mark before quotes": Given(
        csv("\ufeff" + lines(header='"label","title","description"'))
    ),
    "byte order marks inside": Given(
        csv(changed("body of 3", "bo\ufeffdy\ufeff of 3")), ALL, r"byte order marks \(2\)"
    ),
    "Windows line ends": Given(csv(lines(end="\r\n"))),
    "old Mac line ends": Given(csv(lines(end="\r"))),
    "no last line end": Given(csv(lines().rstrip("\n"))),
    "blank lines": Given(csv(lines(end="\n\n\n"))),
    "no quotes": Given(csv(lines(form="{label},{title},{body}"))),
    "spaces around labels": Given(csv(lines(form='" {label} ",{title},{body}'))),
    "labels as floats": Given(
        csv(lines(form="{label}.0,{title},{body}", header="label,title,description"))
    ),
    "leading zeros": Given(csv(lines(form="0{label},{title},{body}"))),
    "line breaks in fields": Given(csv(lines(form='{label},"{title}\n","\r\n{body}"'))),
    "backslashes": Given(csv(lines(form='{label},"{title}\\","\\{body}\\"'))),
    "runs of white space": Given(csv(lines(form='{label},"  {title}\t ","\u00a0{body}\u2003"'))),
    "doubled quotes": Given(csv(lines(form=DOUBLED)), QUOTED),
    "escaped quotes": Given(csv(lines(form=ESCAPED)), QUOTED),
    "a name in capitals": Given(file("NEWS.CSV", lines())),
    "brackets in the name": Given(file("news[a]*?.csv", lines())),
    "spaces in the name": Given(file("my news/ag news.csv", lines())),
    "a field of 200,000 characters": Given(
        csv(changed("body of 3", "body of 3" + " word" * 40_000)),
        without(3) | {TEXTS[3] + " word" * 40_000: 3},
    ),
    "emoji and accents": Given(
        csv(changed("body of 3", "caf\u00e9 \U0001f642 \u6f22")),
        without(3) | {"Title 3 caf\u00e9 \U0001f642 \u6f22": 3},
    ),
    "other separators of lines": Given(csv(changed("body of 3", "body\u2028of\x85 3")), ALL),
    "one text twice": Given(csv(lines() + '"1","Title 0","body of 0"\n')),
    "an empty text": Given(
        csv(changed('"Title 3","body of 3"', '"",""')), without(3), r"without text \(1\)"
    ),
    "a text of spaces": Given(
        csv(changed('"Title 3","body of 3"', '" ","\\"')), without(3), r"rows without text \(1\)"
    ),
    "a text that is only a mark": Given(
        csv(changed('"Title 3","body of 3"', '"\ufeff",""')),
        without(3),
        r"byte order marks \(1\), rows without text \(1\)",
    ),
    "an empty title": Given(csv(changed('"Title 3"', '""')), without(3) | {"body of 3": 3}),
    "a title NaN": Given(csv(changed('"Title 3"', "NaN")), without(3) | {"body of 3": 3}),
    "a missing label": Given(
        csv(changed('"4","Title 3"', '"","Title 3"')), without(3), r"rows without a label \(1\)"
    ),
    **{
        f"text {word}": Given(
            csv(changed('"Title 3 body of 3"', word, **TEXT_LABEL)),
            without(3),
            r"rows without text \(1\)",
        )
        for word in ("NaN", "nan", "None", "null", "NULL", "<NA>", "N/A", "\\N")
    },
    "a word None among others": Given(
        csv(changed("body of 3", "None of 3")), without(3) | {"Title 3 None of 3": 3}
    ),
    "nothing": Refused(csv(""), "expected rows in .*, got an empty file"),
    "only a mark": Refused(csv("\ufeff"), "expected rows in .*, got none"),
    "only line ends": Refused(csv("\n\n"), "expected rows in .*, got none"),
    "only a header": Refused(csv("text,label\n"), "expected rows in .*, got none"),
    "all texts empty": Refused(
        csv(lines(form='{label},"",""')),
        r"rows with text and label in .*, got rows without text \(24\)$",
    ),
    "Latin-1": Refused(
        csv(changed("body of 3", "caf\u00e9").encode("latin-1")),
        "UTF-8 text in .*, got byte 0xe9 in line 4; convert",
    ),
    "UTF-16": Refused(csv(lines().encode("utf-16")), "UTF-8 text in .*, got byte 0xff in line 1;"),
    "UTF-32": Refused(
        csv(lines().encode("utf-32-le")), "got a NUL character in line 1 of .*; remove it"
    ),
    "surrogates": Refused(
        csv(lines().encode() + b'"1","\xed\xa0\x80","b"'), "byte 0xed in line 25;"
    ),
    "cut inside a character": Refused(
        csv(lines().encode() + b'"1","\xc3'), "byte 0xc3 in line 25;"
    ),
    "NUL": Refused(
        csv(changed("body of 3", "body\0of 3")), "NUL character in line 4 of .*; remove"
    ),
    "a quote that never ends": Refused(
        csv(changed('"Title 3"', '"Title 3')), "got .* in the row that begins in line 4; correct"
    ),
    "cut inside quotes": Refused(
        csv(lines()[:-5]), "got unexpected end of data in the row that begins in line 24; correct"
    ),
    "letters behind quotes": Refused(
        csv(changed('"Title 3"', '"Title" 3')), "got ',' expected after '\"' in .* line 4; correct"
    ),
    "both kinds of quotes": Refused(
        csv(changed('"Title 3"', r'"\"Title 3"').replace('"Title 7"', '"Title 7"x')),
        "expected after '\"' in the row that begins in line 4;",
    ),
    "quotes of two readings": Refused(
        csv(r'"t\""",a"'), "expected quotes that can be read in one way, got .* in .*; double"
    ),
    "a row too short": Refused(
        csv(changed(',"body of 3"', "")), "got 2 columns instead of 3 in the row .* line 4; correct"
    ),
    "a row too long": Refused(
        csv(changed('"body of 3"', '"body","of 3"')),
        "got 4 columns instead of 3 .* line 4; correct",
    ),
    "an unquoted comma": Refused(
        csv(lines(header="text,label", form="{title},{body},{label}", first=0)),
        "got 3 columns instead of 2 in the row that begins in line 2; correct",
    ),
    "semicolons": Refused(
        csv(lines(header="text;label", form='"{text}";{label}', first=0)),
        "got ',' expected after '\"' in the row that begins in line 2; correct",
    ),
    "tabs": Refused(
        csv(lines(header="text\tlabel", form="{text}\t{label}", first=0)),
        "expected columns text,label or .*, got text\tlabel; which is the text",
    ),
    "two columns without a header": Refused(
        csv(lines(form="{label},{text}")), "rows of label,title,description in .* with 2 columns;"
    ),
    "a text in front without a header": Refused(
        csv(lines(form="{text},{label}")),
        "expected columns text,label or .*, got Title 0 body of 0,1;",
    ),
    "other columns": Refused(
        csv(lines(header="sentence,label", form="{text},{label}", first=0)),
        "expected columns text,label or .*, got sentence,label; which",
    ),
    "no label": Refused(csv("text\nhello\n"), "expected columns text,label .*, got text; which"),
    "both layouts": Refused(
        csv(lines(header="text,label,title,description", form="{text},{label},{title},{body}")),
        "got text,label,title,description; which is the text",
    ),
    "text twice": Refused(
        csv(lines(header="text,text,label", form="{text},{text},{label}")),
        "expected different columns in .*, got text,text,label",
    ),
    "label twice in two cases": Refused(
        csv(lines(header="text,label,Label", form="{text},{label},{label}")),
        "expected columns text,label or .*, got text,label,Label; which",
    ),
    "a label too many": Refused(
        csv(lines() + "5,a,b\n"), "got 1, 2, 3, 4, 5; which class is which"
    ),
    "a label too few": Refused(
        csv(lines(labels=[i % 3 for i in range(24)])), "got 1, 2, 3; which class is which"
    ),
    "labels 2 to 5": Refused(csv(lines(first=2)), "got 2, 3, 4, 5; which class is which"),
    "a label -1": Refused(csv(lines() + "-1,a,b\n"), "got -1, 1, 2, 3, 4; which class"),
    "labels by name": Refused(
        csv(lines(header="text,label", form="{text},World")), "got World; which class is which"
    ),
    "halves": Refused(
        csv(lines(header="text,label", form="{text},{label}.5")), "got 1.5, 2.5, 3.5, 4.5; which"
    ),
    "infinite labels": Refused(
        csv(lines(**TEXT_LABEL) + "a,inf\n"), "got 0, 1, 2, 3, inf; which class is which"
    ),
    "labels true and false": Refused(
        csv(lines(header="text,label", form="{text},True")), "got True; which class is which"
    ),
    "labels of three digits": Refused(
        csv(lines(form="{label}00,{title},{body}")), "got 100, 200, 300, 400; which class is which"
    ),
    "a class too small": Refused(
        csv(lines(labels=[3, *[i % 3 for i in range(23)]])),
        "num_train, num_test: expected at most 1 texts of class 'Sci/Tech' in news.csv",
    ),
}

OTHER_FILES: dict[str, Given | Refused] = {
    "plain text": Refused(file("news.txt", "hello\n"), r"expected a .csv or .parquet file, got"),
    "JSON lines": Refused(
        file("news.jsonl", json.dumps({"text": "a", "label": 0})),
        "expected a .csv or .parquet file",
    ),
    "JSON": Refused(file("news.json", "[]"), "expected a .csv or .parquet file, got .*; convert"),
    "tab-separated": Refused(file("news.tsv", "a\t0\n"), "expected a .csv or .parquet file, got"),
    "packed": Refused(file("news.csv.gz", b"\x1f\x8b\x08\0"), "expected a .csv or .parquet file"),
    "no suffix": Refused(file("news", lines()), "expected a .csv or .parquet file, got"),
    "nothing there": Refused(lambda folder: folder / "none.csv", "which does not exist"),
    "no Parquet there": Refused(lambda folder: folder / "none.parquet", "which does not exist"),
    "a folder without anything": Refused(
        lambda folder: folder, "expected a folder written by datasets' save_to_disk"
    ),
    "a folder of CSV files": Refused(
        lambda folder: file("texts/train.csv", lines())(folder).parent,
        "expected a folder written by datasets' save_to_disk, got .*; give a CSV or Parquet file",
    ),
    "a link to nothing": Refused(
        lambda folder: _link(folder / "news.csv", folder / "none.csv"), "which does not exist"
    ),
}


def _link(path: Path, target: Path) -> Path:
    path.symlink_to(target)
    return path


def linked(folder: Path) -> Path:
    csv(lines())(folder)
    return _link(folder / "other.csv", folder / "news.csv")


OTHER_FILES["a link"] = Given(linked)


def table(columns: dict[str, Any], **options: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "news.parquet"
        parquet.write_table(pa.table(columns), path, **options)
        return path

    return write


def joined(**other: Any) -> dict[str, Any]:
    return {"text": TEXTS, "label": LABELS} | other


def apart(**other: Any) -> dict[str, Any]:
    return {"label": [i + 1 for i in LABELS], "title": TITLES, "description": BODIES} | other


def put(values: Sequence[Any], number: int, value: object) -> list[Any]:
    return [*values[:number], value, *values[number + 1 :]]


def broken(change: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = table(joined(), compression="none")(folder)
        path.write_bytes(change(path.read_bytes()))
        return path

    return write


def same_names(folder: Path) -> Path:
    arrays = [pa.array(TEXTS), pa.array(TEXTS), pa.array(LABELS)]
    path = folder / "news.parquet"
    parquet.write_table(pa.Table.from_arrays(arrays, names=["text", "text", "label"]), path)
    return path


PARQUET_FILES: dict[str, Given | Refused] = {
    "text and label": Given(table(joined())),
    "three columns": Given(table(apart())),
    "three columns from 0": Given(table(apart(label=LABELS))),
    "Kaggle columns": Given(
        table({"Class Index": apart()["label"], "Title": TITLES, "Description": BODIES})
    ),
    "more columns": Given(table(joined(index=list(range(24)), vector=[[1.0]] * 24))),
    "small integers": Given(table(joined(label=pa.array(LABELS, pa.uint8())))),
    "labels as floats": Given(table(joined(label=[float(i) for i in LABELS]))),
    "labels as text": Given(table(joined(label=[f" {i} " for i in LABELS]))),
    "labels as decimals": Given(table(joined(label=pa.array(LABELS).cast(pa.decimal128(21, 2))))),
    "categories": Given(table(joined(text=pa.array(TEXTS).dictionary_encode()))),
    "large strings": Given(table(joined(text=pa.array(TEXTS, pa.large_string())))),
    "several row groups": Given(table(joined(), row_group_size=5)),
    **{
        f"packed by {name}": Given(table(joined(), compression=name))
        for name in ("gzip", "zstd", "brotli", "lz4")
    },
    "a missing text": Given(
        table(joined(text=put(TEXTS, 3, None))), without(3), r"rows without text \(1\)"
    ),
    "a missing description": Given(
        table(apart(description=put(BODIES, 3, None))), without(3) | {"Title 3": 3}
    ),
    "a missing label": Given(
        table(joined(label=put(LABELS, 3, None))), without(3), r"rows without a label \(1\)"
    ),
    "a label NaN": Given(
        table(joined(label=put([float(i) for i in LABELS], 3, float("nan")))),
        without(3),
        r"rows without a label \(1\)",
    ),
    "the word None": Given(
        table(joined(text=put(TEXTS, 3, "None"))), without(3), r"rows without text \(1\)"
    ),
    "byte order marks": Given(
        table(joined(text=put(TEXTS, 3, "\ufeff" + TEXTS[3]))), ALL, r"byte order marks \(1\)"
    ),
    "no rows": Refused(
        table({"text": [], "label": []}), "expected rows with text and label in .*, got no rows$"
    ),
    "texts all missing": Refused(
        table(joined(text=pa.array([None] * 24, pa.string()))),
        r"rows with text and label in .*, got rows without text \(24\)$",
    ),
    "texts that are lists": Refused(
        table(joined(text=[[text] for text in TEXTS])), r"text under text in .*, got \['Title 0"
    ),
    "texts that are bytes": Refused(
        table(joined(text=[text.encode() for text in TEXTS])),
        "text under text in .*, got b'Title 0",
    ),
    "texts that are numbers": Refused(
        table(joined(text=list(range(24)))), "text under text in .*, got 0 in row 1"
    ),
    "texts that are structures": Refused(
        table(joined(text=[{"a": text} for text in TEXTS])), "text under text in .*, got {'a': 'Ti"
    ),
    "NUL": Refused(
        table(joined(text=put(TEXTS, 3, "a\0b"))), "got a NUL character in row 4 of .*; remove it"
    ),
    "no UTF-8": Refused(
        table(joined(text=pa.array([b"caf\xe9"] * 24).view(pa.string()))), "UTF-8 text in .*, got"
    ),
    "labels true and false": Refused(
        table(joined(label=[i % 2 == 0 for i in LABELS])), "got False, True; which class is which"
    ),
    "labels by name": Refused(
        table(joined(label=["World"] * 24)), "got World; which class is which"
    ),
    "columns of one name": Refused(
        same_names, "expected different columns in .*, got text,text,lab"
    ),
    "no label": Refused(table({"text": TEXTS}), "expected columns text,label .*, got text; which"),
    "no columns": Refused(table({}), "expected columns text,label or .* in"),
    "empty": Refused(file("news.parquet", b""), "expected rows in .*, got an empty file"),
    "a CSV file": Refused(file("news.parquet", lines()), "expected a whole Parquet file, got"),
    "a Parquet file with another suffix": Refused(
        lambda folder: Path(shutil.copy(table(joined())(folder), folder / "news.csv")),
        "expected UTF-8 text in|got a NUL character in",
    ),
    "cut at the end": Refused(
        broken(lambda whole: whole[:-9]), "expected a whole Parquet file, got"
    ),
    "cut in the middle": Refused(
        broken(lambda whole: whole[: len(whole) // 2]), "expected a whole Parquet file, got"
    ),
    "cut at the front": Refused(
        broken(lambda whole: whole[99:]), "expected a whole Parquet file, got"
    ),
    "zeros in the data": Refused(
        broken(lambda whole: whole[:4] + bytes(400) + whole[404:]), "expected a whole Parquet file"
    ),
    "zeros in the footer": Refused(
        broken(lambda whole: whole[:-300] + bytes(200) + whole[-100:]), "expected a whole Parquet"
    ),
}


def saved(columns: dict[str, Any], name: str = "saved") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        from datasets import Dataset

        Dataset.from_dict(columns).save_to_disk(folder / name)
        return folder / name

    return write


def parts(**columns: dict[str, Any]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        from datasets import Dataset, DatasetDict

        parts = {name: Dataset.from_dict(values) for name, values in columns.items()}
        DatasetDict(parts).save_to_disk(folder / "saved")
        return folder / "saved"

    return write


def damaged(name: str, change: Callable[[bytes], bytes] | None) -> Callable[[Path], Path]:
    """A saved folder of which one file is changed, or is not there."""

    def write(folder: Path) -> Path:
        path = saved(joined())(folder)
        (found,) = path.glob(name)
        if change is None:
            found.unlink()
        else:
            found.write_bytes(change(found.read_bytes()))
        return path

    return write


_NO_FOLDER = "expected a folder written by datasets' save_to_disk, got"
SAVED_FOLDERS: dict[str, Given | Refused] = {
    "one part": Given(saved(joined())),
    "three columns": Given(saved(apart())),
    "brackets in the name": Given(saved(joined(), "news[a]*")),
    "a part of another name": Given(parts(validation=joined())),
    "a missing text": Given(
        saved(joined(text=put(TEXTS, 3, None))), without(3), r"rows without text \(1\)"
    ),
    "a missing label": Given(
        saved(joined(label=put(LABELS, 3, None))), without(3), r"rows without a label \(1\)"
    ),
    "two parts of other names": Refused(
        parts(train=joined(), validation=joined()), r"got \['train', 'validation'\] in"
    ),
    "parts that count differently": Refused(
        parts(train=joined(), test=joined(label=[i + 1 for i in LABELS])),
        "got 0, 1, 2, 3, 4; which class is which",
    ),
    "a part without rows": Refused(
        parts(train=joined(), test={"text": [], "label": []}),
        r"expected a folder written by .* \(no rows\); give",
    ),
    "a part without labels": Refused(
        parts(train=joined(), test={"text": TEXTS}), "expected columns text,label .*, got text;"
    ),
    "no rows": Refused(
        saved({"text": [], "label": []}),
        r"expected a folder written by .* \(no rows\); give",
    ),
    "no state": Refused(damaged("state.json", None), _NO_FOLDER),
    "no info": Refused(damaged("dataset_info.json", None), _NO_FOLDER),
    "no data": Refused(damaged("data-*.arrow", None), _NO_FOLDER),
    "a damaged state": Refused(damaged("state.json", lambda whole: whole[:20]), _NO_FOLDER),
    "an empty state": Refused(damaged("state.json", lambda _: b"{}"), _NO_FOLDER),
    "a state that is a list": Refused(damaged("state.json", lambda _: b"[]"), _NO_FOLDER),
    "a damaged info": Refused(damaged("dataset_info.json", lambda _: b"\xff"), _NO_FOLDER),
    "data cut in the middle": Refused(
        damaged("data-*.arrow", lambda whole: whole[: len(whole) // 2]), _NO_FOLDER
    ),
    "data of no length": Refused(damaged("data-*.arrow", lambda _: b""), _NO_FOLDER),
    "data of another kind": Refused(damaged("data-*.arrow", lambda _: b"hello" * 99), _NO_FOLDER),
}
