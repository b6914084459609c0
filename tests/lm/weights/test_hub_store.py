"""Embeddings of published models: what is asked of the Hub, what is cached, what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from tests.lm.fake_hub import FakeHub, commit_of, serve
from tests.lm.tiny_models import VOCABULARY, tiny_model, tiny_tokenizer
from toolkit.lm.architecture.families import language_model_parts
from toolkit.lm.architecture.parts import embedding_matrix
from toolkit.lm.weights.embedding import Matrix, read_embedding

REPOSITORY = "someone/tiny-neox"
IN = "gpt_neox.embed_in.weight"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two revisions in shards, other weights in each."""
    root = tmp_path_factory.mktemp("revisions")
    for seed, revision in enumerate(("main", "step1000")):
        tiny_model("gpt_neox", seed=seed).save_pretrained(root / revision, max_shard_size="8KB")
        tiny_tokenizer().save_pretrained(root / revision)
    return {revision: root / revision for revision in ("main", "step1000")}


@pytest.fixture
def hub(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeHub]:
    with serve(FakeHub({REPOSITORY: folders}), tmp_path / "cache", monkeypatch) as hub:
        yield hub


def embedding_of(seed: int, matrix: Matrix = "input") -> torch.Tensor:
    model = tiny_model("gpt_neox", seed=seed)
    return embedding_matrix(language_model_parts(model), matrix)


def shards(folder: Path) -> dict[str, str]:
    files: dict[str, str] = json.loads((folder / "model.safetensors.index.json").read_text())[
        "weight_map"
    ]
    return files


@pytest.mark.parametrize(
    ("source", "revision", "seed"),
    [
        (REPOSITORY, None, 0),
        (f"{REPOSITORY}@step1000", None, 1),
        (REPOSITORY, "step1000", 1),
        (REPOSITORY, commit_of("step1000"), 1),
    ],
    ids=["main", "in the name", "as an option", "commit"],
)
def test_only_the_matrix_is_fetched(
    hub: FakeHub, folders: dict[str, Path], source: str, revision: str | None, seed: int
) -> None:
    found = read_embedding(source, "output", revision=revision)
    torch.testing.assert_close(found.tensor, embedding_of(seed, "output"), rtol=0, atol=0)
    folder = folders["main" if seed == 0 else "step1000"]
    assert found.file == shards(folder)[found.name]
    assert found.commit == commit_of("main" if seed == 0 else "step1000")
    assert found.vocab_size == len(VOCABULARY)
    assert found.tied is False
    fetched = {request.file for request in hub.requests if request.method == "GET"}
    weights = {file for file in fetched if file.endswith(".safetensors")}
    # The first row of the input embedding tells that the two are not one matrix.
    assert weights == {found.file, shards(folder)[IN]}
    assert found.bytes_read == sum(hub.sent(file) for file in weights)


