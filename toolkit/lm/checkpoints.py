"""A checkpoint of a language model, and series of them: folders, Lightning files, models."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from toolkit.functional._checks import flag, optional, strings, valid_text
from toolkit.lm._steps import STEP_PLACE, name_before_step, step_at, step_in_name
from toolkit.lm.paths import check_different, matching_paths, model_name

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
        from toolkit.lm.local_checkpoints import local_checkpoint  # noqa: PLC0415

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


class Models(Series):
    """Different models side by side, such as the sizes of a family.

    Args:
        names: Folders, GGUF files, or names on the Hub, those as ``name@revision`` where it is not
            ``main``. The step is the one in the revision's name, such as ``step1000``, else 0.
        allow_pickle: Whether to load pickled weights where there are no safetensors.

    Raises:
        ValueError: If a name can be neither, or stands there twice.
    """

    def __init__(self, names: list[str], *, allow_pickle: bool = False) -> None:
        check_different("names", strings("names", names))
        self.names = [model_name(name) for name in names]
        self.allow_pickle = flag("allow_pickle", allow_pickle)

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
    from toolkit.lm.local_checkpoints import is_gguf  # noqa: PLC0415

    return (path / "config.json").is_file() or is_gguf(path)


def _place(checkpoint: Checkpoint) -> str:
    where = getattr(checkpoint, "folder", getattr(checkpoint, "path", checkpoint.revision))
    return str(where or checkpoint.label)
