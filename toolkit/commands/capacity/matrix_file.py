"""The embedding matrix in a file."""

from pathlib import Path
from pickle import UnpicklingError
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from toolkit.lm.weights.zip_checksums import check_file

# Errors that readers raise for damaged files and other content.
_UNREADABLE = (OSError, ValueError, TypeError, EOFError, RuntimeError, UnpicklingError, BadZipFile)


def read_matrix(path: Path) -> Tensor:
    """Return the matrix in a .npy or .pt file; no code of the file is run.

    Raises:
        ValueError: If it is another kind of file or holds no single matrix.
    """
    if path.suffix not in {".npy", ".pt"}:
        raise ValueError(f"embeddings: expected a .npy or .pt file, got {path}")
    if path.suffix == ".pt" and path.is_file():
        check_file(path, argument="embeddings")
    try:
        if path.suffix == ".npy":
            matrix = torch.from_numpy(np.load(path, allow_pickle=False))
        else:
            matrix = torch.load(path, map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        # Some messages have many lines.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"embeddings: expected a readable file, got {path}: {reason}") from error
    if not isinstance(matrix, Tensor) or matrix.ndim != 2:
        raise ValueError(f"embeddings: expected one matrix in {path}, got {type(matrix).__name__}")
    return matrix
