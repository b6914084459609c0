"""Training documents of language models: files, data sets on the Hub, Python's sources."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from toolkit.data._text_files import BYTE_ORDER_MARK, check_no_nul, read_text, say_left_out
from toolkit.data.docstring_topics import HELD_OUT_MODULES
from toolkit.data.standard_library import standard_library_files

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_TABLES = frozenset((".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow"))
_BLANK_LINES = re.compile(r"\n\s*\n")


class Documents(NamedTuple):
    """Texts that do not continue each other.

    Attributes:
        texts: The documents, none of them empty.
        name: Source of the documents.
    """

    texts: list[str]
    name: str

    def digest(self) -> str:
        """Return a BLAKE2 fingerprint of the texts in their order, 32 hexadecimal digits."""
        digest = hashlib.blake2b(digest_size=16)
        for text in self.texts:
            content = text.encode()
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.hexdigest()


def read_documents(
    source: str | None, *, subset: str | None = None, split: str = "train"
) -> Documents:
    """Read the documents of a source given as a string.

    Args:
        source: A text file with one document in each paragraph; a folder with one document in each
            file that is not hidden; the name of a data set on the Hub with a column ``text``; None
            for the source files of Python's standard library, except the files that
            `load_docstring_topics` reads.
        subset: Configuration of the data set, if it has several on the Hub.
        split: Part of the data set, such as ``train`` or ``train[:10000]``.

    Raises:
        ValueError: If the documents cannot be read; the message says what to do.
    """
    if source is None:
        texts = map(read_text, standard_library_files(without=HELD_OUT_MODULES))
        return _documents([text for text in texts if text.strip()], "standard library")
    path = Path(source).expanduser()
    if path.is_dir():
        return _folder_documents(path)
    if path.is_file():
        _check_no_table(path, _TABLES | {".json"})
        paragraphs = [text for text in _BLANK_LINES.split(read_text(path)) if text.strip()]
        return _documents(paragraphs, path.name)
    if _HUB_NAME.fullmatch(source):
        return _documents(_hub_texts(source, subset, split), source)
    raise ValueError(
        "source: expected a text file, a folder or a data set's name on the Hub, got "
        f"{source!r}, which does not exist"
    )


def _folder_documents(folder: Path) -> Documents:
    """Return each file as a document, except hidden files and files in hidden folders."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    seen = [
        file
        for file in files
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]
    for file in seen:
        _check_no_table(file, _TABLES)
    texts = [read_text(file) for file in seen]
    return _documents(texts, folder.name, num_hidden=len(files) - len(seen))


def _check_no_table(path: Path, suffixes: frozenset[str]) -> None:
    if path.suffix.lower() in suffixes:
        raise ValueError(
            f"source: expected plain text, got the table {path}; save its texts as files and give "
            "their folder"
        )


def _documents(texts: Sequence[str], name: str, *, num_hidden: int = 0) -> Documents:
    """Return the texts that are not empty, without byte order marks."""
    for number, text in enumerate(texts, start=1):
        check_no_nul(text, f"text {number} of {name}")
    kept = [text.replace(BYTE_ORDER_MARK, "") for text in texts]
    kept = [text for text in kept if text.strip()]
    if not kept:
        raise ValueError(f"source: expected texts in {name}, found none; give another source")
    left_out = {
        "hidden files": num_hidden,
        "empty texts": len(texts) - len(kept),
        "byte order marks": sum(text.count(BYTE_ORDER_MARK) for text in texts),
    }
    say_left_out(left_out, name)
    return Documents(kept, name)


def _hub_texts(name: str, subset: str | None, split: str) -> list[str]:
    from datasets import load_dataset  # noqa: PLC0415

    try:
        loaded = load_dataset(name, subset, split=split)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"source: expected {name} in the cache or a network to fetch it ({reason}); run once "
            "with network and without HF_HUB_OFFLINE, or give the path of a file or folder"
        ) from error
    if "text" not in loaded.column_names:
        raise ValueError(
            f"source: expected a column text in {name}, got {', '.join(loaded.column_names)}; "
            "save that column's texts as files and give their folder"
        )
    texts = ["" if text is None else text for text in loaded["text"][:]]
    other = next((text for text in texts if not isinstance(text, str)), None)
    if other is not None:
        raise ValueError(f"source: expected texts in column text of {name}, got {other!r:.40}")
    return texts
