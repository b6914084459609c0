"""The files that a command is asked to write, refused before anything is computed for them."""

import os
from pathlib import Path

FIGURE_KINDS = (".png", ".svg", ".pdf")


def check_outputs(*, csv: Path | None = None, figure: Path | None = None) -> None:
    """Refuse files that cannot be written.

    Args:
        csv: File for a table, None for none.
        figure: File for a figure, None for none.

    Raises:
        ValueError: If one is a folder, or in no folder, or the figure's name has no known ending.
    """
    if figure is not None and figure.suffix not in FIGURE_KINDS:
        kinds = ", ".join(FIGURE_KINDS)
        raise ValueError(f"figure: expected a file name with {kinds}, got {figure}")
    for name, path in (("csv", csv), ("figure", figure)):
        if path is not None:
            _check_target(name, path)


def _check_target(name: str, path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"{name}: expected a file, got the folder {path}")
    if not path.parent.is_dir():
        raise ValueError(f"{name}: expected a file in a folder that exists, got {path}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"{name}: expected a file that can be written, got {path}")
