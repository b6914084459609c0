"""Token blocks: whole documents per part, batches by position, a cache that is never half full."""

import math
import platform
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch

from tests.data.tiny_corpus import tiny_corpus, write_folder
from toolkit.data import TextCorpus
from toolkit.data.documents import read_documents
from toolkit.data.token_blocks import (
    Blocks,
    ShuffledBlocks,
    TokenBatch,
    split_blocks,
    unigram_entropy,
)
from toolkit.data.tokenized_corpus import TokenizedCorpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "texts")


def ready(source: Path, **options: Any) -> TextCorpus:
    data = tiny_corpus(source, **options)
    data.prepare_data()
    data.setup("fit")
    return data


def documents_of(data: TextCorpus, blocks: Blocks) -> list[str]:
    assert data.tokenizer is not None
    text = data.tokenizer.decode(blocks.ravel().tolist())
    assert isinstance(text, str)
    return text.split("<|endoftext|>")


def ids(loader: Any) -> list[list[int]]:
    return [row for batch in loader for row in batch["input_ids"].tolist()]


def test_blocks_are_the_documents(folder: Path) -> None:
    data = ready(folder)
    texts = {file.read_text() for file in folder.iterdir()}
    seen: set[str] = set()
    for part in data.parts:
        assert part.shape[1] == 16
        documents = documents_of(data, part)
        assert set(documents[:-1]) <= texts
        assert not seen & set(documents[:-1])
        seen |= set(documents[:-1])
    # The last document of a part is cut where its last block ends.
    assert len(seen) >= len(texts) - 3


def test_parts_have_the_sizes_asked_for(folder: Path) -> None:
    data = ready(folder)
    total = data.conditions["corpus_tokens"]
    for part in (data.parts.validation, data.parts.test):
        assert 0.05 * total < part.size <= 0.1 * total
    assert data.parts.train.size >= 0.8 * total - 16


def test_an_epoch_visits_each_block_once_in_an_order_of_its_own(folder: Path) -> None:
    data = ready(folder, batch_size=1)
    stream = data.train_dataloader()
    first, second = ids(stream), ids(stream)
    assert sorted(first) == sorted(second) == sorted(data.parts.train.tolist())
    assert first != second
    assert ids(data.val_dataloader()) == data.parts.validation.tolist()
    assert ids(data.test_dataloader()) == ids(data.predict_dataloader()) == data.parts.test.tolist()


def test_batches(folder: Path) -> None:
    (tokens,) = next(iter(ready(folder).train_dataloader())).values()
    assert (tokens.shape, tokens.dtype) == ((4, 16), torch.int64)


def test_a_seed_fixes_split_and_stream_whatever_else_is_drawn(folder: Path) -> None:
    first = ready(folder, seed=5)
    torch.rand(7)
    np.random.rand(3)  # noqa: NPY002
    second, other = ready(folder, seed=5), ready(folder, seed=6)
    assert ids(first.train_dataloader()) == ids(second.train_dataloader())
    assert ids(first.val_dataloader()) != ids(other.val_dataloader())


def test_reading_draws_no_global_random_number(folder: Path) -> None:
    state, python_state = torch.get_rng_state(), random.getstate()
    np.random.seed(3)  # noqa: NPY002
    next(iter(ready(folder).train_dataloader()))
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python_state
    drawn = np.random.rand()  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    assert np.random.rand() == drawn  # noqa: NPY002


def test_seed_defaults_to_torchs(folder: Path) -> None:
    torch.manual_seed(11)
    assert tiny_corpus(folder, seed=None).hparams["seed"] == 11


