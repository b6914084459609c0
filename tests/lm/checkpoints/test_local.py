"""Checkpoints on this machine, and what series of them have in common."""

from pathlib import Path

import pytest
import torch

from tests.lm.listed_hub import save_revision
from tests.lm.tiny_models import tiny_model, tiny_tokenizer
from toolkit.lm.architecture.families import language_model_parts
from toolkit.lm.architecture.parts import embedding_matrix
from toolkit.lm.checkpoints.base import joined
from toolkit.lm.checkpoints.local import LocalFolders
from toolkit.lm.checkpoints.models import Models
from toolkit.lm.checkpoints.steps import (
    check_steps,
    pythia_steps,
    step_at,
    step_in_name,
    wanted_steps,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hf")
    for step in (0, 2, 10, 100):
        save_revision(root / f"step-{step:06}", seed=step)
    return root


def test_folders_come_in_the_order_of_their_numbers(root: Path) -> None:
    checkpoints = LocalFolders(f"{root}/step-*").checkpoints()
    assert [checkpoint.step for checkpoint in checkpoints] == [0, 2, 10, 100]
    assert {checkpoint.name for checkpoint in checkpoints} == {str(root)}
    assert [c.name for c in LocalFolders(f"{root}/*", name="pocket").checkpoints()] == 4 * [
        "pocket"
    ]


def test_a_folder_is_opened(root: Path) -> None:
    opened = LocalFolders(f"{root}/step-*10").checkpoints()[0].open()
    wanted = tiny_model(seed=10).state_dict()
    assert all(torch.equal(opened.model.state_dict()[name], wanted[name]) for name in wanted)
    assert opened.tokenizer is not None
    assert len(opened.tokenizer) == len(tiny_tokenizer())
    assert not opened.model.training


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16], ids=str)
def test_weights_are_opened_in_the_dtype_that_is_asked_for(
    tmp_path: Path, stored: torch.dtype, wanted: torch.dtype
) -> None:
    tiny_model().to(stored).save_pretrained(tmp_path / "step1")  # type: ignore[arg-type]
    opened = LocalFolders(f"{tmp_path}/step1").checkpoints()[0].open(wanted)
    assert {parameter.dtype for parameter in opened.model.parameters()} == {wanted}
    assert opened.tokenizer is None


def test_opening_draws_no_random_numbers(root: Path) -> None:
    state = torch.random.get_rng_state()
    LocalFolders(f"{root}/step-*10").checkpoints()[0].open()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_pickles_are_opened_only_when_allowed(tmp_path: Path) -> None:
    folder = tmp_path / "step1"
    model = tiny_model()
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"expected safetensors in .*step1, got pytorch_model.bin"):
        LocalFolders(str(folder)).checkpoints()[0].open()
    opened = LocalFolders(str(folder), allow_pickle=True).checkpoints()[0].open()
    matrices = [embedding_matrix(language_model_parts(m), "output") for m in (model, opened.model)]
    assert torch.equal(*matrices)


def test_a_flipped_bit_in_a_pickle_is_found(tmp_path: Path) -> None:
    model = tiny_model()
    model.config.save_pretrained(tmp_path / "step1")
    path = tmp_path / "step1" / "pytorch_model.bin"
    torch.save(model.state_dict(), path)
    content = bytearray(path.read_bytes())
    raw = model.state_dict()["gpt_neox.embed_in.weight"].numpy().tobytes()
    content[content.index(raw)] ^= 1
    path.write_bytes(content)
    match = (
        r"a whole file of torch.save, got .*\.bin, which is damaged: Bad CRC-32 for file '\w*/data/"
    )
    with pytest.raises(ValueError, match=match):
        LocalFolders(str(path.parent), allow_pickle=True).checkpoints()[0].open()


