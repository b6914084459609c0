"""Docstrings of Python's standard library, labelled by area: available without download."""

import ast
import platform
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from toolkit.data.labelled_texts import LabelledTexts, Pool, draw_texts
from toolkit.data.standard_library import module_files

# Top-level modules and packages that clearly belong to one area, in every Python from 3.11 on.
_MODULES = {
    "networking": "ftplib http imaplib ipaddress mailbox poplib smtplib socket socketserver ssl "
    "urllib webbrowser wsgiref xmlrpc",
    "text": "argparse base64 cmd codecs configparser csv difflib email gettext html json locale "
    "mimetypes optparse plistlib pprint quopri re reprlib shlex string stringprep textwrap "
    "tokenize tomllib xml",
    "numbers": "_pydatetime _pydecimal _pylong _strptime bisect calendar colorsys datetime "
    "decimal fractions heapq numbers operator random sched secrets statistics timeit turtle "
    "zoneinfo",
    "system": "concurrent ctypes filecmp fileinput fnmatch genericpath getpass glob logging "
    "multiprocessing ntpath os pathlib platform posixpath pty queue shutil signal stat "
    "subprocess sysconfig tarfile tempfile threading tty zipfile",
}
# A model must not be trained on the texts with which it is measured.
HELD_OUT_MODULES = frozenset(name for names in _MODULES.values() for name in names.split())

_MIN_WORDS = 8
_WORDS_TOGETHER = 3
_MIN_NOVELTY = 0.5


def load_docstring_topics(
    *, num_train: int = 1200, num_test: int = 400, seed: int = 0
) -> LabelledTexts:
    """Draw training and test texts from the docstrings of the standard library.

    The sources are parsed, never imported. The text is the docstring up to its first doctest, if
    it has at least 8 words. A near-duplicate shares at least half of its three-word sequences with
    earlier docstrings; it is left out and counted in ``num_removed``. The texts depend on
    Python's version, which is part of ``source``.

    Args:
        num_train: Number of training texts.
        num_test: Number of test texts.
        seed: Fixes the draw.

    Raises:
        ValueError: If a class has too few texts, or the standard library has no source files.
    """
    pool, num_duplicates = _docstrings()
    drawn = draw_texts(
        pool,
        None,
        classes=tuple(_MODULES),
        source=f"docstrings of Python {platform.python_version()}",
        num_train=num_train,
        num_test=num_test,
        seed=seed,
    )
    return drawn._replace(num_removed=drawn.num_removed + num_duplicates)


@cache
def _docstrings() -> tuple[Pool, int]:
    """Return all docstrings without near-duplicates, and the number of near-duplicates."""
    texts: list[str] = []
    labels: list[int] = []
    num_duplicates = 0
    seen: set[tuple[str, ...]] = set()
    for label, modules in enumerate(_MODULES.values()):
        for text in (text for path in module_files(modules.split()) for text in _texts_of(path)):
            words = _words(text)
            sequences = {
                tuple(words[i : i + _WORDS_TOGETHER])
                for i in range(len(words) - _WORDS_TOGETHER + 1)
            }
            if len(sequences - seen) > _MIN_NOVELTY * len(sequences):
                texts.append(text)
                labels.append(label)
            else:
                num_duplicates += 1
            seen |= sequences
    return Pool(texts, labels), num_duplicates


def _texts_of(path: Path) -> Iterator[str]:
    """Yield the docstrings of a file that are long enough, with single spaces."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, documented):
            text = " ".join((ast.get_docstring(node) or "").split(">>>")[0].split())
            if len(_words(text)) >= _MIN_WORDS:
                yield text


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())
