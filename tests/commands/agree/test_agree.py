"""The command: numbers of a by-hand computation, depths, what is refused early, and memory."""

import csv
import gc
import json
import math
import re
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from tests.callbacks.language import write_texts
from tests.lm.fake_hub import commit_of, serve
from tests.lm.listed_hub import ListedHub, save_revision
from tests.lm.tiny_models import (
    FAMILY_NAMES,
    NUM_BLOCKS,
    TEXTS,
    VOCABULARY,
    tiny_model,
    tiny_tokenizer,
)
from toolkit import cli
from toolkit.commands.agree import states as agreement_models
from toolkit.commands.agree.command import main
from toolkit.commands.agree.compare import Conditions, compare
from toolkit.commands.agree.report import as_text
from toolkit.commands.agree.states import ModelStates, layer_at
from toolkit.data.text_sources import load_texts
from toolkit.figures.agreement import agreement_by_space
from toolkit.functional import haar_bases
from toolkit.lm.architecture.families import language_model_parts
from toolkit.lm.architecture.parts import readout_matrix
from toolkit.lm.checkpoints.base import OpenedModel
from toolkit.lm.checkpoints.local import FolderCheckpoint
from toolkit.lm.checkpoints.outline import Outline, read_outline
from toolkit.lm.reading.hidden_states import hidden_states
from toolkit.measures import Subject

NUM_TEXTS = 24
LETTERS = "abcdefghijklmnopqrstuvwxyz "