def test_a_pickle_that_wants_to_run_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "was_run",)

    folder = tmp_path / "step1"
    tiny_model().config.save_pretrained(folder)
    torch.save({"x": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(
        ValueError, match=r"expected plain types and tensors in .*; refused, nothing in it was run"
    ):
        LocalFolders(str(folder), allow_pickle=True).checkpoints()[0].open()
    assert not (tmp_path / "was_run").exists()


def test_a_lacking_tensor_is_an_error_rather_than_random(tmp_path: Path) -> None:
    model = tiny_model()
    state = {name: value for name, value in model.state_dict().items() if "norm" not in name}
    model.save_pretrained(tmp_path / "step1", state_dict=state)
    with pytest.raises(ValueError, match=r"got none for gpt_neox.final_layer_norm.bias"):
        LocalFolders(f"{tmp_path}/step1").checkpoints()[0].open()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = save_revision(tmp_path / "step1", seed=0)
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for size in (7, 100, len(whole) - 8):
        file.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"expected a whole model in .*step1, got") as caught:
            LocalFolders(str(folder)).checkpoints()[0].open()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b"], "expected the step in each name, got"),
        (["1000"], r"write {step} for it once in the pattern, as in .*/{step}, or take Models for"),
        (["pythia-70m", "pythia-160m", "pythia-1.4b"], "the step in each name, got .*-1.4b; write"),
        (["step4k"], "expected the step in each name, got .*step4k"),
        (["run-step1e3"], "expected the step in each name, got .*run-step1e3"),
        (["step-1", "step-01"], "one checkpoint of .* at step 1, got .*step-01 and .*step-1; tell"),
        (
            ["epoch=0-step=200", "epoch=0-step=200-v1"],
            "expected one checkpoint of .* at step 200, got .*=200 and .*=200-v1; tell them apart",
        ),
        (
            ["a-step-1", "b-step-2"],
            "expected the steps of one model, got .*a-step-1 and .*b-step-2; give a narrower",
        ),
        ([], "expected folders with a config.json or GGUF files, got none"),
    ],
)
def test_folders_that_are_no_series(tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        tiny_model().config.save_pretrained(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        LocalFolders(f"{tmp_path}/*").checkpoints()


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("epoch=0-step=200", 200),
        ("epoch=3-step=200-v1", 200),
        ("checkpoint-1000", 1000),
        ("checkpoint-1000-fp16", 1000),
        ("step1000-tokens4B", 1000),
        ("stage1-step928646-tokens3896B", 928646),
        ("stage2-ingredient1-step23852-tokens51B", 23852),
        ("step143000", 143000),
        ("step-000512", 512),
        ("step-512.Q8_0.gguf", 512),
        ("step-512-00001-of-00002.gguf", 512),
        ("global_step20", 20),
        ("step4k", None),
        ("run-step1e3", None),
        ("step1.5k", None),
        ("step-1.5", None),
        ("checkpoint_1_000", None),
        ("step1,000", None),
        ("pythia-70m", None),
        ("pythia-1.4b", None),
        ("1000", None),
        ("epoch=3", None),
        ("checkpoint-best", None),
        ("step10-checkpoint-3", None),
        ("ministep5", None),
        ("step" + "9" * 19, None),
        ("main", None),
    ],
)
def test_steps_in_names(name: str, step: int | None) -> None:
    assert step_in_name(name) == step


@pytest.mark.parametrize(
    ("path", "pattern", "step"),
    [
        ("runs/iter_0500", "runs/iter_{step}", 500),
        ("runs/70m", "runs/{step}m", 70),
        ("runs/7/hf", "runs/{step}/hf", 7),
        ("run-2/iter_5_v2", "run-2/iter_{step}_*", 5),
        ("run[a]/5", "run[a]/{step}", 5),
        ("runa/5", "run[a]/{step}", 5),
        ("a1-b2", "*{step}*", None),
        ("iter_1e3", "iter_{step}", None),
        ("iter_x", "iter_{step}*", None),
    ],
)
def test_steps_at_their_place(path: str, pattern: str, step: int | None) -> None:
    assert step_at(Path(path), pattern) == step


def save_configs(*folders: Path) -> None:
    for folder in folders:
        tiny_model().config.save_pretrained(folder)


def test_a_pattern_says_where_the_step_stands(tmp_path: Path) -> None:
    save_configs(*(tmp_path / f"iter_{step}" / "hf" for step in (1000, 5, 30)))
    checkpoints = LocalFolders(f"{tmp_path}/iter_{{step}}/hf", name="mine").checkpoints()
    assert [(c.name, c.step) for c in checkpoints] == [("mine", 5), ("mine", 30), ("mine", 1000)]
    with pytest.raises(ValueError, match=r"pattern: expected {step} once, got .step./.step."):
        LocalFolders("{step}/{step}")


