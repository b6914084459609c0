"""Imports go one way, and light things stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("lightning", "transformers", "datasets", "matplotlib", "rich", "torchmetrics")


def loaded_after(statement: str) -> set[str]:
    """Names of the top-level packages that a fresh interpreter holds after ``statement``."""
    code = f"import sys; {statement}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def imported_packages(path: Path) -> set[str]:
    """Dotted names that the file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_functional_loads_nothing_heavy() -> None:
    assert not loaded_after("import toolkit.functional") & set(HEAVY)


def test_the_heavy_check_can_fail() -> None:
    assert "rich" in loaded_after("import rich")


def test_toolkit_alone_does_not_load_torch() -> None:
    assert "torch" not in loaded_after("import toolkit")


def test_functional_imports_only_its_own() -> None:
    for path in (ROOT / "toolkit" / "functional").glob("*.py"):
        ours = {n for n in imported_packages(path) if n.split(".")[0] in {"toolkit", "callbacks"}}
        assert all(name.startswith("toolkit.functional") for name in ours), (path, ours)


@pytest.mark.parametrize("path", sorted((ROOT / "toolkit").rglob("*.py")), ids=lambda p: p.name)
def test_toolkit_never_imports_callbacks(path: Path) -> None:
    assert not {n for n in imported_packages(path) if n.split(".")[0] == "callbacks"}