def letter_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each letter: other tokens, and more of them, than the word-level one."""
    vocabulary = {letter: index for index, letter in enumerate(LETTERS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=" "))
    backend.pre_tokenizer = pre_tokenizers.Split("", behavior="isolated")
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=" ")  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of several families, widths, depths and tokenizers, and texts."""
    root = tmp_path_factory.mktemp("models")
    for name in ("gpt_neox", "opt_projected", "gemma2"):
        tiny_model(name).save_pretrained(root / name)
        tiny_tokenizer(bos=name == "gemma2").save_pretrained(root / name)
    save_revision(root / "copy", seed=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        config = transformers.GPT2Config(
            vocab_size=40, n_positions=128, n_embd=24, n_layer=5, n_head=2
        )
        transformers.GPT2LMHeadModel(config).save_pretrained(root / "letters")
    letter_tokenizer().save_pretrained(root / "letters")
    write_texts(root)
    return root


def ask(capsys: pytest.CaptureFixture[str], root: Path, *args: str | Path) -> str:
    asked = [str(root / arg) if (root / arg).is_dir() else str(arg) for arg in args]
    texts = ["--texts", str(root / "texts.csv"), "--num_texts", str(NUM_TEXTS)]
    assert main([*asked, *texts]) == 0
    return capsys.readouterr().out


def ask_json(
    capsys: pytest.CaptureFixture[str], root: Path, *args: str | Path
) -> list[dict[str, Any]]:
    rows = json.loads(ask(capsys, root, *args, "--json"))["agreement"]
    assert isinstance(rows, list)
    return rows


def drawn_texts(root: Path) -> list[str]:
    source = str(root / "texts.csv")
    return load_texts(source, num_train=4, num_test=NUM_TEXTS).test_texts


def ccr(hidden: Tensor, remove: int) -> np.ndarray:
    points = hidden.double().numpy()
    points = points - points.mean(0)
    left, values, right = np.linalg.svd(points, full_matrices=False)
    rest: np.ndarray = (left[:, remove:] * values[remove:]) @ right[remove:]
    return rest


def by_hand(folder: Path, texts: list[str], layer: str, **options: Any) -> tuple[np.ndarray, ...]:
    """Distances of all pairs of texts in full space and inside the readout subspace."""
    k, remove = options.pop("k"), options.pop("remove")
    opened = FolderCheckpoint(name="x", step=0, folder=folder).open()
    tokenizer = opened.tokenizer
    assert tokenizer is not None
    points = ccr(hidden_states(opened.model, tokenizer, texts, **options)[layer], remove)
    matrix = readout_matrix(language_model_parts(opened.model), layer).double().numpy()
    basis = np.linalg.svd(matrix[: len(tokenizer)])[2][:k].T
    return pdist(points, "cosine"), pdist(points @ basis, "cosine")


@pytest.mark.parametrize(
    ("pair", "layers", "options"),
    [
        (("gpt_neox", "letters"), ("layer_02", "layer_03"), {}),
        (("gemma2", "opt_projected"), ("layer_02", "layer_02"), {"pooling": "mean", "remove": 2}),
        (("letters", "opt_projected"), ("final", "final"), {"max_length": 24, "k": 4}),
    ],
    ids=["middle", "mean over tokens", "final"],
)
def test_as_computed_by_hand(
    root: Path,
    capsys: pytest.CaptureFixture[str],
    pair: tuple[str, str],
    layers: tuple[str, str],
    options: dict[str, Any],
) -> None:
    given = {"k": 3, "remove": 1, "pooling": "last", "max_length": 128} | options
    args = [str(part) for name, value in given.items() for part in (f"--{name}", value)]
    rows = ask_json(capsys, root, *pair, "--num_random", "3", *args)
    row = rows[layers == ("final", "final")]
    assert (row["layer_a"], row["layer_b"]) == layers
    texts = drawn_texts(root)
    full, readout = zip(
        *(by_hand(root / n, texts, at, **given) for n, at in zip(pair, layers, strict=True)),
        strict=True,
    )
    assert row["full"] == pytest.approx(spearmanr(*full).statistic, abs=1e-6)
    assert row["readout"] == pytest.approx(spearmanr(*readout).statistic, abs=1e-4)
    assert row["z"] == pytest.approx((row["readout"] - row["random_mean"]) / row["random_std"])
    assert (row["num_texts"], row["num_dropped"], row["reason"]) == (NUM_TEXTS, 0, "")


def test_equal_models_agree_fully_and_random_subspaces_do_not(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for row in ask_json(capsys, root, "gpt_neox", "copy", "--num_random", "20"):
        assert row["full"] == pytest.approx(1, abs=1e-12)
        assert row["readout"] == pytest.approx(1, abs=1e-12)
        assert row["random_mean"] < 0.7
        assert row["z"] > 1


def test_a_comparison_does_not_depend_on_the_others(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--num_random", "4", "--k", "2")
    rows = ask_json(capsys, root, "gpt_neox", "letters", "gemma2", *options)
    assert [(Path(row["model_a"]).name, Path(row["model_b"]).name) for row in rows[::2]] == [
        ("gpt_neox", "letters"),
        ("gpt_neox", "gemma2"),
        ("letters", "gemma2"),
    ]
    assert ask_json(capsys, root, "gpt_neox", "gemma2", *options) == rows[2:4]
    other = ask_json(capsys, root, "gpt_neox", "gemma2", *options, "--layers", "final", "1")
    assert [row["depth"] for row in other] == ["final", "1"]
    assert {**other[1], "depth": "final"} == other[0] == rows[3]


def test_the_table_the_file_and_the_figure(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ("--csv", tmp_path / "new" / "a.csv", "--figure", tmp_path / "b" / "c" / "a.png")
    text = ask(capsys, root, "gpt_neox", "letters", "--num_random", "3", *files)
    header, middle, final, given = text.splitlines()
    assert header.split() == (
        ["models", "depth", "layers", "full", "readout", "random", "std", "z", "texts", "distinct"]
    )
    with (tmp_path / "new" / "a.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert (tmp_path / "b" / "c" / "a.png").read_bytes().startswith(b"\x89PNG")
    for line, row in zip((middle, final), rows, strict=True):
        for name, digits in (("full", 4), ("readout", 4), ("random_mean", 4), ("z", 1)):
            assert f"  {float(row[name]):.{digits}f}  " in line
    assert f"  layer_02, layer_03  {float(rows[0]['full']):.4f}" in middle
    assert middle.endswith(f"  {NUM_TEXTS}     {NUM_TEXTS}, {NUM_TEXTS}")
    # Of the narrowest model, 16 wide.
    assert (rows[0]["k"], rows[0]["remove"], rows[0]["commit_a"]) == ("2", "1", "")
    assert given == (
        "texts: texts.csv, both parts from this one; last token of at most 128; float32; CCR-1; "
        "k = 2; 3 random pairs of subspaces; seed 0"
    )


def test_few_distinct_vectors_are_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last token's embedding is one of a few words."""
    (row,) = ask_json(capsys, root, "gpt_neox", "copy", "--layers", "0", "--num_random", "2")
    num_words = len({text.split()[-1] for text in drawn_texts(root)})
    assert num_words < 8
    assert row["layer_a"] == "layer_00"
    assert (row["num_distinct_a"], row["num_distinct_b"]) == (num_words, num_words)


@pytest.mark.parametrize(
    ("depth", "num_blocks", "layer"),
    [
        ("0", 6, "layer_00"),
        ("0.5", 6, "layer_03"),
        ("0.5", 5, "layer_03"),
        ("0.5", 1, "layer_01"),
        ("0.75", 24, "layer_18"),
        ("1", 6, "final"),
        ("1.0", 6, "final"),
        ("final", 6, "final"),
        ("layer_06", 6, "layer_06"),
    ],
)
def test_layer_at(depth: str, num_blocks: int, layer: str) -> None:
    assert layer_at(depth, num_blocks) == layer


def states_of(name: str, hidden: Tensor, *, num_bad: int = 0) -> ModelStates:
    basis = haar_bases(hidden.shape[1], 2, 1, generator=torch.Generator().manual_seed(1))[0]
    layers = {"final": "final"}
    return ModelStates(name, "", layers, {"final": hidden}, {"final": basis}, {"final": num_bad})


@pytest.mark.parametrize(
    ("hidden", "num_bad", "reason"),
    [
        (torch.ones(9, 5), 0, "expected at least 3 texts with a direction left"),
        (torch.arange(9.0)[:, None] * torch.ones(5), 0, "all distances of a model are equal"),
        (torch.full((9, 5), math.nan), 45, "45 values are not finite"),
    ],
    ids=["one point", "a line", "not finite"],
)
def test_what_cannot_be_compared_costs_its_own_row(
    hidden: Tensor, num_bad: int, reason: str
) -> None:
    others = [
        states_of(name, torch.randn(9, 7, generator=torch.Generator().manual_seed(seed)))
        for seed, name in enumerate("ab")
    ]
    conditions = Conditions("texts", "mean", 8, "float32", k=2, num_random=3, remove=0, seed=0)
    models = [*others, states_of("c", hidden, num_bad=num_bad)]
    rows = compare(models, conditions)
    assert [row.reason == "" for row in rows] == [True, False, False]
    assert not math.isnan(rows[0].z)
    assert reason in rows[1].reason
    assert all(map(math.isnan, rows[1][5:10]))
    assert rows[1].num_nonfinite == num_bad
    text = as_text(models, rows, conditions)
    assert f"a, c at final: {rows[1].reason}\n" in text
    assert "mean over tokens of at most 8" in text


def infinite(path: Path, where: str) -> Path:
    model = tiny_model()
    with torch.no_grad():
        model.get_parameter(where)[0, :2] = math.inf
    model.save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("lm_head.weight", "2 at layer_02, 2 at final"),
        ("gpt_neox.layers.0.mlp.dense_h_to_4h.weight", r"\d+ at layer_02, \d+ at final"),
    ],
)
def test_a_model_that_is_not_finite_is_refused(
    root: Path, tmp_path: Path, where: str, found: str
) -> None:
    folder = infinite(tmp_path / "broken", where)
    texts = ["--texts", str(root / "texts.csv"), "--num_texts", str(NUM_TEXTS)]
    with pytest.raises(ValueError, match=f"^{folder}: weights: expected finite .*: {found}$"):
        main([str(root / "gpt_neox"), str(folder), *texts, "--num_random", "2"])


def test_a_layer_that_is_not_finite_costs_its_own_rows(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = infinite(tmp_path / "broken", "gpt_neox.layers.1.mlp.dense_h_to_4h.weight")
    options = ("--num_random", "2", "--layers", "layer_01", "final")
    rows = ask_json(capsys, root, "gpt_neox", folder, *options)
    assert rows[0]["full"] == pytest.approx(1)
    assert rows[0]["num_nonfinite"] == 0
    assert rows[1]["full"] is None
    assert rows[1]["num_nonfinite"] > 0


def test_texts_with_nul_are_refused_before_a_model_is_read(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (root / "texts.csv").read_text(encoding="utf-8").splitlines()
    content[2] = content[2].replace(",", ",\0", 1)
    (tmp_path / "texts.csv").write_text("\n".join(content), encoding="utf-8")
    monkeypatch.setattr(agreement_models, "candidates", None)
    with pytest.raises(
        ValueError, match=r"^source: .* NUL character in line 3 of .*texts.csv; rem"
    ):
        main([str(root / "gpt_neox"), str(root / "copy"), "--texts", str(tmp_path / "texts.csv")])


def test_one_model_is_in_memory_at_a_time(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[weakref.ref[Any]] = []
    opening = FolderCheckpoint.open

    def watched(self: FolderCheckpoint, dtype: torch.dtype) -> OpenedModel:
        gc.collect()
        assert not [model for model in alive if model() is not None]
        opened = opening(self, dtype)
        assert opened.model.dtype == dtype == torch.bfloat16
        alive.append(weakref.ref(opened.model))
        return opened

    monkeypatch.setattr(FolderCheckpoint, "open", watched)
    options = ("--dtype", "bfloat16", "--num_random", "2")
    ask(capsys, root, "gpt_neox", "copy", *options)
    assert len(alive) == 2


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_the_outline_of_each_family(name: str, tmp_path: Path) -> None:
    model = tiny_model(name)
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    checkpoint = FolderCheckpoint(name=name, step=0, folder=tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"never read")
    state = torch.random.get_rng_state()
    outline = read_outline(checkpoint, TEXTS[2:3], max_length=64)
    assert torch.equal(torch.random.get_rng_state(), state)
    width = model.get_output_embeddings().weight.shape[1]  # type: ignore[no-untyped-call]
    assert outline == Outline(NUM_BLOCKS, len(VOCABULARY), width)


def broken(root: Path, folder: Path, kind: str) -> str:
    """The copy of a model that lacks something."""
    save_revision(folder, seed=0)
    if kind in {"config.json", "model.safetensors"}:
        (folder / kind).unlink()
    elif kind == "tokenizer":
        for path in folder.glob("tokenizer*"):
            path.unlink()
    elif kind == "family":
        (folder / "config.json").write_text(json.dumps({"model_type": "bert", "is_decoder": True}))
    elif kind == "code":
        (folder / "config.json").write_text(json.dumps({"model_type": "unheard_of"}))
    elif kind == "pickle":
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    elif kind == "rows":
        letter_tokenizer().save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 20}))
    return str(folder)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("config.json", "checkpoint: expected a model's folder with config.json, got"),
        ("model.safetensors", "checkpoint: expected safetensors in .*, got no weights"),
        ("pickle", "checkpoint: expected safetensors in .* set allow_pickle"),
        ("tokenizer", "tokenizer: expected a tokenizer beside the weights, got none in"),
        ("family", "model: expected a causal language model of a known family"),
        ("code", "config: expected a causal language model in .*, got .*unheard_of"),
        ("rows", "tokenizer: expected ids below the model's 20 rows"),
    ],
)
def test_a_model_that_cannot_be_read_is_refused_before_any_is_opened(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    message: str,
) -> None:
    monkeypatch.setattr(agreement_models, "read_states", None)
    folder = broken(root, tmp_path / "broken", kind)
    capsys.readouterr()
    texts = ["--texts", str(root / "texts.csv"), "--num_texts", "8"]
    assert cli.main(["agree", str(root / "gpt_neox"), folder, *texts]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {folder}: ")
    assert re.search(message, line)


def test_weights_that_end_early(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = save_revision(tmp_path / "short", seed=0) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    capsys.readouterr()
    texts = ["--texts", str(root / "texts.csv"), "--num_texts", "8"]
    assert cli.main(["agree", str(root / "copy"), str(tmp_path / "short"), *texts]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    folder = tmp_path / "short"
    assert line.startswith(f"error: {folder}: checkpoint: expected a whole model in {folder}, got ")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["gpt_neox"], "models: expected two or more, got .*gpt_neox alone"),
        (
            ["copy", "copy"],
            "models: expected different models, got .* which are the same; give each",
        ),
        (
            ["copy", "copy/../copy"],
            r"models: expected different models, got .*copy and .*\.\./copy,",
        ),
        (["gpt_neox", "no/such/folder"], "no/such/folder: repo: expected the name of a model"),
        (["gpt_neox", "letters", "--k", "17"], "k: expected at most 16, the rank of .*gpt_neox"),
        (["gpt_neox", "opt_projected", "--k", "13"], "k: expected at most 12"),
        (["gpt_neox", "copy", "--k", "0"], "k: expected an integer of at least 1, got 0"),
        (["gpt_neox", "copy", "--num_random", "1"], "num_random: .* at least 2, got 1"),
        (["gpt_neox", "copy", "--num_random", "1000001"], "num_random: .* to 1,000,000, got 10"),
        (["gpt_neox", "copy", "--num_texts", "3"], "num_texts: .* at least 4, got 3"),
        (["gpt_neox", "copy", "--remove", "16"], "remove: expected fewer than 16 components"),
        (["gpt_neox", "copy", "--remove", "-1"], "remove: .* at least 0, got -1"),
        (["gpt_neox", "copy", "--layers", "1.5"], "gpt_neox: layers: expected shares .* got 1.5"),
        (["letters", "copy", "--layers", "layer_04"], "copy: layers: .* up to layer_03, got"),
        (["gpt_neox", "copy", "--layers", "nan"], "layers: expected shares from 0 to 1"),
        (["gpt_neox", "copy", "--figure", "a.gif"], "figure: expected a file name with .png"),
        (["gpt_neox", "copy", "--pooling", "max"], "pooling: invalid choice: 'max'"),
    ],
)
def test_wrong_options(
    root: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], message: str
) -> None:
    monkeypatch.setattr(agreement_models, "read_states", None)
    asked = [str(root / arg) if (root / arg).is_dir() else arg for arg in args]
    texts = ["--texts", str(root / "texts.csv"), "--num_texts", str(NUM_TEXTS)]
    with pytest.raises(ValueError, match=message):
        main([*texts, *asked])