def test_a_stream_continues_where_it_stood_also_in_the_second_epoch(folder: Path) -> None:
    data = ready(folder)
    length = len(data.train_dataloader())
    whole = data.train_dataloader()
    batches = [*whole, *whole]
    for stop in (2, length, length + 3):
        stream = data.train_dataloader()
        stream.load_state_dict({"position": stop})
        rest = list(stream)
        expected = batches[stop : (stop // length + 1) * length]
        assert all(map(same, rest, expected))
        assert len(rest) == len(expected)


def same(first: TokenBatch, second: TokenBatch) -> bool:
    return torch.equal(first["input_ids"], second["input_ids"])


def test_ranks_share_an_epoch() -> None:
    blocks = np.arange(26, dtype=np.int32).reshape(13, 2)
    ranks = [ShuffledBlocks(blocks, 2, seed=3, rank=rank, num_ranks=3) for rank in range(3)]
    assert [rank.length for rank in ranks] == [2, 2, 2]
    rows = torch.cat([rank(position)["input_ids"] for rank in ranks for position in range(2)])
    assert len({tuple(row) for row in rows.tolist()}) == 12


def test_the_process_reads_its_rank(folder: Path) -> None:
    class OtherRank(L.Trainer):
        global_rank = 1
        world_size = 2

    data = ready(folder)
    alone = ids(data.train_dataloader())
    data.trainer = OtherRank(logger=False, enable_checkpointing=False, accelerator="cpu")
    loader = data.train_dataloader()
    assert len(loader) == len(alone) // 8
    assert ids(loader)[:4] == alone[4:8]


def test_large_documents_are_trained_on() -> None:
    sizes = [900, *[10] * 10]
    tokens = np.repeat(np.arange(11, dtype=np.int32), sizes)
    parts = split_blocks(
        TokenizedCorpus(tokens, np.cumsum(sizes)), block_size=10, held_out_fraction=0.05, seed=0
    )
    assert 0 not in {*parts.validation.ravel().tolist(), *parts.test.ravel().tolist()}
    assert (parts.validation.size, parts.test.size) == (50, 50)


def test_unigram_entropy() -> None:
    assert unigram_entropy(np.array([[3, 3]], dtype=np.int32)) == 0
    assert unigram_entropy(np.array([[0, 1], [2, 5]], dtype=np.int32)) == pytest.approx(math.log(4))
    chances = [0.5, 0.25, 0.25]
    expected = -sum(p * math.log(p) for p in chances)
    assert unigram_entropy(np.array([[0, 0], [4, 9]], dtype=np.int32)) == pytest.approx(expected)


def test_entropy_is_that_of_the_training_part(folder: Path) -> None:
    data = ready(folder)
    assert data.unigram_entropy == unigram_entropy(data.parts.train)
    assert 0 < data.unigram_entropy < math.log(300)


def test_the_tokenizer_writes_any_text_back(folder: Path) -> None:
    tokenizer = ready(folder).tokenizer
    assert tokenizer is not None
    text = "  def f(x):\n\treturn 'ü' # 漢字 🙂"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert 257 < len(tokenizer) <= 300
    assert tokenizer.eos_token == tokenizer.bos_token == "<|endoftext|>"


def test_a_given_tokenizer_is_used(folder: Path, tmp_path: Path) -> None:
    first = ready(folder)
    assert first.tokenizer is not None
    first.tokenizer.save_pretrained(tmp_path / "model")
    second = ready(folder, tokenizer=str(tmp_path / "model"), vocab_size=1000)
    assert second.tokenizer is not None
    assert second.tokenizer.get_vocab() == first.tokenizer.get_vocab()
    assert ids(second.val_dataloader()) == ids(first.val_dataloader())


def test_what_a_tokenizer_says_of_batches_cuts_no_document(folder: Path, tmp_path: Path) -> None:
    first = ready(folder)
    assert first.tokenizer is not None
    first.tokenizer.backend_tokenizer.enable_truncation(2)
    first.tokenizer.backend_tokenizer.enable_padding(length=500)
    first.tokenizer.save_pretrained(tmp_path / "model")
    settings = (tmp_path / "model" / "tokenizer.json").read_text()
    assert '"max_length": 2' in settings
    second = ready(folder, tokenizer=str(tmp_path / "model"), cache_dir=str(tmp_path / "new"))
    assert ids(second.val_dataloader()) == ids(first.val_dataloader())
    assert second.tokenizer is not None
    assert second.tokenizer.backend_tokenizer.truncation is not None


def test_the_cache_is_used_and_keyed_by_the_texts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ready(folder)
    shutil.copytree(folder, tmp_path / "copied")
    with monkeypatch.context() as patched:
        for work in ("_train_bpe", "_encode"):
            patched.delattr(f"toolkit.data.tokenized_corpus.{work}")
        assert ids(ready(tmp_path / "copied").val_dataloader()) == ids(first.val_dataloader())
    (folder / "000.txt").write_text("another text")
    other = ready(folder)
    assert other.conditions["corpus_hash"] != first.conditions["corpus_hash"]
    assert len(list((tmp_path / "cache").iterdir())) == 4


def test_nothing_is_left_of_an_interrupted_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("toolkit.data.tokenized_corpus._encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ready(folder)
    (tokenizer,) = (tmp_path / "cache").iterdir()
    assert [file.name for file in tokenizer.iterdir()] == ["tokenizer.json"]


def test_several_may_prepare_at_the_same_time(folder: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        first, second, third = pool.map(lambda _: ids(ready(folder).val_dataloader()), range(3))
    assert first == second == third
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_the_cache_is_in_the_users_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert TextCorpus().cache == tmp_path / "superposition-toolkit"
        patched.delenv("XDG_CACHE_HOME")
        patched.setattr("pathlib.Path.home", lambda: tmp_path)
        assert TextCorpus().cache == tmp_path / ".cache" / "superposition-toolkit"


def test_what_the_corpus_is_becomes_a_hyper_parameter(folder: Path) -> None:
    data = ready(folder)
    hparams = data.hparams_initial
    assert hparams["corpus"] == "texts"
    assert hparams["corpus_hash"] == data.conditions["corpus_hash"]
    assert hparams["corpus_tokens"] > 1000
    assert hparams["data_seed"] == 0
    assert hparams["python"] == platform.python_version()
    assert hparams["block_size"] == 16


def test_a_file_is_cut_at_blank_lines(tmp_path: Path) -> None:
    paragraphs = [f"paragraph {i} " + "word " * 30 for i in range(30)]
    (tmp_path / "book.txt").write_text("\n \n".join(paragraphs) + "\n\n\n", encoding="utf-8")
    data = ready(tmp_path / "book.txt", block_size=8)
    documents = documents_of(data, data.parts.validation)
    assert {document.strip() for document in documents[:-1]} <= {p.strip() for p in paragraphs}


def test_default_corpus_is_the_standard_library() -> None:
    documents = read_documents(None)
    whole = "\n".join(documents.texts)
    assert len(whole) > 3_000_000
    assert "class Enum(" in whole
    assert "class SMTP(" not in whole
    assert documents.name == "standard library"


def test_hub_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets import Dataset

    asked = []

    def load_dataset(*arguments: Any, **options: Any) -> Dataset:
        asked.append((arguments, options))
        return Dataset.from_dict({"text": [f"text {i} " + "word " * 20 for i in range(40)] + [""]})

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    options: dict[str, Any] = {"vocab_size": 280, "block_size": 8, "held_out_fraction": 0.1}
    data = TextCorpus(
        "owner/name", subset="raw", split="train[:41]", cache_dir=str(tmp_path), **options
    )
    with pytest.warns(UserWarning, match=r"left out of owner/name: empty texts \(1\)"):
        data.setup("fit")
    assert asked == [(("owner/name", "raw"), {"split": "train[:41]"})]
    assert data.conditions["corpus"] == "owner/name"


def test_a_hub_data_set_without_texts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets import Dataset

    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: Dataset.from_dict({"a": [1]}))
    with pytest.raises(ValueError, match="source: expected a column text in owner/name, got a;"):
        TextCorpus("owner/name").setup("fit")


def test_offline_and_not_cached_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="source: expected owner/name in the cache or") as caught:
        TextCorpus("owner/name").setup("fit")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="tokenizer: expected a folder, or a name on") as caught:
        TextCorpus(str(write_folder(tmp_path / "a")), tokenizer="owner/name").setup("fit")
    assert "\n" not in str(caught.value)


def test_a_resumed_run_takes_seed_and_corpus(folder: Path) -> None:
    first, second = ready(folder, seed=1), ready(folder, seed=2)
    assert second.unigram_entropy != first.unigram_entropy
    second.load_state_dict(first.state_dict())
    assert ids(second.train_dataloader()) == ids(first.train_dataloader())
    assert second.unigram_entropy == first.unigram_entropy


@pytest.mark.parametrize("loaded_first", [False, True])
def test_another_corpus_is_refused(folder: Path, loaded_first: bool) -> None:
    state = ready(folder).state_dict()
    (folder / "000.txt").write_text("another text")
    data = tiny_corpus(folder)

    def load() -> None:
        data.load_state_dict(state)

    steps = [load, data.prepare_data] if loaded_first else [data.prepare_data, load]
    steps[0]()
    with pytest.raises(ValueError, match="source: expected the corpus of the checkpoint, hash"):
        steps[1]()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"vocab_size": 256}, "vocab_size: expected an integer of at least 257, got 256"),
        ({"block_size": 1}, "block_size: expected an integer of at least 2, got 1"),
        ({"block_size": 16.0}, "block_size: expected an integer of at least 2, got 16.0"),
        ({"batch_size": 0}, "batch_size: expected an integer of at least 1, got 0"),
        ({"seed": -1}, "seed: expected an integer of at least 0, got -1"),
        ({"held_out_fraction": 0.5}, "held_out_fraction: expected a share above 0 and below 0.5"),
        ({"held_out_fraction": math.nan}, "held_out_fraction: expected a share above 0"),
    ],
)
def test_bad_arguments(options: dict[str, Any], match: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=match):
        tiny_corpus(folder, **options)


