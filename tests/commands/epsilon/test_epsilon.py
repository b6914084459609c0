"""The command: numbers of the live models, rows, files, figures, and what one failure costs."""

import csv
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.lm.fake_hub import FakeHub, commit_of, serve
from tests.lm.tiny_models import DIM, FAMILY_NAMES, NUM_ROWS, VOCABULARY, tiny_model, tiny_tokenizer
from toolkit import cli
from toolkit.commands.epsilon.command import main
from toolkit.commands.epsilon.measured import MeasuredModel, measure_model
from toolkit.commands.epsilon.report import draw
from toolkit.figures.deviation import deviation_against_dim
from toolkit.functional import deviation_stderr, embedding_deviation, log10_capacity
from toolkit.reference import model_capacities


def ask(capsys: pytest.CaptureFixture[str], *args: str | Path) -> str:
    assert main([str(argument) for argument in args]) == 0
    return capsys.readouterr().out


def ask_json(capsys: pytest.CaptureFixture[str], *args: str | Path) -> dict[str, Any]:
    (model,) = json.loads(ask(capsys, *args, "--json"))["models"]
    assert isinstance(model, dict)
    return model


def save_matrix(folder: Path, matrix: torch.Tensor, num_tokens: int | None = None) -> Path:
    folder.mkdir()
    save_file({"wte.weight": matrix}, folder / "model.safetensors")
    if num_tokens is not None:
        vocabulary = {"model": {"vocab": {str(i): i for i in range(num_tokens)}}}
        (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    return folder


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", FAMILY_NAMES)
def test_each_family_as_in_the_live_model(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny_model(name)
    model.save_pretrained(tmp_path, max_shard_size="4KB")
    tiny_tokenizer().save_pretrained(tmp_path)
    for module, options in (
        (model.get_input_embeddings(), ()),
        (model.get_output_embeddings(), ("--unembedding",)),  # type: ignore[no-untyped-call]
    ):
        weight: torch.Tensor = module.weight.detach()  # type: ignore[operator]
        found = ask_json(capsys, tmp_path, *options)
        used = embedding_deviation(weight[: len(VOCABULARY)])
        assert found["epsilon"] == pytest.approx(used.epsilon, abs=1e-6)
        assert (found["mean"], found["std"]) == pytest.approx((used.mean, used.std), abs=1e-6)
        assert found["epsilon_stored"] == pytest.approx(
            embedding_deviation(weight).epsilon, abs=1e-6
        )
        rows = (found["rows_used"], found["rows_stored"], found["tokenizer_rows"])
        assert rows == (len(VOCABULARY), NUM_ROWS, len(VOCABULARY))
        assert found["dim"] == weight.shape[1]


def test_rows_beyond_the_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that were never trained lie close together, and would say something else."""
    matrix = noise(400, 64)
    matrix[300:] = 1 + 1e-3 * matrix[300:]
    folder = save_matrix(tmp_path / "padded", matrix, 300)
    used, stored = embedding_deviation(matrix[:300]).epsilon, embedding_deviation(matrix).epsilon
    assert stored > used + 0.1
    assert ask_json(capsys, folder)["epsilon"] == used
    assert ask_json(capsys, folder, "--rows", "all")["epsilon"] == stored
    text = ask(capsys, folder)
    assert "  300/400  64  float32  wte.weight in model.safetensors\n" in text
    assert (
        f"the tokenizer reaches 300 of 400 rows; epsilon over all of them is {stored:.5f}" in text
    )
    assert "  400  64  " in ask(capsys, folder, "--rows", "all")
    # Ids beyond the matrix are no rows.
    folder = save_matrix(tmp_path / "short", matrix, 500)
    assert ask_json(capsys, folder)["rows_used"] == 400


@pytest.mark.parametrize(
    ("mean", "model_class", "shown"),
    [(0.0, 2, ""), (0.43, None, "*"), (2.0, 1, "indeterminate")],
    ids=["class 2", "between", "class 1"],
)
def test_capacity_by_class(
    mean: float,
    model_class: int | None,
    shown: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Published below 0.1, marked above it, and meaningless above 0.2."""
    matrix = noise(3000, 900)
    matrix[:, 0] += mean * math.sqrt(900) / 2
    folder = save_matrix(tmp_path / "model", matrix)
    found = ask_json(capsys, folder)
    assert found["model_class"] == model_class
    text = ask(capsys, folder)
    assert ("\n* arXiv 2606.02765 gives capacities below" in text) == (model_class is None)
    assert ask(capsys, folder, folder / "model.safetensors").count("arXiv") == text.count("arXiv")
    if model_class == 1:
        assert found["log10_capacity"] is None
        assert shown in text
    else:
        expected = log10_capacity(900, found["epsilon"])
        assert found["log10_capacity"] == expected
        assert f" {expected:.2f}{shown}  " in text


def test_what_the_table_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = noise(500, 64)
    matrix[7] = 0
    folder = save_matrix(tmp_path / "model", matrix.bfloat16())
    header, row, *notes = ask(capsys, folder, "--stderr").splitlines()
    names = "model mu sigma epsilon stderr class log10 capacity tied V d dtype source"
    assert " ".join(header.split()) == names
    deviation = embedding_deviation(matrix.bfloat16())
    numbers = [f"{value:.5f}" for value in (deviation.mean, deviation.std, deviation.epsilon)]
    stderr = f"{deviation_stderr(matrix.bfloat16()):.1g}"
    assert row.split()[:6] == [str(folder), *numbers, stderr, "1"]
    conditions = "indeterminate ? 500 64 bfloat16 wte.weight in model.safetensors"
    assert " ".join(row.split()[6:]) == conditions
    assert notes == [
        f"{folder}: no tokenizer found, every stored row is measured",
        f"{folder}: 1 zero rows are left out",
    ]
    assert "stderr" not in ask(capsys, folder)


def test_any_mix_in_one_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf = pytest.importorskip("gguf")
    folder = save_matrix(tmp_path / "model", noise(50, 32))
    (folder / "config.json").write_text("{}")
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "unknown")
    kind = gguf.GGMLQuantizationType.Q8_0
    packed = gguf.quantize(noise(50, 32).numpy(), kind)
    writer.add_tensor("token_embd.weight", packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    hub = FakeHub({"someone/model": {"main": folder}})
    with serve(hub, tmp_path / "cache", monkeypatch):
        sources: list[str | Path] = [
            folder,
            folder / "model.safetensors",
            tmp_path / "model.gguf",
            "someone/model",
        ]
        content = json.loads(ask(capsys, *sources, "--json", "--csv", tmp_path / "table.csv"))
    models = content["models"]
    assert content["failed"] == []
    assert [model["model"] for model in models] == [str(source) for source in sources]
    live = embedding_deviation(noise(50, 32)).epsilon
    dequantised = embedding_deviation(torch.tensor(gguf.dequantize(packed, kind))).epsilon
    assert [model["epsilon"] for model in models] == pytest.approx([live, live, dequantised, live])
    assert models[2]["epsilon"] != models[0]["epsilon"]
    assert [model["dtype"] for model in models] == ["float32", "float32", "Q8_0", "float32"]
    assert models[3]["commit"] == commit_of("main")
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["epsilon"]) for row in rows] == [model["epsilon"] for model in models]
    assert list(rows[0]) == list(MeasuredModel._fields)
    assert (rows[0]["epsilon_stderr"], rows[0]["rows_used"]) == ("", "50")


