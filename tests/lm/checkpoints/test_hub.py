"""Series of published checkpoints: what is listed, fetched, kept and dropped again."""

import itertools
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from transformers import PreTrainedModel

from tests.lm.fake_hub import commit_of, serve
from tests.lm.listed_hub import ListedHub, save_revision
from tests.lm.tiny_models import tiny_model
from toolkit.lm.checkpoints.base import Checkpoint, MissingCheckpointError
from toolkit.lm.checkpoints.fetch_ahead import fetch_ahead
from toolkit.lm.checkpoints.hub import HubRevisions, published_checkpoint
from toolkit.lm.checkpoints.models import Models

REPOSITORY = "someone/tiny-neox"
STEPS = (0, 1, 8, 64, 512, 1000)
OLMO = r"stage1-step(\d+)-tokens\d+B"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Revisions step0 to step1000, of which step1 holds the weights of step0."""
    root = tmp_path_factory.mktemp("revisions")
    # Out of order, as a Hub lists them.
    for step in sorted(STEPS, key=str):
        save_revision(root / f"step{step}", seed=max(step - 1, 0))
    save_revision(root / "main", seed=999, max_shard_size="8KB")
    return {folder.name: folder for folder in sorted(root.iterdir())}


@pytest.fixture
def hub(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ListedHub]:
    hub = ListedHub({REPOSITORY: dict(folders)}, tmp_path)
    with serve(hub, tmp_path / "cache", monkeypatch):
        yield hub


def fetched(checkpoints: list[Checkpoint], tmp_path: Path, **options: float) -> list[Checkpoint]:
    done = []
    for checkpoint, error in fetch_ahead(checkpoints, record=tmp_path / "record.json", **options):
        assert error is None, error
        done.append(checkpoint)
    return done


def cached_bytes(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "cache").glob("*/blobs/*"))


def weights(checkpoint: Checkpoint) -> torch.Tensor:
    return embedding(checkpoint.open().model)


def embedding(model: PreTrainedModel) -> torch.Tensor:
    return model.get_parameter("gpt_neox.embed_in.weight").detach()


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ("all", list(STEPS)),
        ("log", list(STEPS)),
        ([1000, 8], [8, 1000]),
        ("0:1000:500", [0, 1000]),
    ],
    ids=["all", "log", "list", "range"],
)
def test_revisions_come_in_numeric_order(
    hub: ListedHub, steps: str | list[int], wanted: list[int]
) -> None:
    if steps == "0:1000:500":
        with pytest.warns(UserWarning, match=r"steps: 1 not among the revisions of .*: 500"):
            checkpoints = HubRevisions(REPOSITORY, steps=steps).checkpoints()
    else:
        checkpoints = HubRevisions(REPOSITORY, steps=steps).checkpoints()
    assert [checkpoint.step for checkpoint in checkpoints] == wanted
    assert [checkpoint.revision for checkpoint in checkpoints] == [f"step{s}" for s in wanted]
    assert checkpoints[0].commit == commit_of(f"step{wanted[0]}")
    assert not [request for request in hub.requests if "resolve" in request.file]


def test_missing_revisions_are_one_warning_or_an_error(hub: ListedHub) -> None:
    with pytest.warns(UserWarning, match="steps: 148 not among the revisions of") as caught:
        checkpoints = HubRevisions(REPOSITORY, steps="pythia").checkpoints()
    assert [checkpoint.step for checkpoint in checkpoints] == list(STEPS)
    assert len(caught) == 1
    assert str(caught[0].message).endswith("2, 4, 16, 32, 128, 256, ...; the others are measured")
    with pytest.raises(MissingCheckpointError, match="steps: 148 not among"):
        HubRevisions(REPOSITORY, steps="pythia", strict=True).checkpoints()
    with (
        pytest.raises(ValueError, match=r"expected steps that .* has, got \[3\]"),
        pytest.warns(UserWarning, match="steps: 1 not among"),
    ):
        HubRevisions(REPOSITORY, steps=[3]).checkpoints()


def test_names_of_another_kind(
    tmp_path: Path, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["stage1-step20-tokens1B", "stage1-step3-tokens1B", "stage2-step3-tokens1B", "main"]
    hub = ListedHub({REPOSITORY: dict.fromkeys(names, folders["step0"])}, tmp_path)
    with serve(hub, tmp_path / "cache", monkeypatch):
        checkpoints = HubRevisions(REPOSITORY, pattern=OLMO).checkpoints()
        assert [checkpoint.revision for checkpoint in checkpoints] == [names[1], names[0]]
        assert published_checkpoint(f"{REPOSITORY}@{names[0]}").step == 20
        with pytest.raises(ValueError, match=r"one checkpoint of .* at step 3, got stage1-.* and"):
            HubRevisions(REPOSITORY, pattern=r"stage\d-step(\d+)-tokens1B").checkpoints()
        with pytest.raises(ValueError, match=r"expected revisions of .* that match x"):
            HubRevisions(REPOSITORY, pattern=r"x(\d+)").checkpoints()
        with pytest.raises(
            ValueError, match="pattern: expected a group that is the step, got 'ste"
        ):
            HubRevisions(REPOSITORY, pattern=r"stage\d-(\w+)-tokens\d+B").checkpoints()


def test_a_revision_that_is_a_path_is_refused(
    tmp_path: Path, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = ListedHub({REPOSITORY: {"../../step1": folders["step0"]}}, tmp_path)
    with (
        serve(hub, tmp_path / "cache", monkeypatch),
        pytest.raises(ValueError, match=r"expected a branch, tag or commit, got '../../step1'"),
    ):
        HubRevisions(REPOSITORY, pattern=r".*step(\d+)").checkpoints()
    assert not (tmp_path / "cache").exists()


def test_what_is_fetched_is_opened(hub: ListedHub, tmp_path: Path) -> None:
    checkpoints = HubRevisions(REPOSITORY, steps=[0, 1, 1000]).checkpoints()
    missing = checkpoints[2].missing()
    assert {file.path.name for file in missing} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    for file in missing:
        assert (
            file.size == (hub.repositories[REPOSITORY]["step1000"] / file.path.name).stat().st_size
        )
    first, same, last = fetched(checkpoints, tmp_path)
    assert not last.missing()
    assert torch.equal(weights(first), weights(same))
    assert torch.equal(weights(last), embedding(tiny_model(seed=999)))
    # The same content under two revisions is downloaded once.
    assert hub.sent("model.safetensors") == 2 * next(
        file.size for file in missing if file.path.name == "model.safetensors"
    )


def test_nothing_is_fetched_twice(hub: ListedHub, tmp_path: Path) -> None:
    for _ in range(2):
        fetched(HubRevisions(REPOSITORY, steps=[0, 8]).checkpoints(), tmp_path)
    assert len([r for r in hub.requests if r.file == "model.safetensors" and r.num_bytes]) == 2


def test_a_sharded_model_by_name(hub: ListedHub, tmp_path: Path) -> None:
    (main,) = fetched(Models([REPOSITORY]).checkpoints(), tmp_path)
    assert (main.step, main.revision) == (0, "main")
    assert torch.equal(weights(main), embedding(tiny_model(seed=999)))
    names = [f"{REPOSITORY}@step8", f"{REPOSITORY}@{commit_of('step8')}"]
    assert [Models([name]).checkpoints()[0].step for name in names] == [8, 0]
    assert {Models([name]).checkpoints()[0].commit for name in names} == {commit_of("step8")}
    with pytest.raises(
        MissingCheckpointError, match=r"expected a revision that the model has, got .*@x"
    ):
        Models([f"{REPOSITORY}@x"]).checkpoints()
    with pytest.raises(ValueError, match="got someone/else"):
        Models(["someone/else"]).checkpoints()


@pytest.mark.parametrize(
    ("broken", "kind", "message"),
    [
        ("vanished", MissingCheckpointError, "revision: expected a revision of the model"),
        ("no weights", MissingCheckpointError, "expected config.json and weights"),
        ("a part", MissingCheckpointError, r"expected \d+ parts of the weights"),
        ("pickle", ValueError, "expected safetensors in .*step8, got pytorch_model.bin; set allow"),
    ],
    ids=lambda value: str(value) if isinstance(value, str) and len(value) < 12 else "",
)
def test_the_error_comes_with_its_checkpoint(
    hub: ListedHub, tmp_path: Path, broken: str, kind: type[ValueError], message: str
) -> None:
    folder = tmp_path / "broken"
    source = "main" if broken == "a part" else "step8"
    shutil.copytree(hub.repositories[REPOSITORY][source], folder)
    weight_file = next(folder.glob("*.safetensors"))
    if broken == "vanished":
        hub.vanished.add("step8")
    elif broken == "pickle":
        weight_file.rename(folder / "pytorch_model.bin")
    else:
        weight_file.unlink()
    hub.repositories = {REPOSITORY: {**hub.repositories[REPOSITORY], "step8": folder}}
    checkpoints = HubRevisions(REPOSITORY, steps=[1, 8, 64]).checkpoints()
    found = list(fetch_ahead(checkpoints, record=tmp_path / "record.json"))
    assert [error for _, error in found if error is not None] == [found[1].error]
    assert isinstance(found[1].error, kind)
    with pytest.raises(kind, match=message):
        raise found[1].error


def test_a_revision_that_moves_is_an_error(hub: ListedHub, tmp_path: Path) -> None:
    (checkpoint,) = HubRevisions(REPOSITORY, steps=[8]).checkpoints()
    moved = type(checkpoint)(**{**vars(checkpoint), "commit": commit_of("step64")})
    with pytest.raises(ValueError, match=r"step8 at commit .*, but it has moved; start again"):
        moved.fetch(moved.missing())


def test_offline_the_cache_is_all_there_is(
    hub: ListedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched(HubRevisions(REPOSITORY, steps=[0, 8]).checkpoints(), tmp_path)
    hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    series = HubRevisions(REPOSITORY, steps=[0, 8, 64])
    with pytest.warns(UserWarning, match=r"steps: 1 not in the cache of .*: 64"):
        checkpoints = series.checkpoints()
    assert [checkpoint.commit for checkpoint in checkpoints] == list(
        map(commit_of, ["step0", "step8"])
    )
    assert torch.equal(weights(fetched(checkpoints, tmp_path)[1]), embedding(tiny_model(seed=7)))
    assert not hub.requests
    with pytest.raises(ValueError, match="expected a model in the cache, got someone/else"):
        HubRevisions("someone/else").checkpoints()


def test_disk_stays_within_its_limit(hub: ListedHub, tmp_path: Path) -> None:
    checkpoints = HubRevisions(REPOSITORY, steps="all").checkpoints()
    size = sum(file.size for file in checkpoints[-1].missing())
    limit = 2.5 * size
    seen, sizes = [], []
    for checkpoint, error in fetch_ahead(
        checkpoints, record=tmp_path / "record.json", max_disk_gb=limit / 1e9
    ):
        assert error is None
        seen.append(weights(checkpoint))
        sizes.append(cached_bytes(tmp_path))
    assert len(seen) == len(STEPS)
    assert max(sizes) <= limit
    assert torch.equal(seen[-1], embedding(tiny_model(seed=999)))
    # What is left is known to the next walk, which can remove it.
    assert json.loads((tmp_path / "record.json").read_text())


def test_room_for_one_is_enough(hub: ListedHub, tmp_path: Path) -> None:
    checkpoints = HubRevisions(REPOSITORY, steps=[8, 64, 512]).checkpoints()
    size = max(sum(f.size for f in checkpoint.missing()) for checkpoint in checkpoints)
    fetched(checkpoints, tmp_path, max_disk_gb=1.01 * size / 1e9)
    assert cached_bytes(tmp_path) <= 1.01 * size
    found = list(fetch_ahead(checkpoints[:1], record=tmp_path / "r", max_disk_gb=0.5 * size / 1e9))
    with pytest.raises(ValueError, match=r"max_disk_gb: expected room for .*step8"):
        raise found[0].error or AssertionError
    with pytest.raises(ValueError, match="max_disk_gb: expected a positive number, got 0"):
        next(fetch_ahead([], record=tmp_path / "r", max_disk_gb=0))


def test_only_what_the_walk_fetched_is_dropped(hub: ListedHub, tmp_path: Path) -> None:
    own, *others = HubRevisions(REPOSITORY, steps=[1, 8, 64]).checkpoints()
    own.fetch(own.missing())
    same = HubRevisions(REPOSITORY, steps=[0]).checkpoints()
    before = cached_bytes(tmp_path)
    size = sum(file.size for file in others[0].missing())
    # step0 shares the weights of step1, which were here before.
    fetched([*same, *others], tmp_path, max_disk_gb=1.2 * size / 1e9)
    assert not own.missing()
    assert weights(own) is not None
    assert same[0].missing()
    assert others[0].missing()
    assert not others[1].missing()
    assert cached_bytes(tmp_path) <= before + 1.2 * size
    references = {path.name for path in (tmp_path / "cache").rglob("refs/*")}
    assert references == {"step1", "step64"}


def test_a_walk_that_was_killed_knows_what_it_fetched(hub: ListedHub, tmp_path: Path) -> None:
    checkpoints = HubRevisions(REPOSITORY, steps=[8, 64]).checkpoints()
    size = sum(file.size for file in checkpoints[0].missing())
    walk = fetch_ahead(checkpoints, record=tmp_path / "record.json", max_disk_gb=1.2 * size / 1e9)
    next(walk)
    fetched(checkpoints[1:], tmp_path, max_disk_gb=1.2 * size / 1e9)
    assert checkpoints[0].missing()
    walk.close()


def test_a_record_about_other_folders_removes_nothing(hub: ListedHub, tmp_path: Path) -> None:
    precious = tmp_path / "elsewhere" / "snapshots" / "x" / "file"
    precious.parent.mkdir(parents=True)
    precious.write_text("precious")
    names = {str(precious.parent): ["file"]}
    (tmp_path / "record.json").write_text(json.dumps(names))
    checkpoints = HubRevisions(REPOSITORY, steps=[8, 64]).checkpoints()
    size = sum(file.size for file in checkpoints[0].missing())
    fetched(checkpoints, tmp_path, max_disk_gb=1.01 * size / 1e9)
    assert precious.exists()


def test_the_next_one_is_fetched_meanwhile(hub: ListedHub, tmp_path: Path) -> None:
    checkpoints = HubRevisions(REPOSITORY, steps=[0, 8, 64]).checkpoints()
    walk = fetch_ahead(checkpoints, record=tmp_path / "record.json")
    next(walk)
    for _ in itertools.repeat(None, 200):
        if not checkpoints[1].missing():
            break
        threading.Event().wait(0.02)
    assert not checkpoints[1].missing()
    assert checkpoints[2].missing()
    walk.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repo": "../x"}, "repo: expected the name of a model"),
        ({"steps": "sometimes"}, "steps: expected 'all', 'log', 'pythia'"),
        ({"steps": []}, "steps: expected"),
        ({"steps": [-1]}, "steps: expected"),
        ({"steps": "0:10:0"}, "steps: expected"),
        ({"pattern": "("}, "pattern: expected a regular expression"),
        ({"pattern": "step"}, "pattern: expected one group"),
    ],
    ids=str,
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HubRevisions(**{"repo": REPOSITORY, **arguments})  # type: ignore[arg-type]
