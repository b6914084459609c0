"""Checkpoints on this machine: folders of Hugging Face models, GGUF files, and series of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from toolkit.functional._checks import flag, optional, strings, valid_text
from toolkit.lm.checkpoints.base import Checkpoint, OpenedModel, RemoteFile, Series, in_order
from toolkit.lm.checkpoints.loading import check_kind_of_weights, load_folder, load_gguf
from toolkit.lm.checkpoints.steps import STEP_PLACE, name_before_step, step_at, step_in_name
from toolkit.lm.paths import matching_paths


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
        return load_gguf(self.path, dtype)


def is_gguf(path: Path) -> bool:
    """Whether there is a file that calls itself GGUF."""
    return path.suffix == ".gguf" and path.is_file()


def local_checkpoint(path: Path, *, name: str, step: int, allow_pickle: bool) -> Checkpoint:
    """Return the checkpoint in a GGUF file or a folder."""
    if is_gguf(path):
        return GgufCheckpoint(name=name, step=step, path=path)
    return FolderCheckpoint(name=name, step=step, folder=path, allow_pickle=allow_pickle)


class LocalFolders(Series):
    """Folders of Hugging Face models, or GGUF files, with their step in the name.

    Known names are those of Lightning (``epoch=E-step=N``), Hugging Face's Trainer
    (``checkpoint-N``), OLMo (``stepN-tokens4B``), Pythia (``stepN``) and the toolkit
    (``hf/step-N``, ``step-N.Q8_0.gguf``). Of others the pattern says where the step stands.

    Args:
        pattern: Path with wildcards, or several; ``{step}`` once in it, as in ``iter_{step}``,
            stands for the step. Brackets of an existing path are no wildcards.
        name: Name of the model, by default the path of the folder that holds the checkpoints.
        allow_pickle: Whether to load pickled weights where there are no safetensors.

    Raises:
        ValueError: If a pattern has ``{step}`` twice.
    """

    def __init__(
        self, pattern: str | list[str], *, name: str | None = None, allow_pickle: bool = False
    ) -> None:
        self.patterns = strings("pattern", [pattern] if isinstance(pattern, str) else pattern)
        for one in self.patterns:
            if one.count(STEP_PLACE) > 1:
                raise ValueError(f"pattern: expected {STEP_PLACE} once, got {one}")
        self.name = optional(valid_text, "name", name)
        self.allow_pickle = flag("allow_pickle", allow_pickle)

    def checkpoints(self) -> list[Checkpoint]:
        """Return the folders and files that match, by their steps."""
        found: dict[Path, Checkpoint] = {}
        for pattern in self.patterns:
            for path in matching_paths(pattern.replace(STEP_PLACE, "*")):
                if path.absolute() not in found and _is_model(path):
                    found[path.absolute()] = self._checkpoint(path, pattern)
        if not found:
            raise ValueError(
                "pattern: expected folders with a config.json or GGUF files, got none at "
                f"{', '.join(self.patterns)}"
            )
        if self.name is None:
            _check_one_run(path for path in found if step_in_name(path.name) is not None)
        return in_order(found.values())

    def _checkpoint(self, path: Path, pattern: str) -> Checkpoint:
        placed = STEP_PLACE in pattern
        step = step_at(path, pattern) if placed else step_in_name(path.name)
        if step is None:
            raise ValueError(
                f"pattern: expected the step in each name, got {path}; write {STEP_PLACE} for it "
                f"once in the pattern, as in {path.parent / STEP_PLACE}, or take Models for "
                "different models"
            )
        name = self.name or str(path.parent)
        return local_checkpoint(path, name=name, step=step, allow_pickle=self.allow_pickle)


def _check_one_run(paths: Iterable[Path]) -> None:
    """Raise a ValueError if names beside each other differ before the step: runs of two models."""
    first: dict[Path, Path] = {}
    for path in paths:
        other = first.setdefault(path.parent, path)
        if name_before_step(path.name) != name_before_step(other.name):
            raise ValueError(
                f"pattern: expected the steps of one model, got {other} and {path}; give a "
                "narrower pattern, or a name if they are one model"
            )


def _is_model(path: Path) -> bool:
    return (path / "config.json").is_file() or is_gguf(path)
