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
        tokenizer: Its tokenizer, None where the checkpoint has none.
    """

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase | None"


class RemoteFile(NamedTuple):
    """A file that a checkpoint needs and that is not on this machine yet.

    Attributes:
        path: Where it will lie once it is fetched.
        size: Bytes.
    """

    path: Path
    size: int


class MissingCheckpointError(ValueError):
    """A published checkpoint that is not there, or without its weights."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint(ABC):
    """Weights of a model at one step of its training.

    Attributes:
        name: Name of the model; all checkpoints of a curve share it.
        step: Optimiser updates behind the weights.
        revision: Revision of a published checkpoint, empty elsewhere.
        commit: Commit of that revision, which fixes the content; empty elsewhere.
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
        """What to call it in messages."""
        return f"{self.name}@{self.revision}" if self.revision else f"{self.name}, step {self.step}"

    @property
    def cache_folder(self) -> Path | None:
        """Where `fetch` puts the files, None where there is nothing to fetch."""
        return None

    def missing(self) -> list[RemoteFile]:
        """Return what `fetch` would have to download.

        Raises:
            MissingCheckpointError: If the checkpoint is not there, or without its weights.
            ValueError: If the Hub gives no answer, or the weights are of a kind not allowed.
        """
        return []

    def fetch(self, files: Iterable[RemoteFile]) -> None:  # noqa: B027 - most are here already
        """Download those files.

        Raises:
            ValueError: If one cannot be had.
        """

    @abstractmethod
    def open(self, dtype: torch.dtype = torch.float32) -> OpenedModel:
        """Load the model, its weights as ``dtype``; no code of the checkpoint is run.

        Raises:
            ValueError: If it cannot be loaded; the message says why.
        """


class Series(ABC):
    """Checkpoints to be measured one after the other."""

    @abstractmethod
    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints, those of one model together and in rising order of steps.

        Raises:
            ValueError: If there are none, or two of them claim the same step of a model.
        """


def in_order(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return them by step, models in the order in which they come first.

    Raises:
        ValueError: If two of them claim the same step of a model.
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
    """Return the checkpoints of one or several series, none of them twice.

    Raises:
        ValueError: If there are none, or two of them claim the same step of a model.
    """
    several = [series] if isinstance(series, Series) else series
    return in_order(checkpoint for one in several for checkpoint in one.checkpoints())


def _place(checkpoint: Checkpoint) -> str:
    where = getattr(checkpoint, "folder", getattr(checkpoint, "path", checkpoint.revision))
    return str(where or checkpoint.label)
