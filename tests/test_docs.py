"""The documentation of the metrics is that of the declarations."""

import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.measures import MEASURES
from toolkit.measures.documentation import page, table_lines

ROOT = Path(__file__).parent.parent
WRITE = "python -m toolkit.measures.documentation > docs/metrics.md"


def test_the_page_of_metrics_is_written_from_the_declarations() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == page(MEASURES), WRITE


@pytest.mark.slow
def test_the_command_writes_the_page() -> None:
    command = [sys.executable, "-m", "toolkit.measures.documentation"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, page(MEASURES)), done.stderr


def test_readme_takes_its_lines_about_metrics_from_the_declarations() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    metrics = (*MEASURES, "capacity")
    shown = [
        line for line in text.splitlines() if line.startswith(tuple(f"| `{m}/" for m in metrics))
    ]
    assert set(shown) <= set(table_lines(MEASURES.values()))
    missing = [
        name for name in metrics if not any(line.startswith(f"| `{name}/") for line in shown)
    ]
    assert missing == []
