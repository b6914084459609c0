"""Checkpoints on this machine: folders of Hugging Face models, GGUF files, series of both."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from typing_extensions import override

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
        allow_pickle: Whether to load pickled weights if there are no safetensors.
    """

    folder: Path
    allow_pickle: bool = False

    @override
    def missing(self) -> list[RemoteFile]:
        """Return no files, as all are here; refuse a kind of weights that is not allowed."""
        check_kind_of_weights(self.folder, str(self.folder), allow_pickle=self.allow_pickle)
        return []

    @override
    def open(self, dtype: torch.dtype = torch.float32) -> OpenedModel:
        return load_folder(
            self.folder, dtype, label=str(self.folder), allow_pickle=self.allow_pickle
        )


@dataclass(frozen=True, kw_only=True)
class GgufCheckpoint(Checkpoint):
    """A GGUF file of a family that `transformers` can load from GGUF.

    Attributes:
        path: The file.
    """

    path: Path

    @override
    def open(self, dtype: torch.dtype = torch.float32) -> OpenedModel:
        """Load the file; quantised weights are dequantised."""
        return load_gguf(self.path, dtype)


def is_gguf(path: Path) -> bool:
    """Whether the path is an existing file with the suffix ``.gguf``."""
    return path.suffix == ".gguf" and path.is_file()


def local_checkpoint(path: Path, *, name: str, step: int, allow_pickle: bool) -> Checkpoint:
    """Return the checkpoint of a GGUF file or a folder."""
    if is_gguf(path):
        return GgufCheckpoint(name=name, step=step, path=path)
    return FolderCheckpoint(name=name, step=step, folder=path, allow_pickle=allow_pickle)


class LocalFolders(Series):
    """Folders of Hugging Face models, or GGUF files, with the step in the name.

    The step is recognised in names from Lightning (``epoch=E-step=N``), Hugging Face's Trainer
    (``checkpoint-N``), OLMo (``stepN-tokens4B``), Pythia (``stepN``) and the toolkit
    (``hf/step-N``, ``step-N.Q8_0.gguf``). For other names, mark the step in the pattern.

    Args:
        pattern: Path with wildcards, or a list of them. ``{step}``, at most once in a path as in
            ``iter_{step}``, marks the step. Brackets of an existing path are not wildcards.
        name: Name of the model, by default the path of the folder of the checkpoints.
        allow_pickle: Whether to load pickled weights if there are no safetensors.

    Raises:
        ValueError: If a pattern has ``{step}`` twice.
    """

    def __init__(
        self, pattern: str | list[str], *, name: str | None = None, allow_pickle: bool = False
    ) -> None:
        self.patterns = strings("pattern", [pattern] if isinstance(pattern, str) else pattern)
        for path in self.patterns:
            if path.count(STEP_PLACE) > 1:
                raise ValueError(f"pattern: expected {STEP_PLACE} once, got {path}")
        self.name = optional(valid_text, "name", name)
        self.allow_pickle = flag("allow_pickle", allow_pickle)

    @override
    def checkpoints(self) -> list[Checkpoint]:
        by_path: dict[Path, Checkpoint] = {}
        for pattern in self.patterns:
            for path in matching_paths(pattern.replace(STEP_PLACE, "*")):
                if path.absolute() not in by_path and _is_model(path):
                    by_path[path.absolute()] = self._checkpoint(path, pattern)
        if not by_path:
            raise ValueError(
                "pattern: expected folders with a config.json or GGUF files, got none at "
                f"{', '.join(self.patterns)}"
            )
        if self.name is None:
            _check_one_run(path for path in by_path if step_in_name(path.name) is not None)
        return in_order(by_path.values())

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
    """Raise a ValueError if names in a folder differ before the step: these are two runs."""
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
