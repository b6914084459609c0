"""Only files of snapshots inside the Hub's cache are ever deleted, whatever the record says."""

import json
from pathlib import Path

import pytest
from huggingface_hub import constants

from toolkit.lm.checkpoints.fetched_files import FetchedFiles


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a repository, a snapshot of one linked file, and files around it."""
    folder = tmp_path / "cache"
    repository = folder / "models--a--b"
    snapshot = repository / "snapshots" / "commit"
    blob = repository / "blobs" / "hash"
    others = [
        repository / "other" / "commit",
        folder / "other" / "models--a--b" / "snapshots" / "commit",
    ]
    for path in (snapshot, blob.parent, folder / "models--c" / "snapshots" / "commit", *others):
        path.mkdir(parents=True)
    blob.write_text("weights")
    (snapshot / "weights").symlink_to(blob)
    for parent in (tmp_path, folder, repository, repository / "snapshots", *others):
        (parent / "precious").write_text("precious")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    return folder


def dropped(record: Path, names: dict[str, list[str]]) -> None:
    """Delete everything that a record names."""
    record.write_text(json.dumps(names))
    files = FetchedFiles(record)
    for folder in files.folders:
        files.drop(folder)


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_files_of_a_snapshot_are_deleted(cache: Path, tmp_path: Path) -> None:
    snapshot = cache / "models--a--b" / "snapshots" / "commit"
    before = contents(tmp_path)
    dropped(tmp_path / "record", {str(snapshot): ["weights"]})
    gone = ["blobs/hash", "snapshots/commit", "snapshots/commit/weights"]
    assert before - contents(tmp_path) == {f"cache/models--a--b/{name}" for name in gone}


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("models--a--b/snapshots/..", "precious"),
        ("models--a--b/snapshots/../snapshots/commit", "weights"),
        ("models--a--b/snapshots/commit/..", "precious"),
        ("models--a--b/snapshots/commit/../../..", "precious"),
        ("../cache/models--a--b/snapshots/commit", "weights"),
        ("models--c/../../cache/models--a--b/snapshots", "precious"),
        ("models--a--b/snapshots/commit", "../precious"),
        ("models--a--b/snapshots/commit", "../../precious"),
        ("models--a--b/snapshots/commit", "../../../../precious"),
        ("models--a--b/snapshots/commit", ".."),
        ("models--a--b/snapshots/commit", "."),
        ("models--a--b/snapshots/commit", ""),
        ("models--a--b/snapshots", "precious"),
        ("models--a--b", "precious"),
        ("models--a--b/other/commit", "precious"),
        ("other/models--a--b/snapshots/commit", "precious"),
        ("..", "precious"),
        ("", "precious"),
    ],
)
def test_a_record_of_other_places_deletes_nothing(
    cache: Path, tmp_path: Path, folder: str, name: str
) -> None:
    record = tmp_path / "record"
    record.touch()
    before = contents(tmp_path)
    # Not Path / folder alone: the record holds plain text, with its dots.
    dropped(record, {f"{cache}/{folder}": [name], f"{tmp_path}/{folder}": [name]})
    assert contents(tmp_path) == before


def test_links_out_of_the_cache_delete_nothing_there(cache: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    snapshots = cache / "models--a--b" / "snapshots"
    (snapshots / "linked").symlink_to(outside)
    (snapshots / "commit" / "own").symlink_to(outside / "precious")
    names = {str(snapshots / "linked"): ["precious"], str(snapshots / "commit"): ["own"]}
    dropped(tmp_path / "record", names)
    assert (outside / "precious").read_text() == "precious"
    assert not (snapshots / "commit" / "own").is_symlink()