def test_a_shard_is_fetched_in_parts(
    hub: FakeHub, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost connection may not cost more than a part, and a header no more than it needs."""
    monkeypatch.setattr("toolkit.lm.weights.hub_store._BUFFER", 64)
    monkeypatch.setattr("toolkit.lm.weights.hub_store._LARGEST_PART", 1000)
    found = read_embedding(REPOSITORY)
    torch.testing.assert_close(found.tensor, embedding_of(0), rtol=0, atol=0)
    parts = [r.num_bytes for r in hub.requests if r.file == found.file and r.method == "GET"]
    assert max(parts) == 1000
    header = int.from_bytes((folders["main"] / found.file).read_bytes()[:8], "little")
    assert hub.sent(found.file) <= 8 + header + found.tensor.nbytes + 3 * 64


def test_offline_takes_what_is_cached(
    hub: FakeHub, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import hf_hub_download

    read_embedding(REPOSITORY)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    file = shards(folders["main"])[IN]
    with pytest.raises(ValueError, match=f"source: expected the file {file} in {REPOSITORY}"):
        read_embedding(REPOSITORY)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for shard in set(shards(folders["main"]).values()):
        hf_hub_download(REPOSITORY, shard)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.requests.clear()
    found = read_embedding(REPOSITORY)
    torch.testing.assert_close(found.tensor, embedding_of(0), rtol=0, atol=0)
    assert (found.commit, found.vocab_size) == (commit_of("main"), len(VOCABULARY))
    assert hub.requests == []


def test_offline_without_a_cache(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"none in the cache; unset HF_HUB_OFFLINE") as caught:
        read_embedding(REPOSITORY)
    assert "\n" not in str(caught.value)
    assert hub.requests == []


@pytest.mark.parametrize(
    ("source", "revision", "match"),
    [
        ("someone/unknown", None, r"source: expected a local path or a model on the Hub, got"),
        (
            f"{REPOSITORY}@step7",
            None,
            rf"revision: expected a revision of the model, got {REPOSITORY}@",
        ),
        (f"{REPOSITORY}@../../x", None, r"revision: expected a branch, tag or commit, got '\.\./"),
        (REPOSITORY, "../../x", r"revision: expected a branch, tag or commit, got '\.\./\.\./x'"),
        (REPOSITORY, "a/../../b", r"revision: expected a branch, tag or commit"),
        (REPOSITORY, "/etc", r"revision: expected a branch, tag or commit"),
        (f"{REPOSITORY}@main", "main", r"revision: expected one revision, got 'main' and someone"),
        ("../someone/unknown", None, r"source: expected a path or a model on the Hub"),
        ("a/b/c", None, r"source: expected a path or a model on the Hub, got 'a/b/c': no file"),
        ("a/b--c", None, r"^source: expected a path or a model on the Hub, got 'a/b--c': no file"),
        ("a/b-", None, r"^source: expected a path or a model on the Hub, got 'a/b-': no file"),
        ("a" * 97, None, r"^source: expected a path or a model on the Hub, got 'a{97}': no file"),
        ("missing.gguf", None, r"source: expected a path or a model on the Hub, got 'missing"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(
    hub: FakeHub, source: str, revision: str | None, match: str
) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        read_embedding(source, revision=revision)
    assert "\n" not in str(caught.value)


def test_a_refused_revision_is_not_even_asked_for(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="revision"):
        read_embedding(REPOSITORY, revision="../../x")
    assert hub.requests == []
    assert not (tmp_path / "cache").exists()


def test_a_hub_that_serves_no_parts(hub: FakeHub) -> None:
    hub.serves_parts = False
    with pytest.raises(ValueError, match="in parts, got the whole file; download it first"):
        read_embedding(REPOSITORY)


def test_a_missing_shard_is_named(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = "model.safetensors.index.json"
    for name in ("config.json", index):
        (tmp_path / name).write_bytes((folders["main"] / name).read_bytes())
    hub = FakeHub({REPOSITORY: {"main": tmp_path}})
    file = shards(folders["main"])[IN]
    match = f"expected the file {file} in {REPOSITORY}, got none"
    with serve(hub, tmp_path / "cache", monkeypatch), pytest.raises(ValueError, match=match):
        read_embedding(REPOSITORY)


def test_pickles_only(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_bytes((folders["main"] / "config.json").read_bytes())
    torch.save(tiny_model("gpt_neox").state_dict(), tmp_path / "pytorch_model.bin")
    hub = FakeHub({REPOSITORY: {"main": tmp_path}})
    with serve(hub, tmp_path / "cache", monkeypatch):
        with pytest.raises(ValueError, match=r"safetensors, got the pickled someone/.*model\.bin"):
            read_embedding(REPOSITORY)
        assert hub.sent("pytorch_model.bin") == 0
        found = read_embedding(REPOSITORY, allow_pickle=True)
    torch.testing.assert_close(found.tensor, embedding_of(0), rtol=0, atol=0)
    assert found.vocab_size is None


def test_a_hub_out_of_reach(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the client's attempts
    nobody = "http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", nobody)
    with pytest.raises(ValueError, match="Hub cannot be reached; give a local path") as caught:
        read_embedding(REPOSITORY)
    assert "\n" not in str(caught.value)


def test_a_connection_lost_on_the_way(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import utils

    def lost(*args: object, **kwargs: object) -> None:
        from huggingface_hub.errors import HfHubHTTPError

        (client_error, *_) = HfHubHTTPError.__bases__
        raise client_error("connection reset")

    monkeypatch.setattr(utils, "http_backoff", lost)
    with pytest.raises(ValueError, match=f"answer of the Hub about {REPOSITORY}/model-.*, got con"):
        read_embedding(REPOSITORY)