def save_step(folder: Path, written: torch.Tensor, read: torch.Tensor) -> Path:
    folder.mkdir()
    save_file({"wte.weight": written, "lm_head.weight": read}, folder / "model.safetensors")
    return folder


def test_models_that_share_a_matrix_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Full twins, one matrix alone, and first rows that are equal by coincidence."""
    near = noise(500, 8)
    near[400:] += 1
    steps = {
        "step1": (noise(500, 8), 1 + noise(500, 8)),
        "step2": (noise(500, 8), 1 + noise(500, 8)),
        "step3": (noise(500, 8), 2 + noise(500, 8)),
        "step4": (3 + noise(500, 8), 2 + noise(500, 8)),
        "step5": (near, 4 + noise(500, 8)),
    }
    one, two, three, four, five = (
        save_step(tmp_path / name, *matrices) for name, matrices in steps.items()
    )
    text = ask(capsys, one, two)
    twins = f"{one} and {two} have the same input and output matrix: they are no different checkp"
    assert twins in text
    assert ask(capsys, one, two, "--unembedding").count("have the same input and output") == 1
    assert f"{one} and {three} have the same input matrix: they" in ask(capsys, one, three)
    assert f"{three} and {four} have the same output matrix: they" in ask(capsys, three, four)
    assert "have the same" not in ask(capsys, one, four, five)
    assert "have the same" not in ask(capsys, one, five, "--unembedding")
    assert "have the same" not in ask(capsys, one)
    found = json.loads(ask(capsys, *(tmp_path / name for name in steps), "--json"))["shared"]
    assert found == [
        {"matrix": "input", "models": [str(one), str(two), str(three)]},
        {"matrix": "output", "models": [str(one), str(two)]},
        {"matrix": "output", "models": [str(three), str(four)]},
    ]


def test_values_beyond_the_tokenizer_may_be_no_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = noise(400, 64)
    matrix[350] = math.nan
    folder = save_matrix(tmp_path / "padded", matrix, 300)
    found = ask_json(capsys, folder)
    assert found["epsilon"] == embedding_deviation(matrix[:300]).epsilon
    assert found["epsilon_stored"] is None
    text = ask(capsys, folder, "--csv", tmp_path / "table.csv")
    assert "epsilon over all of them is unknown: some of the others' values are not fin" in text
    with (tmp_path / "table.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["epsilon_stored"] == ""
    with pytest.raises(ValueError, match=r"source: wte.weight in .*padded/model.safetensors: expe"):
        measure_model(folder, rows="all")
    path = folder / "model.safetensors"
    with pytest.raises(ValueError, match=rf"source: wte.weight in {path}: expected finite values"):
        measure_model(path, rows="all")


def test_a_folder_of_runs_points_below(tmp_path: Path) -> None:
    hf = tmp_path / "version_0" / "checkpoints" / "hf"
    hf.mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    (hf.parent / "last.ckpt").touch()
    (tmp_path / ".hidden" / "model.gguf").touch()
    match = rf"got none, but 1 below: {hf.parent}/last.ckpt; give some of these$"
    with pytest.raises(ValueError, match=match):
        measure_model(tmp_path)
    for step in range(5):
        save_matrix(hf / f"step-{step}", noise(5, 4))
    match = rf"but 5 below: {hf}/step-0, {hf}/step-1, {hf}/step-2, ...; give some of these$"
    for folder in (tmp_path, hf.parent, hf):
        with pytest.raises(ValueError, match=match):
            measure_model(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"expected model.safetensors or its index in .*, got n"):
        measure_model(tmp_path / "empty")


def test_one_failure_loses_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = save_matrix(tmp_path / "good", noise(50, 8))
    broken = save_matrix(tmp_path / "broken", torch.full((50, 8), math.nan))
    missing = tmp_path / "missing.gguf"
    sources = [str(source) for source in (missing, good, broken)]
    assert cli.main(["epsilon", *sources]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].startswith(str(good))
    first, second = captured.err.splitlines()
    assert first.startswith(f"error: {missing}: source: expected a path or a model on the Hub")
    place = f"wte.weight in {broken}/model.safetensors"
    assert second.startswith(
        f"error: {broken}: source: {place}: expected finite values, got 400 non-finite of 400"
    )
    assert cli.main(["epsilon", *sources, "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert [model["model"] for model in content["models"]] == [str(good)]
    assert [failure["model"] for failure in content["failed"]] == [str(missing), str(broken)]


def test_a_failure_is_shown_before_the_next_model_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = save_matrix(tmp_path / "good", noise(50, 8))
    missing = [str(tmp_path / name) for name in ("a.gguf", "b.gguf")]
    shown: list[list[str]] = []

    def watched(source: str, *args: Any, **options: Any) -> MeasuredModel:
        shown.append(capsys.readouterr().err.splitlines())
        return measure_model(source, *args, **options)

    monkeypatch.setattr("toolkit.commands.epsilon.measured.measure_model", watched)
    assert cli.main(["epsilon", missing[0], str(good), missing[1]]) == 1
    assert [len(lines) for lines in shown] == [0, 1, 0]
    assert shown[1][0].startswith(f"error: {missing[0]}: source: expected a path or a model")
    (last,) = capsys.readouterr().err.splitlines()
    assert last.startswith(f"error: {missing[1]}: source: expected")


def test_folders_of_files_are_created_for_a_result_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, figure = tmp_path / "new" / "a.csv", tmp_path / "other" / "b" / "a.png"
    files = ["--csv", str(table), "--figure", str(figure)]
    with pytest.raises(ValueError, match=r"^source: expected a path or a model on the Hub"):
        main([str(tmp_path / "none.gguf"), *files])
    assert list(tmp_path.iterdir()) == []
    ask(capsys, save_matrix(tmp_path / "good", noise(50, 8)), *files)
    assert len(table.read_text().splitlines()) == 2
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_no_success_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    sources = [str(tmp_path / name) for name in ("a.gguf", "b.gguf")]
    assert cli.main(["epsilon", *sources, "--csv", str(table)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 2
    assert cli.main(["epsilon", sources[0]]) == 2
    assert capsys.readouterr().err.startswith("error: source: expected a path or a model on the")
    assert not table.exists()


@pytest.mark.parametrize(
    ("args", "match"),
    [
        ([], "the following arguments are required: MODEL"),
        (["model", "--rows", "some"], "rows: invalid choice: 'some'"),
        (["model", "--figure", "figure.txt"], r"figure: expected a file name with \.png, \.svg"),
        (["model", "--wrong"], "unrecognized arguments: --wrong"),
    ],
)
def test_wrong_options(args: list[str], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        main(args)


def test_options_reach_the_reader(tmp_path: Path) -> None:
    torch.save({"a": noise(30, 8), "b": 1 + noise(30, 8)}, tmp_path / "model.bin")
    with pytest.raises(ValueError, match="allow it with allow_pickle"):
        measure_model(tmp_path / "model.bin", tensor_name="a")
    for name, matrix in (("a", noise(30, 8)), ("b", 1 + noise(30, 8))):
        found = measure_model(tmp_path / "model.bin", tensor_name=name, allow_pickle=True)
        assert (found.epsilon, found.tensor) == (embedding_deviation(matrix).epsilon, name)
    with pytest.raises(ValueError, match="revision: expected none for a local path"):
        main([str(tmp_path), "--revision", "main"])


def test_a_folder_has_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_matrix(tmp_path / "model", noise(50, 8))
    assert ask(capsys, f"{folder}/") == ask(capsys, folder)
    with pytest.raises(
        ValueError, match=r"models: expected different models, got .*model and .*/,"
    ):
        main([str(folder), f"{folder}/"])


def test_a_model_in_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_matrix(tmp_path / "model", noise(50, 8))
    for name in ("figure.png", "figure.svg"):
        ask(capsys, folder, "--figure", tmp_path / name)
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "figure.svg").read_bytes()
    many = [measure_model(folder)] * 9
    draw(many, tmp_path / "many.pdf")
    assert (tmp_path / "many.pdf").read_bytes().startswith(b"%PDF")


def test_the_figure_shows_models_classes_and_what_is_published() -> None:
    published = [(model.dim, model.epsilon) for model in model_capacities()]
    measured = [("mine", 512, 0.05), ("negative", 512, -0.1)]
    (axes,) = deviation_against_dim(measured, published=published).axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines) == ["published", "mine"]
    assert np.array_equal(np.array(lines["published"].get_xydata()), np.array(published))
    assert len(published) == 45
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    class_1, class_2 = (patch.get_extents().transformed(axes.transData.inverted())
                        for patch in axes.patches)  # fmt: skip
    assert (class_1.y0, class_2.y1) == pytest.approx((0.2, 0.1))
    low, high = axes.get_ylim()
    assert (class_1.y1, class_2.y0) == pytest.approx((high, low))
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["published", "mine"]
    (axes,) = deviation_against_dim([("m", 512, 0.3)] * 9, published=published).axes
    assert axes.get_legend() is None


def test_reading_loads_neither_transformers_nor_lightning(tmp_path: Path) -> None:
    folder = save_matrix(tmp_path / "model", noise(50, DIM), 40)
    code = (
        "import sys; from toolkit.cli import main; "
        f"assert main(['epsilon', {str(folder)!r}]) == 0; "
        "assert not {'transformers', 'lightning', 'matplotlib', 'huggingface_hub', 'gguf'}"
        " & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