def test_too_little_text_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="held_out_fraction: expected a block of 16 tokens in eac"):
        _ = ready(folder, held_out_fraction=0.0001).parts
    with pytest.raises(ValueError, match=r"batch_size: expected at most \d+, the number of train"):
        ready(folder, batch_size=10**6).train_dataloader()


def test_other_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got 'missing', which does not exist"):
        TextCorpus("missing").setup("fit")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="source: expected texts in empty, found none"):
        tiny_corpus(tmp_path / "empty").setup("fit")
    (tmp_path / "empty" / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"source: expected UTF-8 text in .*latin\.txt, got"):
        tiny_corpus(tmp_path / "empty").setup("fit")


def test_what_is_no_document_is_left_out_and_counted(folder: Path) -> None:
    first = ready(folder)
    (folder / "empty.txt").write_text(" \n")
    (folder / ".DS_Store").write_bytes(b"\0\xff")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("[core]")
    text = (folder / "000.txt").read_text()
    (folder / "000.txt").write_text("\ufeff" + text.replace(" ", " \ufeff", 2), encoding="utf-8")
    counts = r"hidden files \(2\), empty texts \(1\), byte order marks \(2\)"
    with pytest.warns(UserWarning, match=rf"source: left out of texts: {counts}"):
        second = ready(folder)
    assert second.conditions == first.conditions


