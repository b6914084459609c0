"""Requests to the Hub, with errors of one line."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")
_REVISION = re.compile(r"\w[\w.+-]*(?:/\w[\w.+-]*)*")


def is_repository_name(text: str) -> bool:
    """Whether ``text`` could be the name of a repository on the Hub."""
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    try:
        importlib.import_module("huggingface_hub.utils").validate_repo_id(text)
    except HFValidationError:
        return False
    return True


def check_revision(revision: str) -> None:
    """Raise a ValueError unless ``revision`` is a branch, tag or commit: it becomes a path."""
    if not _REVISION.fullmatch(revision) or ".." in revision:
        raise ValueError(f"revision: expected a branch, tag or commit, got {revision!r}")


def is_offline() -> bool:
    """Return whether the Hub's client works offline."""
    # Loaded here: local files are read without the client.
    from huggingface_hub import is_offline_mode  # noqa: PLC0415

    return is_offline_mode()


def hub_answer(label: str, request: Callable[[], _T]) -> _T | None:
    """Return the Hub's answer, None for a missing file; other failures become a ValueError."""
    from huggingface_hub import errors  # noqa: PLC0415

    # In some versions of the Hub's client, the errors of its HTTP client are not OSErrors.
    lost: tuple[Any, ...] = (OSError, *errors.HfHubHTTPError.__bases__)
    try:
        return request()
    except errors.LocalEntryNotFoundError as error:
        if not is_offline():
            raise ValueError(
                f"source: expected a local path or a model on the Hub, got {label}, and the Hub "
                "cannot be reached; give a local path or go online"
            ) from error
        return None
    except errors.EntryNotFoundError:
        return None
    except errors.GatedRepoError as error:
        raise ValueError(
            f"source: expected a model you may read, got {label}, which is gated; accept its "
            "terms on the Hub and log in"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ValueError(
            f"source: expected a local path or a model on the Hub, got {label}, which is neither; "
            "log in if it is private"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ValueError(f"revision: expected a revision of the model, got {label}") from error
    except lost as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"source: expected an answer of the Hub about {label}, got {reason[0]}"
        ) from error


def repository_cache(repo: str) -> Path:
    """Return the folder of one model in the Hub's cache."""
    constants: Any = importlib.import_module("huggingface_hub.constants")
    return Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}"
