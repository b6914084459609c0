"""Source files of Python's standard library, which are on every machine with Python."""

import sysconfig
from collections.abc import Iterable
from pathlib import Path

# Tests and tables are repetitive, and site-packages differ between machines.
_SKIPPED = frozenset({"dist-packages", "encodings", "idlelib", "site-packages", "test", "tests"})
_GENERATED = "_sysconfigdata"


def module_files(modules: Iterable[str]) -> list[Path]:
    """Return the source files of top-level modules and of all modules in packages.

    Args:
        modules: Names of the modules and packages; a name that this Python lacks is skipped.

    Raises:
        ValueError: If the standard library has no source files.
    """
    root = _root()
    files = []
    for name in modules:
        files += [root / f"{name}.py"] if (root / f"{name}.py").is_file() else []
        files += sorted(path for path in (root / name).rglob("*.py") if _counts(path, root))
    return files


def standard_library_files(*, without: Iterable[str] = ()) -> list[Path]:
    """Return the standard library's source files, in the order of their paths.

    Tests, idlelib, tables of encodings, generated settings and installed packages are left out.

    Args:
        without: More top-level modules and packages to leave out.

    Raises:
        ValueError: If the standard library has no source files.
    """
    root = _root()
    left_out = set(without)
    return [
        path
        for path in sorted(root.rglob("*.py"))
        if _counts(path, root)
        and path.relative_to(root).parts[0].removesuffix(".py") not in left_out
    ]


def _root() -> Path:
    root = Path(sysconfig.get_path("stdlib"))
    if not (root / "os.py").is_file():
        raise ValueError(
            f"source: expected the standard library's source files in {root}, found none; this "
            "Python keeps them elsewhere: give texts of your own"
        )
    return root


def _counts(path: Path, root: Path) -> bool:
    parts = path.relative_to(root).parts
    return not _SKIPPED & set(parts) and not parts[0].startswith(_GENERATED)
