"""Text files and folders as corpora, whole, unusual and damaged, and what each has to give."""

from collections.abc import Callable
from pathlib import Path

from tests.adversarial.labelled_files import (
    Given,
    Refused,
    file,
    joined,
    lines,
    parts,
    saved,
    table,
)


def folder(name: str = "texts", **files: str | bytes) -> Callable[[Path], Path]:
    """A folder of text files; ``__`` in an argument stands for a folder's end, ``_`` for a dot."""

    def write(root: Path) -> Path:
        for path, content in files.items():
            file(f"{name}/" + path.replace("__", "/").replace("_", "."), content)(root)
        (root / name).mkdir(exist_ok=True)
        return root / name

    return write


def documents(*texts: str) -> dict[str, int]:
    return dict.fromkeys(texts, 0)


def inside(write: Callable[[Path], Path]) -> Callable[[Path], Path]:
    """The folder that holds what is written."""

    def written(root: Path) -> Path:
        (root / "texts").mkdir()
        write(root / "texts")
        return root / "texts"

    return written


def with_links(root: Path) -> Path:
    path = folder(a_txt="a")(root)
    (path / "b.txt").symlink_to(path / "none.txt")
    (path / "c.txt").symlink_to(file("other.txt", "c")(root))
    return path


CORPORA: dict[str, Given | Refused] = {
    "paragraphs": Given(file("t.txt", "a\nb\n\nc\n \t\nd"), documents("a\nb", "c", "d")),
    "Windows line ends": Given(file("t.txt", "a\r\n\r\nb\r\n"), documents("a", "b\n")),
    "old Mac line ends": Given(file("t.txt", "a\r\rb"), documents("a", "b")),
    "blank lines around": Given(file("t.txt", "\n\n\na\n\n\n\nb\n\n"), documents("a", "b")),
    "no suffix": Given(file("text", "a\n\nb"), documents("a", "b")),
    "Markdown": Given(file("t.md", "# a\n\nb"), documents("# a", "b")),
    "source code": Given(file("t.py", "a = 1\n\nb = 2"), documents("a = 1", "b = 2")),
    "a mark in front": Given(file("t.txt", "\ufeffa\n\nb"), documents("a", "b")),
    "marks inside": Given(
        file("t.txt", "\ufeffa\ufeff\n\nb\ufeffc"), documents("a", "bc"), r"byte order marks \(2\)"
    ),
    "a paragraph of a mark": Given(
        file("t.txt", "a\n\n\ufeff\n\nb"),
        documents("a", "b"),
        r"empty texts \(1\), byte order marks \(1\)",
    ),
    "brackets in the name": Given(file("t[a]*.txt", "a\n\nb"), documents("a", "b")),
    "other alphabets": Given(
        file("t.txt", "\u6f22\u5b57\n\n\U0001f642"), documents("\u6f22\u5b57", "\U0001f642")
    ),
    "a long line": Given(file("t.txt", "word " * 50_000), documents("word " * 50_000)),
    "the word None": Given(file("t.txt", "None\n\nNaN"), documents("None", "NaN")),
    "form feeds": Given(file("t.txt", "a\n\f\nb\x0bc"), documents("a", "b\x0bc")),
    "a folder": Given(folder(b_txt="b", a_txt="a\n\nc"), documents("a\n\nc", "b")),
    "folders in folders": Given(folder(x__y__a_txt="a", b_txt="b"), documents("b", "a")),
    "a folder in brackets": Given(folder("texts[a]", a_txt="a"), documents("a")),
    "marks in a folder": Given(
        folder(a_txt="\ufeffa", b_txt="b\ufeff"), documents("a", "b"), r"byte order marks \(1\)"
    ),
    "an empty file": Given(
        folder(a_txt="a", b_txt="", c_txt=" \n"), documents("a"), r"empty texts \(2\)"
    ),
    "hidden files": Given(
        folder(a_txt="a", _DS_Store=b"\0\xff", x__y_txt="y"),
        documents("a", "y"),
        r"hidden files \(1\)",
    ),
    "hidden folders": Given(
        folder(a_txt="a", _git__config="c", x___cache__y_txt="y"),
        documents("a"),
        r"hidden files \(2\)",
    ),
    "hidden and empty": Given(
        folder(a_txt="a", _b="b", c_txt=""),
        documents("a"),
        r"hidden files \(1\), empty texts \(1\)",
    ),
    "a hidden table": Given(folder(a_txt="a", _b_csv="b"), documents("a"), r"hidden files \(1\)"),
    "JSON among texts": Given(folder(a_txt="a", b_json="{}"), documents("a", "{}")),
    "an empty folder inside": Given(inside(folder("x", a_txt="a")), documents("a")),
    "a hidden folder itself": Given(folder(".texts", a_txt="a"), documents("a")),
    "links": Given(with_links, documents("a", "c")),
    "nothing": Refused(file("t.txt", ""), "expected texts in t.txt, found none"),
    "only line ends": Refused(file("t.txt", "\n \n\n"), "expected texts in t.txt, found none"),
    "only a mark": Refused(file("t.txt", "\ufeff"), "expected texts in t.txt, found none"),
    "an empty folder": Refused(folder(), "expected texts in texts, found none"),
    "only hidden files": Refused(folder(_a="a"), "expected texts in texts, found none"),
    "only empty files": Refused(folder(a_txt=""), "expected texts in texts, found none"),
    "nothing there": Refused(lambda root: root / "none.txt", "which does not exist"),
    "Latin-1": Refused(
        file("t.txt", b"a\nb\ncaf\xe9"), "UTF-8 text in .*, got byte 0xe9 in line 3;"
    ),
    "Latin-1 with Mac line ends": Refused(
        file("t.txt", b"a\r\rcaf\xe9"), "byte 0xe9 in line 3; conv"
    ),
    "Latin-1 in a folder": Refused(
        folder(a_txt="a", b_txt=b"\xe9"),
        "UTF-8 text in .*b.txt, got byte 0xe9 in line 1; convert or",
    ),
    "UTF-16": Refused(file("t.txt", "a\n".encode("utf-16")), "byte 0xff in line 1; convert"),
    "UTF-16 without a mark": Refused(
        file("t.txt", "a\n".encode("utf-16-le")), "NUL .* in line 1 of"
    ),
    "overlong": Refused(file("t.txt", b"a\n\xc0\x80"), "got byte 0xc0 in line 2; convert"),
    "NUL": Refused(file("t.txt", "a\n\nb\0"), "got a NUL character in line 3 of .*; remove it"),
    "NUL in a folder": Refused(
        folder(a_txt="a\0"), "NUL character in line 1 of .*a.txt; remove it"
    ),
    "a picture": Refused(
        file("t.png", b"\x89PNG\r\n"), "UTF-8 text in .*, got byte 0x89 in line 1;"
    ),
    "a packed file": Refused(file("t.txt.gz", b"\x1f\x8b\x08"), "got byte 0x8b in line 1; convert"),
    "a CSV file": Refused(file("news.csv", lines()), "expected plain text, got the table"),
    "a CSV file in capitals": Refused(
        file("NEWS.CSV", lines()), "expected plain text, got the tab"
    ),
    "a TSV file": Refused(file("news.tsv", "a\tb"), "expected plain text, got the table"),
    "JSON lines": Refused(
        file("news.jsonl", '{"text": "a"}'), "expected plain text, got the table"
    ),
    "JSON": Refused(file("news.json", '["a"]'), "expected plain text, got the table"),
    "a Parquet file": Refused(table(joined()), "expected plain text, got the table"),
    "a CSV file among texts": Refused(
        folder(a_txt="a", news_csv="b"), "got the table .*news.csv; save its texts as files"
    ),
    "JSON lines among texts": Refused(folder(a_txt="a", x_ndjson="b"), "got the table .*x.ndjson"),
    "a saved folder": Refused(saved(joined()), "got the table .*data-00000-of-00001.arrow; save"),
    "saved parts": Refused(
        parts(train=joined()), "got the table .*data-00000-of-00001.arrow; save"
    ),
}
