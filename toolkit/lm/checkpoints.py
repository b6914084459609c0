"""A checkpoint of a language model, and series of them: folders, Lightning files, models."""

import glob
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_STEP = re.compile(r"step[-_]?(\d+)")
_LAST_NUMBER = re.compile(r"(\d+)\D*$")


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


class LocalFolders(Series):
    """Folders of Hugging Face models, or GGUF files, with their step in the name.

    The step is the number after ``step``, as in ``hf/step-512`` or ``step-512.Q8_0.gguf``; a folder
    without that has its last number.

    Args:
        pattern: Path with wildcards, or several.
        name: Name of the model, by default the path of the folder that holds the checkpoints.
        allow_pickle: Whether to load pickled weights where there are no safetensors.
    """

    def __init__(
        self, pattern: str | list[str], *, name: str | None = None, allow_pickle: bool = False
    ) -> None:
        self.pattern = pattern
        self.name = name
        self.allow_pickle = allow_pickle

    def checkpoints(self) -> list[Checkpoint]:
        """Return the folders and files that match, by their steps."""
        from toolkit.lm.local_checkpoints import is_gguf, local_checkpoint  # noqa: PLC0415

        paths = [
            path
            for path in matching_paths(self.pattern)
            if (path / "config.json").is_file() or is_gguf(path)
        ]
        if not paths:
            raise ValueError(
                "pattern: expected folders with a config.json or GGUF files, got none at "
                f"{self.pattern}"
            )
        return in_order(
            local_checkpoint(
                path,
                name=self.name or str(path.parent),
                step=_step_in_name(path),
                allow_pickle=self.allow_pickle,
            )
            for path in paths
        )


class Models(Series):
    """Different models side by side, such as the sizes of a family.

    Args:
        names: Folders, GGUF files, or names on the Hub, those as ``name@revision`` where it is not
            ``main``. The step is the number in ``step<number>`` at the revision's end, else 0.
        allow_pickle: Whether to load pickled weights where there are no safetensors.

    Raises:
        ValueError: If a name can be neither, or stands there twice.
    """

    def __init__(self, names: list[str], *, allow_pickle: bool = False) -> None:
        if not names:
            raise ValueError("names: expected at least one model, got none")
        if len(set(names)) < len(names):
            raise ValueError(f"names: expected different models, got {', '.join(names)}")
        self.names = names
        self.allow_pickle = allow_pickle

    def checkpoints(self) -> list[Checkpoint]:
        """Return one checkpoint for each name, in their order."""
        return in_order(self._checkpoint(name) for name in self.names)

    def _checkpoint(self, name: str) -> Checkpoint:
        from toolkit.lm.hub_revisions import published_checkpoint  # noqa: PLC0415
        from toolkit.lm.local_checkpoints import is_gguf, local_checkpoint  # noqa: PLC0415

        path = Path(name).expanduser()
        if path.is_dir() or is_gguf(path):
            return local_checkpoint(path, name=name, step=0, allow_pickle=self.allow_pickle)
        if path.suffix == ".gguf":
            raise ValueError(f"names: expected an existing GGUF file, got {name}")
        return published_checkpoint(name, allow_pickle=self.allow_pickle)


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


def matching_paths(pattern: str | list[str]) -> list[Path]:
    """Return the paths that one or several patterns match, each once."""
    patterns = [pattern] if isinstance(pattern, str) else pattern
    found = [path for one in patterns for path in glob.glob(str(Path(one).expanduser()))]  # noqa: PTH207 - absolute patterns, too
    return [Path(path) for path in dict.fromkeys(found)]


def _step_in_name(path: Path) -> int:
    number = _STEP.search(path.name)
    if number is None and path.is_dir():
        # A file's last number may be that of its type, as in Q4_1.
        number = _LAST_NUMBER.search(path.name)
    if number is None:
        raise ValueError(f"pattern: expected the step in each name, got {path}")
    return int(number[1])


def _place(checkpoint: Checkpoint) -> str:
    where = getattr(checkpoint, "folder", getattr(checkpoint, "path", checkpoint.revision))
    return str(where or checkpoint.label)
