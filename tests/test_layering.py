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


def modules() -> dict[str, Path]:
    """Files of the source by the dotted name of their module."""
    paths = [path for top in ("toolkit", "callbacks") for path in (ROOT / top).rglob("*.py")]
    names = (path.relative_to(ROOT).with_suffix("").parts for path in paths)
    dotted = (".".join(parts).removesuffix(".__init__") for parts in names)
    return dict(zip(dotted, paths, strict=True))


def imports() -> dict[str, set[str]]:
    """Modules of the source that each of them imports, at its top or late, for types or not."""
    found = modules()
    return {name: imported_packages(path) & set(found) for name, path in found.items()}


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, by the names of all modules behind each."""

    def behind(name: str) -> set[str]:
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            new = arrows[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    reached = {name: behind(name) for name in arrows}
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in arrows
        if name in reached[name]
    }
    return sorted(map(list, groups))


def room(module: str) -> str:
    """The folder that a module stands in, below `toolkit` and below its commands; else itself."""
    parts = module.split(".")
    depth = 3 if parts[:2] == ["toolkit", "commands"] else 2
    return "callbacks" if parts[0] == "callbacks" else ".".join(parts[:depth])


def between_rooms(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """The imports from one room to another."""
    found: dict[str, set[str]] = {}
    for name, others in arrows.items():
        found.setdefault(room(name), set()).update(map(room, others))
    return {name: others - {name} for name, others in found.items()}


def of_command(module: str) -> str:
    """The command whose folder holds the module, empty for none."""
    head, _, rest = module.partition("toolkit.commands.")
    return "" if head or not rest else rest.split(".")[0]


def crossings(arrows: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Imports from the folder of one command to that of another."""
    pairs = ((name, other) for name, others in arrows.items() for other in others)
    commands = ((a, b, of_command(a), of_command(b)) for a, b in pairs)
    return [(a, b) for a, b, here, there in commands if here and there and here != there]


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(imports()) == []


def test_no_rooms_import_each_other_in_a_circle() -> None:
    rooms = between_rooms(imports())
    assert {"toolkit.lm", "toolkit.runs", "toolkit.commands.probe", "callbacks"} <= set(rooms)
    assert circles(rooms) == []


def test_the_check_of_rooms_can_fail() -> None:
    arrows = {"toolkit.lm.a": {"toolkit.runs.b"}, "toolkit.runs.c": {"toolkit.lm.d"}}
    arrows |= {"toolkit.lm.d": set(), "toolkit.runs.b": set()}
    assert circles(between_rooms(arrows)) == [["toolkit.lm", "toolkit.runs"]]


def test_the_circle_check_can_fail() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert circles(arrows) == [["b", "c"]]


def test_no_command_imports_another() -> None:
    arrows = imports()
    assert {of_command(name) for name in arrows} >= {"agree", "capacity", "epsilon", "probe"}
    assert crossings(arrows) == []


def test_the_crossing_check_can_fail() -> None:
    a, b = "toolkit.commands.probe.walk", "toolkit.commands.epsilon.report"
    assert crossings({a: {b}, b: set()}) == [(a, b)]


@pytest.mark.parametrize("path", sorted((ROOT / "toolkit").rglob("*.py")), ids=lambda p: p.name)
def test_toolkit_never_imports_callbacks(path: Path) -> None:
    assert not {n for n in imported_packages(path) if n.split(".")[0] == "callbacks"}
