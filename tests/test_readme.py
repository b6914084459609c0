"""README says what works: its files exist, its names are exported."""

import re
from pathlib import Path

import callbacks
import toolkit.functional
import toolkit.models

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


def test_what_the_papers_define_is_exported() -> None:
    table = "".join(line for line in TEXT.splitlines() if "arxiv.org" in line)
    named = re.findall(r"`(\w+)`", table)
    packages = (toolkit.functional, toolkit.models, callbacks)
    assert {"subspace_pga", "ScalingLaw", "VectorPacking"} <= set(named)
    assert not [name for name in named if not any(hasattr(p, name) for p in packages)]
