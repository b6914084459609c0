"""Documents to train a language model on: from files, from the Hub, or Python's own sources."""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from toolkit.data.docstring_topics import HELD_OUT_MODULES
from toolkit.data.standard_library import standard_library_files

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_BLANK_LINES = re.compile(r"\n\s*\n")


class Documents(NamedTuple):
    """Texts that do not continue each other.

    Attributes:
        texts: The documents, none of them empty.
        name: Where they come from.
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
    """Read the documents that a plain string names.

    Args:
        source: A text file, whose documents are its paragraphs; a folder, where each file is one;
            the name of a data set on the Hub with a column ``text``; None for the source files of
            Python's standard library without those that `load_docstring_topics` reads.
        subset: Configuration of the data set, where the Hub has several.
        split: Part of the data set, such as ``train`` or ``train[:10000]``.

    Raises:
        ValueError: If the documents cannot be had; the message says what to do.
    """
    if source is None:
        files = standard_library_files(without=HELD_OUT_MODULES)
        return _documents([_text(file) for file in files], "standard library")
    path = Path(source)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return _documents([_text(file) for file in files], path.name)
    if path.is_file():
        return _documents(_BLANK_LINES.split(_text(path)), path.name)
    if _HUB_NAME.fullmatch(source):
        return _documents(_hub_texts(source, subset, split), source)
    raise ValueError(
        "source: expected a text file, a folder or a data set's name on the Hub, got "
        f"{source!r}, which does not exist"
    )


def _documents(texts: list[str], name: str) -> Documents:
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ValueError(f"source: expected texts in {name}, found none; give another source")
    return Documents(texts, name)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"source: expected UTF-8 text in {path}, got {error}; convert or remove the file"
        ) from error


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
    texts: list[str] = loaded["text"][:]
    return texts
