"""Paths that match patterns, and names of models that are paths."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path

_DEFAULT_REVISION = "@main"
_WILDCARDS = set("*?")


def matching_paths(pattern: str | Sequence[str]) -> list[Path]:
    """Return the paths that match one or several patterns, each path once, in pattern order.

    Brackets are literal if such a path exists; otherwise they are a set of characters:
    ``run[a]/step-*`` matches in the folder ``run[a]``, or in ``runa`` if ``run[a]`` is missing.
    """
    patterns = [pattern] if isinstance(pattern, str) else pattern
    paths: dict[Path, Path] = {}
    for path in (path for text in patterns for path in _matching(Path(text).expanduser())):
        paths.setdefault(path.absolute(), path)
    return list(paths.values())


def fits(text: str, pattern: str) -> bool:
    """Whether a pattern matches the whole text; brackets are read as in `matching_paths`."""
    return any(fnmatchcase(text, form) for form in (_literal_brackets(pattern), pattern))


def model_name(text: str) -> str:
    """Return the normal form of a model's name: ``x`` for ``x/``, ``./x`` and ``x``."""
    return str(Path(text).expanduser()) if text else text


def check_different(argument: str, names: Sequence[str]) -> None:
    """Raise a ValueError that begins with ``argument`` if two names stand for the same model."""
    first: dict[str, str] = {}
    for name in names:
        path = Path(name).expanduser()
        key = str(path.resolve()) if path.exists() else str(path).removesuffix(_DEFAULT_REVISION)
        if key in first:
            raise ValueError(
                f"{argument}: expected different models, got {first[key]} and {name}, "
                "which are the same; give each once"
            )
        first[key] = name


def _matching(pattern: Path) -> list[Path]:
    parts = pattern.relative_to(pattern.anchor).parts
    return reduce(_children, parts, [Path(pattern.anchor)])


def _children(folders: list[Path], part: str) -> list[Path]:
    """Return the paths in the folders that match one part of a pattern, sorted by name."""
    return [folder / name for folder in folders for name in _names(folder, part)]


def _names(folder: Path, part: str) -> list[str]:
    if not set(part) & _WILDCARDS and (folder / part).exists():
        return [part]
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    # As in a shell, a wildcard does not match hidden files.
    seen = [name for name in names if part.startswith(".") or not name.startswith(".")]
    literal = [name for name in seen if fnmatchcase(name, _literal_brackets(part))]
    return literal or [name for name in seen if fnmatchcase(name, part)]


def _literal_brackets(pattern: str) -> str:
    return pattern.replace("[", "[[]")
