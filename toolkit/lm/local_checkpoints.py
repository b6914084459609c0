"""Checkpoints on this machine: folders of Hugging Face models, and GGUF files."""

from dataclasses import dataclass
from pathlib import Path

import torch

from toolkit.lm.checkpoints import Checkpoint, OpenedModel, RemoteFile

_OTHER_WEIGHTS = (".bin", ".gguf")


@dataclass(frozen=True, kw_only=True)
class FolderCheckpoint(Checkpoint):
    """A folder of a Hugging Face model.

    Attributes:
        folder: The folder.
        allow_pickle: Whether to load pickled weights where there are no safetensors.
    """

    folder: Path
    allow_pickle: bool = False

    def missing(self) -> list[RemoteFile]:
        """Return nothing: all is here, or refused before anything is loaded."""
        check_kind_of_weights(self.folder, str(self.folder), allow_pickle=self.allow_pickle)
        return []

    def open(self, dtype: torch.dtype = torch.float32) -> OpenedModel:
        """Load the folder."""
        from toolkit.lm._loading import load_folder  # noqa: PLC0415

        return load_folder(
            self.folder, dtype, label=str(self.folder), allow_pickle=self.allow_pickle
        )


@dataclass(frozen=True, kw_only=True)
class GgufCheckpoint(Checkpoint):
    """A GGUF file, of a family that `transformers` can load from one.

    Attributes:
        path: The file.
    """

    path: Path

    def open(self, dtype: torch.dtype = torch.float32) -> OpenedModel:
        """Load the file; quantised weights are dequantised."""
        from toolkit.lm._loading import load_gguf  # noqa: PLC0415

        return load_gguf(self.path, dtype)


def check_kind_of_weights(folder: Path, label: str, *, allow_pickle: bool) -> None:
    """Refuse a folder whose weights are pickled, unless that is asked for, or not there.

    Args:
        folder: A folder of a Hugging Face model.
        label: What to call the model in messages.
        allow_pickle: Whether anything else is accepted.

    Raises:
        ValueError: If it holds no safetensors.
    """
    if allow_pickle or any(folder.glob("*.safetensors")):
        return
    others = sorted(path.name for path in folder.glob("*") if path.suffix in _OTHER_WEIGHTS)
    advice = "; convert them, name a GGUF file itself, or set allow_pickle" if others else ""
    raise ValueError(
        f"checkpoint: expected safetensors in {label}, got {', '.join(others) or 'no weights'}"
        f"{advice}"
    )


def is_gguf(path: Path) -> bool:
    """Whether there is a file that calls itself GGUF."""
    return path.suffix == ".gguf" and path.is_file()


def local_checkpoint(path: Path, *, name: str, step: int, allow_pickle: bool) -> Checkpoint:
    """Return the checkpoint in a GGUF file or a folder."""
    if is_gguf(path):
        return GgufCheckpoint(name=name, step=step, path=path)
    return FolderCheckpoint(name=name, step=step, folder=path, allow_pickle=allow_pickle)
