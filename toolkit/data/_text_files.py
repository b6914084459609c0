"""Text files and texts: UTF-8 without byte order marks and NUL characters."""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path

BYTE_ORDER_MARK = "\ufeff"
_LINE_END = re.compile(rb"\r\n|\r|\n")
_NUL = "\0"


def read_text(path: Path) -> str:
    """Return the text of a file, without a byte order mark at its beginning.

    Raises:
        ValueError: If the file cannot be read, is not UTF-8 or has a NUL character; the message
            names file and line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror
        raise ValueError(f"source: expected a file to read, got {path} ({reason})") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"source: expected UTF-8 text in {path}, got byte 0x{content[error.start]:02x} in line "
            f"{_line(content, error.start)}; convert or remove the file"
        ) from error
    if _NUL in text:
        check_no_nul(text, f"line {_line(content, content.index(0))} of {path}")
    return text.removeprefix(BYTE_ORDER_MARK).replace("\r\n", "\n").replace("\r", "\n")


def check_no_nul(text: str, place: str) -> None:
    """Raise a ValueError that names ``place`` if the text has a NUL character."""
    if _NUL in text:
        raise ValueError(
            f"source: expected text, got a NUL character in {place}; remove it, or the file if it "
            "is no text"
        )


def say_left_out(counts: Mapping[str, int], source: str | Path) -> None:
    """Give one warning with the counts of all omissions.

    Args:
        counts: Number of omissions of each kind; kinds with 0 are not mentioned.
        source: File or data set of the omissions.
    """
    left_out = shown_counts(counts)
    if left_out:
        warnings.warn(f"source: left out of {source}: {left_out}", stacklevel=3)


def shown_counts(counts: Mapping[str, int]) -> str:
    """Return the counts that are not 0 as text."""
    return ", ".join(f"{kind} ({number})" for kind, number in counts.items() if number)


def _line(content: bytes, position: int) -> int:
    return len(_LINE_END.findall(content, 0, position)) + 1