def test_brackets_of_a_path_are_no_wildcards(tmp_path: Path) -> None:
    save_configs(tmp_path / "run[a]" / "checkpoint-5", tmp_path / "runa" / "checkpoint-7")

    def steps(pattern: str) -> list[int]:
        return [checkpoint.step for checkpoint in LocalFolders(pattern).checkpoints()]

    assert steps(f"{tmp_path}/run[a]/checkpoint-5") == [5]
    assert steps(f"{tmp_path}/run[a]/*") == [5]
    assert steps(f"{tmp_path}/run[ab]/*") == [7]
    assert steps(f"{tmp_path}/r*[[]a]/checkpoint-[0-9]") == [5]
    assert steps(f"{tmp_path}/run[a]/checkpoint-{{step}}") == [5]


def test_a_path_counts_once_however_it_is_written(tmp_path: Path) -> None:
    save_configs(tmp_path / "step-1", tmp_path / ".step-2")
    patterns = [f"{tmp_path}/step-1", f"{tmp_path}/step-1/", f"{tmp_path}//*", f"{tmp_path}/./s*"]
    assert [c.step for c in LocalFolders(patterns).checkpoints()] == [1]


def test_stages_are_one_model_only_by_name(tmp_path: Path) -> None:
    save_configs(tmp_path / "stage1-step20-tokens1B", tmp_path / "stage2-step10-tokens1B")
    with pytest.raises(ValueError, match=r"the steps of one model, got .*stage1-.* and .*stage2-"):
        LocalFolders(f"{tmp_path}/*").checkpoints()
    assert [c.step for c in LocalFolders(f"{tmp_path}/*", name="olmo").checkpoints()] == [10, 20]


def test_models_of_one_folder_have_one_name(root: Path) -> None:
    folder = str(root / "step-000002")
    (checkpoint,) = Models([f"{folder}/"]).checkpoints()
    assert checkpoint.name == folder
    for other in (f"{folder}/", f"{root}/../{root.name}/step-000002"):
        with pytest.raises(
            ValueError, match=r"names: expected different models, got .* are the same"
        ):
            Models([folder, other])


def test_models_keep_their_order(root: Path) -> None:
    names = [str(root / "step-000100"), str(root / "step-000002")]
    checkpoints = Models(names).checkpoints()
    assert [(checkpoint.name, checkpoint.step) for checkpoint in checkpoints] == [
        (name, 0) for name in names
    ]
    both = joined([Models(names[:1]), LocalFolders(f"{root}/step-*10*", name="pocket")])
    assert [(c.name, c.step) for c in both] == [(names[0], 0), ("pocket", 10), ("pocket", 100)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "names: expected one or more strings"),
        (["a", "a"], "names: expected different models, got a and a, which are the same"),
        (["a/b", "a/b@main"], "names: expected different models, got a/b and a/b@main, which are"),
        (["no/such/folder"], "expected the name of a model on the Hub or a folder"),
        (["model.gguf"], "names: expected an existing GGUF file, got model.gguf"),
        (["someone/model@../../x"], "revision: expected a branch, tag or commit, got '../../x'"),
    ],
    ids=["none", "twice", "main", "a path", "no file", "a revision that is a path"],
)
def test_names_that_are_no_models(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Models(names).checkpoints()


def test_steps_of_pythia() -> None:
    steps = pythia_steps()
    assert len(steps) == 154
    assert steps[:4] == [0, 1, 2, 4]
    assert steps[9:14] == [256, 512, 1000, 2000, 3000]
    assert steps[-1] == 143_000


@pytest.mark.parametrize(
    ("steps", "available", "wanted"),
    [
        ("log", pythia_steps(), [*pythia_steps()[:11], *(1000 * 2**i for i in range(8)), 143_000]),
        ("log", [700, 1000, 2000, 3000, 4000, 5000], [700, 1000, 2000, 4000, 5000]),
        ("log", [0], [0]),
        ("all", [4, 0, 2], [0, 2, 4]),
        ("0:1000:250", [], [0, 250, 500, 750, 1000]),
        ([5, 1, 5], [], [1, 5]),
    ],
    ids=["pythia, doubling", "another grid", "one", "all", "range", "list"],
)
def test_wanted_steps(steps: str | list[int], available: list[int], wanted: list[int]) -> None:
    assert wanted_steps(steps, available) == wanted


@pytest.mark.parametrize(
    ("steps", "match"),
    [
        ("10:9:5", "^steps: expected FIRST up to LAST in a range, got '10:9:5'"),
        ("10:12:5", "^steps: expected an EVERY that fits .*'10:12:5'; for step 10 alone give .10"),
    ],
)
def test_ranges_that_ask_for_nothing_are_refused(steps: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        check_steps(steps)
    check_steps("10:10:5")
    assert wanted_steps("10:10:5", [10]) == [10]
