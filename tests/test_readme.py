"""README says what works: its files exist, its names are exported."""

import re
from pathlib import Path

import toolkit.functional

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()


def test_files_exist() -> None:
    named = re.findall(r"(?:configs|benchmarks|checkpoints)/\w+\.\w+", TEXT)
    assert named
    assert not [name for name in named if not (ROOT / name).exists()]


def test_every_configuration_is_mentioned() -> None:
    names = [f"configs/{config.name}" for config in (ROOT / "configs").glob("*.yaml")]
    assert names
    assert not [name for name in names if name not in TEXT]


def test_functions_are_exported() -> None:
    named = set(re.findall(r"`([a-z_]+[a-z0-9])`", TEXT)) - {"fit"}
    assert {"subspace_pga", "embedding_deviation"} <= named
    missing = [name for name in named if not hasattr(toolkit.functional, name)]
    assert missing == []
