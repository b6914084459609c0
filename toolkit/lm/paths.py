"""Paths that patterns name, and models that paths name."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path

_DEFAULT_REVISION = "@main"
_WILDCARDS = set("*?")


def matching_paths(pattern: str | Sequence[str]) -> list[Path]:
    """Return the paths that one or several patterns match, each once, in their order.

    Brackets are taken for what they are where there is such a path, and otherwise for a choice of
    characters: ``run[a]/step-*`` finds the folders of ``run[a]``, and without it those of ``runa``.
    """
    patterns = [pattern] if isinstance(pattern, str) else pattern
    found: dict[Path, Path] = {}
    for path in (path for one in patterns for path in _matching(Path(one).expanduser())):
        found.setdefault(path.absolute(), path)
    return list(found.values())


def fits(text: str, pattern: str) -> bool:
    """Whether a pattern describes the whole text, its brackets taken as in `matching_paths`."""
    return any(fnmatchcase(text, one) for one in (_literal_brackets(pattern), pattern))


def model_name(text: str) -> str:
    """Return a model's name without what changes nothing: ``x/``, ``./x`` and ``x`` are one."""
    return str(Path(text).expanduser()) if text else text


def check_different(argument: str, names: Sequence[str]) -> None:
    """Raise a ValueError that begins with ``argument`` if two names are those of one model."""
    first: dict[str, str] = {}
    for name in names:
        path = Path(name).expanduser()
        key = str(path.resolve()) if path.exists() else str(path).removesuffix(_DEFAULT_REVISION)
        if key in first:
            raise ValueError(
                f"{argument}: expected different models, got {first[key]} and {name}, "
                "which are one; give each once"
            )
        first[key] = name


def _matching(pattern: Path) -> list[Path]:
    parts = pattern.relative_to(pattern.anchor).parts
    return reduce(_children, parts, [Path(pattern.anchor)])


def _children(folders: list[Path], part: str) -> list[Path]:
    """What a part of a pattern matches in each of the folders, in the order of the names."""
    return [folder / name for folder in folders for name in _names(folder, part)]


def _names(folder: Path, part: str) -> list[str]:
    if not set(part) & _WILDCARDS and (folder / part).exists():
        return [part]
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    # As in a shell, a wildcard stands for no hidden file.
    seen = [name for name in names if part.startswith(".") or not name.startswith(".")]
    literal = [name for name in seen if fnmatchcase(name, _literal_brackets(part))]
    return literal or [name for name in seen if fnmatchcase(name, part)]


def _literal_brackets(pattern: str) -> str:
    return pattern.replace("[", "[[]")