def test_tables_are_no_documents(folder: Path) -> None:
    for suffix in ("csv", "TSV", "jsonl", "parquet", "arrow"):
        path = folder / f"table.{suffix}"
        path.write_text("text,label\na,0\n\nb,1\n")
        for source in (path, folder):
            with pytest.raises(ValueError, match=rf"plain text, got the table .*table.{suffix};"):
                read_documents(str(source))
        path.unlink()


def test_lines_and_marks_of_other_systems(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_bytes("\ufeffa\r\n\r\nb\r\rc\n\n\n".encode())
    assert read_documents(str(tmp_path / "book.txt")).texts == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (
            b"a\r\nb\rcaf\xe9",
            r"source: expected UTF-8 text in .*t.txt, got byte 0xe9 in line 3; con",
        ),
        ("a\n".encode("utf-16"), "source: expected UTF-8 text in .*t.txt, got byte 0xff in line 1"),
        (
            b"a\n\nb\0",
            r"source: expected text, got a NUL character in line 3 of .*t.txt; remove it",
        ),
    ],
)
def test_what_is_no_text_is_refused_by_its_line(content: bytes, match: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(content)
    for source in (tmp_path, tmp_path / "t.txt"):
        with pytest.raises(ValueError, match=match):
            read_documents(str(source))


def test_cells_without_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets import Dataset

    columns = [["a", None, "b"], [1, 2], ["a", "b\0"]]
    loaded = (Dataset.from_dict({"text": column}) for column in columns)
    monkeypatch.setattr("datasets.load_dataset", lambda *_, **__: next(loaded))
    with pytest.warns(UserWarning, match=r"left out of owner/name: empty texts \(1\)"):
        assert read_documents("owner/name").texts == ["a", "b"]
    with pytest.raises(ValueError, match="expected texts in column text of owner/name, got 1"):
        read_documents("owner/name")
    with pytest.raises(ValueError, match="got a NUL character in text 2 of owner/name"):
        read_documents("owner/name")


def test_what_is_asked_too_early_is_named(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"call setup\('fit'\) first"):
        _ = tiny_corpus(folder).conditions
