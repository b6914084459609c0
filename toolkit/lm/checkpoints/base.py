"""A checkpoint of a language model, and series of checkpoints."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from toolkit.runs.identity import WeightsIdentity

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class OpenedModel(NamedTuple):
    """A checkpoint in memory.

    Attributes:
        model: The model, on the CPU, in eval mode.
        tokenizer: Its tokenizer, None if the checkpoint has none.
    """

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase | None"


class RemoteFile(NamedTuple):
    """A file of a checkpoint that is not on this machine yet.

    Attributes:
        path: Path of the file after the download.
        size: Size in bytes.
    """

    path: Path
    size: int


class MissingCheckpointError(ValueError):
    """A published checkpoint does not exist, or lacks its weights."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint(ABC):
    """Weights of a model at one step of its training.

    Attributes:
        name: Name of the model; all checkpoints of a curve share it.
        step: Number of optimiser updates behind the weights.
        revision: Revision of a published checkpoint, empty for others.
        commit: Commit of the revision, which fixes the content; empty for others.
    """

    name: str
    step: int
    revision: str = ""
    commit: str = ""

    @property
    def identity(self) -> WeightsIdentity:
        """Name, revision, commit and step of the weights."""
        return WeightsIdentity(self.name, self.revision, self.commit, self.step)

    @property
    def label(self) -> str:
        """Label of the checkpoint in messages."""
        return f"{self.name}@{self.revision}" if self.revision else f"{self.name}, step {self.step}"

    @property
    def cache_folder(self) -> Path | None:
        """Folder into which `fetch` downloads, None if there is nothing to download."""
        return None

    def missing(self) -> list[RemoteFile]:
        """Return the files that `fetch` has to download.

        Raises:
            MissingCheckpointError: If the checkpoint does not exist, or lacks its weights.
            ValueError: If the Hub does not answer, or the kind of weights is not allowed.
        """
        return []

    def fetch(self, files: Iterable[RemoteFile]) -> None:  # noqa: B027 - local checkpoints need no download
        """Download the files.

        Raises:
            ValueError: If a file cannot be downloaded.
        """

    @abstractmethod
    def open(self, dtype: torch.dtype = torch.float32) -> OpenedModel:
        """Load the model with weights of type ``dtype``; no code of the checkpoint is run.

        Raises:
            ValueError: If the model cannot be loaded; the message gives the reason.
        """


class Series(ABC):
    """Checkpoints that are measured one after another."""

    @abstractmethod
    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints, grouped by model and in rising order of steps.

        Raises:
            ValueError: If there are none, or two of them have the same step of a model.
        """


def in_order(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return the checkpoints by step, grouped by model; models keep the order of appearance.

    Raises:
        ValueError: If two checkpoints have the same step of a model.
    """
    models: dict[str, dict[int, Checkpoint]] = {}
    for checkpoint in checkpoints:
        steps = models.setdefault(checkpoint.name, {})
        other = steps.setdefault(checkpoint.step, checkpoint)
        if other is not checkpoint:
            raise ValueError(
                f"step: expected one checkpoint of {checkpoint.name} at step {checkpoint.step}, "
                f"got {_place(other)} and {_place(checkpoint)}; tell them apart by a narrower "
                "pattern or by name"
            )
    return [steps[step] for steps in models.values() for step in sorted(steps)]


def joined(series: "Series | Sequence[Series]") -> list[Checkpoint]:
    """Return the checkpoints of one or several series in one list.

    Raises:
        ValueError: If there are none, or two checkpoints have the same step of a model.
    """
    parts = [series] if isinstance(series, Series) else series
    return in_order(checkpoint for part in parts for checkpoint in part.checkpoints())


def _place(checkpoint: Checkpoint) -> str:
    where = getattr(checkpoint, "folder", getattr(checkpoint, "path", checkpoint.revision))
    return str(where or checkpoint.label)
