"""Files of a checkpoint on the Hub, and the cached files among them."""

import re
from collections.abc import Iterable
from typing import Any

from toolkit.lm.checkpoints.base import MissingCheckpointError
from toolkit.lm.hub import hub_answer, is_offline, repository_cache

CONFIG = "config.json"
_SMALL = re.compile(r"[\w.-]+\.(?:json|txt|jinja)|[\w.-]*tokenizer[\w.-]*\.model")
_SAFE = re.compile(r"model(?:-\d+-of-(\d+))?\.safetensors")
_PICKLED = re.compile(r"pytorch_model(?:-\d+-of-(\d+))?\.bin")


def references(repo: str) -> dict[str, str]:
    """Return the commit of each branch and tag; offline, of each cached branch and tag.

    Raises:
        ValueError: If the model does not exist or cannot be reached; the message says what to do.
    """
    if is_offline():
        return _cached_references(repo)
    from huggingface_hub import HfApi  # noqa: PLC0415

    listed = hub_answer(repo, lambda: HfApi().list_repo_refs(repo))
    if listed is None:
        raise ValueError(f"repo: expected a model on the Hub, got {repo}")
    return {ref.name: ref.target_commit for ref in [*listed.tags, *listed.branches]}


def file_sizes(repo: str, commit: str) -> dict[str, int]:
    """Return the size in bytes of each file of a commit; offline, of each cached file."""
    if is_offline():
        folder = repository_cache(repo) / "snapshots" / commit
        return {path.name: path.stat().st_size for path in folder.glob("*") if path.is_file()}
    from huggingface_hub import HfApi, errors  # noqa: PLC0415

    label = f"{repo}@{commit}"

    def request() -> Any:  # noqa: ANN401
        try:
            return HfApi().model_info(repo, revision=commit, files_metadata=True)
        except errors.RevisionNotFoundError:
            return None

    info = hub_answer(label, request)
    if info is None:
        raise MissingCheckpointError(f"revision: expected a revision of the model, got {label}")
    return {file.rfilename: file.size or 0 for file in info.siblings or ()}


def needed_files(names: Iterable[str], label: str, *, allow_pickle: bool) -> list[str]:
    """Return the files of a model and its tokenizer; safetensors are preferred to pickles.

    Raises:
        MissingCheckpointError: If the weights or some parts of them are missing.
        ValueError: If there are only pickled weights and they are not allowed.
    """
    names = sorted(names)
    weights, pickles = _weights(names, _SAFE), _weights(names, _PICKLED)
    if not weights and pickles and not allow_pickle:
        raise ValueError(
            f"checkpoint: expected safetensors in {label}, got {pickles[0]}; set allow_pickle to "
            "load pickled weights, of which no code is run"
        )
    chosen = weights or pickles
    if CONFIG not in names or not chosen:
        raise MissingCheckpointError(
            f"checkpoint: expected {CONFIG} and weights in {label}, got "
            f"{', '.join(names) or 'no files'}"
        )
    _check_parts(chosen, label)
    small = [name for name in names if _SMALL.fullmatch(name) and name != CONFIG]
    return [CONFIG, *small, *chosen]


def _cached_references(repo: str) -> dict[str, str]:
    cache = repository_cache(repo)
    commits = {
        path.relative_to(cache / "refs").as_posix(): path.read_text().strip()
        for path in sorted((cache / "refs").rglob("*"))
        if path.is_file()
    }
    commits = {name: c for name, c in commits.items() if (cache / "snapshots" / c).is_dir()}
    if not commits:
        raise ValueError(
            f"repo: expected a model in the cache, got {repo}, which is not; "
            "unset HF_HUB_OFFLINE or give a local folder"
        )
    return commits


def _weights(names: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    """Return the single file of weights if it exists, otherwise all parts."""
    matches = [match for name in names if (match := pattern.fullmatch(name))]
    single = [match[0] for match in matches if match[1] is None]
    return single or [match[0] for match in matches]


def _check_parts(weights: list[str], label: str) -> None:
    number = re.search(r"-of-(\d+)", weights[0])
    if number is not None and len(weights) != int(number[1]):
        raise MissingCheckpointError(
            f"checkpoint: expected {int(number[1])} parts of the weights of {label}, got "
            f"{', '.join(weights)}"
        )