def test_two_revisions_from_the_hub(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Their weights are fetched only after the small files of all models were good."""
    revisions = {"main": root / "copy", "other": save_revision(tmp_path / "b", seed=3)}
    hub = ListedHub({"someone/tiny": revisions}, tmp_path)
    names = ("someone/tiny", "someone/tiny@other")
    with serve(hub, tmp_path / "cache", monkeypatch):
        with pytest.raises(
            ValueError, match="someone/tiny@gone: revision: expected a revision that"
        ):
            ask(capsys, root, *names, "someone/tiny@gone")
        assert hub.sent("config.json") > 0
        assert hub.sent("model.safetensors") == 0
        options = ("--num_random", "2", "--csv", tmp_path / "a.csv")
        rows = ask_json(capsys, root, *names, "gpt_neox", *options)
    local = ask_json(capsys, root, "copy", tmp_path / "b", "--num_random", "2")
    wanted = {"model_a": names[0], "model_b": names[1]}
    assert rows[:2] == [row | wanted for row in local]
    assert rows[3]["full"] == pytest.approx(1)
    with (tmp_path / "a.csv").open(newline="") as lines:
        row = next(csv.DictReader(lines))
    assert (row["commit_a"], row["commit_b"]) == (commit_of("main"), commit_of("other"))


def test_the_figure_shows_each_comparison() -> None:
    rows = [("a and b at 0.5", 0.3, 0.5, 0.1, 0.05), ("a and b at final", 0.2, math.nan, 0.1, 0.02)]
    figure = agreement_by_space(rows)
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines["full space"].get_xdata()) == [0.3, 0.2]  # type: ignore[arg-type]
    assert lines["readout subspaces"].get_xdata()[0] == 0.5  # type: ignore[index]
    assert [text.get_text() for text in axes.texts] == [row[0] for row in rows]
    low, high = axes.get_ylim()
    assert low > high  # the first comparison is on top
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "full space",
        "readout subspaces",
        "random subspaces, mean and std",
    ]
    assert agreement_by_space(rows * 10).get_figheight() > 2 * figure.get_figheight()


def test_a_readout_of_low_rank_is_refused() -> None:
    model: Any = tiny_model("gpt_neox")
    weight = model.get_output_embeddings().weight
    with torch.no_grad():
        weight[:, 2:] = 0
    subject = Subject(model)
    assert agreement_models._readout_basis(subject, "final", 2).shape == (16, 2)
    with pytest.raises(ValueError, match="k: expected at most 2, the rank of the matrix"):
        agreement_models._readout_basis(subject, "final", 3)
