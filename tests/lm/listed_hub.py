"""The Hub on this machine, which also tells what revisions and files it has."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.lm.fake_hub import FakeHub, commit_of
from tests.lm.tiny_models import tiny_model, tiny_tokenizer


class ListedHub(FakeHub):
    """A `FakeHub` with the two listings that a series of checkpoints asks for.

    Attributes:
        vanished: Revisions that are listed and yet not there.
    """

    def __init__(self, repositories: Mapping[str, Mapping[str, Path]], scratch: Path) -> None:
        super().__init__(repositories)
        self.vanished: set[str] = set()
        self._answer_file = scratch / "answer.json"

    def find(self, url_path: str) -> tuple[str, Path | None]:
        path = unquote(urlsplit(url_path).path)
        if not path.startswith("/api/models/"):
            return super().find(url_path)
        name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
        is_listing = name.endswith("/refs")
        revisions = self.repositories.get(name.removesuffix("/refs"))
        if revisions is None:
            return "RepoNotFound", None
        if is_listing:
            return "", self._answer({"branches": self._references(revisions), "tags": []})
        for known, folder in revisions.items():
            if revision in {known, commit_of(known)} and known not in self.vanished:
                return "", self._answer(self._description(name, commit_of(known), folder))
        return "RevisionNotFound", None

    def _references(self, revisions: Mapping[str, Path]) -> list[dict[str, str]]:
        return [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit_of(name)}
            for name in revisions
        ]

    def _description(self, name: str, commit: str, folder: Path) -> dict[str, object]:
        files = [
            {"rfilename": path.name, "size": path.stat().st_size}
            for path in sorted(folder.iterdir())
        ]
        return {"id": name, "sha": commit, "siblings": files}

    def _answer(self, content: dict[str, object]) -> Path:
        self._answer_file.write_text(json.dumps({"converts": [], **content}))
        return self._answer_file


def save_revision(folder: Path, *, seed: int, **options: Any) -> Path:
    """Save a tiny model, other weights for each seed, and its tokenizer."""
    tiny_model(seed=seed).save_pretrained(folder, **options)
    tiny_tokenizer().save_pretrained(folder)
    return folder
