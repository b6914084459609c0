"""Published checkpoints: revisions of a repository on the Hugging Face Hub."""

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from typing_extensions import override

from toolkit.functional._checks import flag, shown, shown_list, valid_text
from toolkit.lm.checkpoints import hub_files as _hub_files
from toolkit.lm.checkpoints.base import (
    Checkpoint,
    MissingCheckpointError,
    OpenedModel,
    RemoteFile,
    Series,
    in_order,
)
from toolkit.lm.checkpoints.steps import check_steps, step_in_name, wanted_steps
from toolkit.lm.hub import (
    check_revision,
    hub_answer,
    is_offline,
    is_repository_name,
    repository_cache,
)

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHOWN = 6


@dataclass(frozen=True, kw_only=True)
class HubCheckpoint(Checkpoint):
    """A revision of a repository on the Hub; ``name`` is the repository.

    Its files are downloaded into the Hub's own cache. Offline, only cached files exist.

    Attributes:
        allow_pickle: Whether to load pickled weights if there are no safetensors.
        strict: Whether a walk ends if the revision turns out to be missing or incomplete.
    """

    allow_pickle: bool = False
    strict: bool = True

    @property
    @override
    def cache_folder(self) -> Path:
        return repository_cache(self.name) / "snapshots" / self.commit

    @override
    def missing(self) -> list[RemoteFile]:
        sizes = _hub_files.file_sizes(self.name, self.commit)
        needed = _hub_files.needed_files(sizes, self.label, allow_pickle=self.allow_pickle)
        paths = ((self.cache_folder / name, name) for name in needed)
        return [RemoteFile(path, sizes[name]) for path, name in paths if not path.is_file()]

    @override
    def fetch(self, files: Iterable[RemoteFile]) -> None:
        for file in files:
            # A download by the name of the revision also stores its commit in the cache.
            by_name = file.path.name == _hub_files.CONFIG
            path = self._download(file.path.name, self.revision if by_name else self.commit)
            if path is None or path.parent.name != self.commit:
                raise ValueError(
                    f"revision: expected {self.label} at commit {self.commit}, but it has moved; "
                    "start again"
                )

    @override
    def open(self, dtype: torch.dtype = torch.float32) -> OpenedModel:
        from toolkit.lm.checkpoints.loading import load_folder  # noqa: PLC0415

        return load_folder(
            self.cache_folder, dtype, label=self.label, allow_pickle=self.allow_pickle
        )

    def _download(self, name: str, revision: str) -> Path | None:
        from huggingface_hub import hf_hub_download  # noqa: PLC0415

        path = hub_answer(self.label, lambda: hf_hub_download(self.name, name, revision=revision))
        return None if path is None else Path(path)


class HubRevisions(Series):
    r"""Revisions of a repository on the Hub, such as Pythia's ``step0`` to ``step143000``.

    Args:
        repo: Name of the repository.
        steps: ``log`` for the steps nearest to 0, 1, 2, 4, ..., 512, 1000, 2000, 4000, ... and
            the last step; ``all``; ``pythia`` for the 154 steps of Pythia; ``FIRST:LAST:EVERY``;
            or a list.
        pattern: Regular expression for the whole name of a revision, with one group for the step;
            for OLMo ``stage1-step(\d+)-tokens\d+B``.
        strict: Whether a selected step that is missing or incomplete is an error instead of a
            warning.
        allow_pickle: Whether to load pickled weights if there are no safetensors.

    Raises:
        ValueError: If an argument has another value.
    """

    def __init__(
        self,
        repo: str,
        *,
        steps: str | list[int] = "log",
        pattern: str = r"step(\d+)",
        strict: bool = False,
        allow_pickle: bool = False,
    ) -> None:
        _check_repository(repo)
        check_steps(steps)
        valid_text("pattern", pattern)
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"pattern: expected a regular expression, got {pattern!r}") from error
        if groups != 1:
            raise ValueError(f"pattern: expected one group, for the step, got {pattern!r}")
        self.repo = repo
        self.steps = steps
        self.pattern = pattern
        self.strict = flag("strict", strict)
        self.allow_pickle = flag("allow_pickle", allow_pickle)

    @override
    def checkpoints(self) -> list[Checkpoint]:
        """Return the selected revisions; offline, select among the cached revisions."""
        references = _hub_files.references(self.repo)
        published = in_order(self._published(references))
        if not published:
            raise ValueError(
                f"pattern: expected revisions of {self.repo} that match {self.pattern}, got none "
                f"among {shown_list(sorted(references), _SHOWN)}; give a pattern that names the "
                "step"
            )
        available = {checkpoint.step: checkpoint for checkpoint in published}
        wanted = wanted_steps(self.steps, available)
        absent = [step for step in wanted if step not in available]
        if absent:
            self._report(absent)
        chosen = [available[step] for step in wanted if step in available]
        if not chosen:
            raise ValueError(f"steps: expected steps that {self.repo} has, got {self.steps}")
        return chosen

    def _published(self, references: Mapping[str, str]) -> Iterable[Checkpoint]:
        for name, commit in references.items():
            match = re.fullmatch(self.pattern, name)
            if match is not None:
                check_revision(name)
                if match[1] is None or not match[1].isdecimal():
                    raise ValueError(
                        f"pattern: expected a group that is the step, got {match[1]!r} in {name} "
                        f"by {self.pattern}"
                    )
                yield HubCheckpoint(
                    name=self.repo,
                    step=int(match[1]),
                    revision=name,
                    commit=commit,
                    allow_pickle=self.allow_pickle,
                    strict=self.strict,
                )

    def _report(self, absent: list[int]) -> None:
        where = "in the cache of" if is_offline() else "among the revisions of"
        message = f"steps: {len(absent)} not {where} {self.repo}: {shown_list(absent, _SHOWN)}"
        if self.strict:
            raise MissingCheckpointError(message)
        warnings.warn(f"{message}; the others are measured", stacklevel=3)


def published_checkpoint(name: str, *, allow_pickle: bool = False) -> HubCheckpoint:
    """Return the checkpoint ``repository@revision``; without a revision, ``main``.

    Raises:
        ValueError: If the model or revision does not exist, or the Hub cannot be reached.
    """
    repo, _, revision = valid_text("name", name).partition("@")
    revision = revision or "main"
    _check_repository(repo)
    check_revision(revision)
    is_commit = _COMMIT.fullmatch(revision) is not None
    commit = revision if is_commit else _hub_files.references(repo).get(revision)
    if commit is None:
        where = "the cache holds" if is_offline() else "the model has"
        raise MissingCheckpointError(f"revision: expected a revision that {where}, got {name}")
    return HubCheckpoint(
        name=repo,
        step=step_in_name(revision) or 0,
        revision=revision,
        commit=commit,
        allow_pickle=allow_pickle,
    )


def _check_repository(repo: str) -> None:
    if not isinstance(repo, str) or not is_repository_name(repo):
        raise ValueError(
            f"repo: expected the name of a model on the Hub or a folder, got {shown(repo)}"
        )
