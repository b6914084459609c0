"""The calculator: published answers, intervals, ranges, files, and one-line refusals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from toolkit import cli
from toolkit.commands.capacity.command import main
from toolkit.functional import deviation_for, deviation_stderr, embedding_deviation
from toolkit.reference import model_capacities

PUBLISHED_CSV = (
    Path(__file__).parent.parent.parent.parent / "toolkit" / "reference" / "optimised_packing.csv"
)


def ask(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(args) == 0
    return capsys.readouterr().out


def ask_json(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(ask(capsys, *args, "--json"))
    return content


def test_worked_example_of_the_paper(capsys: pytest.CaptureFixture[str]) -> None:
    """Llama 2 7B: 8.4 and 277 by Johnson-Lindenstrauss, 3.99e7 by the full law."""
    answers = ask_json(capsys, "--dim", "4096", "--epsilon", "0.0645")["answers"]
    capacities = {answer["law"]: answer["capacity"] for answer in answers}
    assert capacities["full"] == pytest.approx(3.99e7, rel=0.005)
    assert capacities["jl"] == pytest.approx(277, abs=0.5)
    assert capacities["jl, proven"] == pytest.approx(8.4, abs=0.05)
    by_law = {answer["law"]: answer for answer in answers}
    low, high = by_law["full"]["log10_capacity_interval"]
    assert 7.3 < low < by_law["full"]["log10_capacity"] < high < 7.9
    assert by_law["full"]["epsilon_rounding"] == pytest.approx(5e-5)
    assert by_law["jl, proven"]["log10_capacity_interval"] is None
    # 3.99e7 / 4096 is ten times the largest published k/d.
    assert by_law["full"]["extrapolates"]
    assert not by_law["jl, proven"]["extrapolates"]


def test_text_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ask(capsys, "--dim", "4096", "--epsilon", "0.0645", "--law", "full").splitlines()
    assert lines[0].split() == ["d", "epsilon", "law", "capacity", "95", "%", "interval"]
    assert lines[1].split()[:4] == ["4096", "0.0645", "full", "3.99e7"]
    assert lines[1].endswith("extrapolated")
    assert lines[2] == "k/d of the packings behind the laws: full 1.116 to 1000"


def test_fewer_digits_mean_a_wider_interval(capsys: pytest.CaptureFixture[str]) -> None:
    widths = []
    for epsilon in ("0.0640", "0.064", "0.06"):
        args = ("--dim", "4096", "--epsilon", epsilon, "--law", "ratio")
        (answer,) = ask_json(capsys, *args)["answers"]
        low, high = answer["log10_capacity_interval"]
        widths.append(high - low)
    assert widths[0] < widths[1] < widths[2]


def test_inverse(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--dim", "4096", "64", "--num_vectors", "3.99e7", "32", "--law", "full")
    answers = ask_json(capsys, *args)["answers"]
    assert [(answer["dim"], answer["num_vectors"]) for answer in answers] == [
        (4096, 3.99e7),
        (4096, 32),
        (64, 3.99e7),
        (64, 32),
    ]
    assert answers[0]["epsilon"] == pytest.approx(0.0645, abs=5e-5)
    low, high = answers[0]["epsilon_interval"]
    assert low < answers[0]["epsilon"] < high
    assert answers[1]["epsilon"] == 0
    text = ask(capsys, "--dim", "512", "--num_vectors", "20000", "--law", "ratio")
    expected = deviation_for(512, 20000, law="ratio")
    assert text.splitlines()[1].split()[:4] == ["512", "20000", "ratio", f"{expected:.4g}"]
    assert "extrapolated" not in text


def test_ranges_make_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--dim", "256:512:128", "--epsilon", "0.05:0.07:0.01", "0.1", "--law", "ratio")
    answers = ask_json(capsys, *args)["answers"]
    assert [answer["dim"] for answer in answers] == [256] * 4 + [384] * 4 + [512] * 4
    assert [answer["epsilon"] for answer in answers[:4]] == [0.05, 0.06, 0.07, 0.1]
    assert len(ask(capsys, *args).splitlines()) == 1 + 12 + 1


def test_a_capacity_beyond_a_float(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--dim", "4096", "--epsilon", "0.9", "--law", "ratio")
    (answer,) = ask_json(capsys, *args)["answers"]
    assert answer["capacity"] is None
    assert answer["log10_capacity"] > 1000
    cell = ask(capsys, *args).splitlines()[1].split()[3]
    assert float(cell.split("e")[0]) == pytest.approx(
        10 ** (answer["log10_capacity"] % 1), abs=0.01
    )
    assert int(cell.split("e")[1]) == int(answer["log10_capacity"])


def test_every_published_model_within_a_percent(capsys: pytest.CaptureFixture[str]) -> None:
    names = [model.model for model in model_capacities()]
    answers = ask_json(capsys, "--law", "full", "--model", *names)["answers"]
    assert [answer["model"] for answer in answers] == names
    for answer in answers:
        if answer["published_capacity"] is not None:
            assert answer["capacity"] == pytest.approx(answer["published_capacity"], rel=0.01)


def test_a_model_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    text = ask(capsys, "--model", "Llama 2 7B", "Qwen 3 0.6B", "--law", "full")
    assert "Llama 2 7B: published 3.99e7, the full law says +0.11%" in text
    assert "Qwen 3 0.6B: published as indeterminate, epsilon is not below 0.1" in text
    assert "0.0645" in text
    assert "the full law" not in ask(capsys, "--model", "Llama 2 7B", "--law", "jl")


@pytest.mark.parametrize("suffix", [".npy", ".pt"])
def test_a_matrix_brings_its_own_error(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = torch.randn(600, 24, generator=torch.Generator().manual_seed(0))
    path = tmp_path / f"embeddings{suffix}"
    if suffix == ".npy":
        np.save(path, matrix.numpy())
    else:
        torch.save(matrix, path)
    (answer,) = ask_json(capsys, "--embeddings", str(path), "--law", "full")["answers"]
    assert answer["dim"] == 24
    assert answer["epsilon"] == embedding_deviation(matrix).epsilon
    assert answer["epsilon_stderr"] == deviation_stderr(matrix)
    assert answer["epsilon_rounding"] == 0


def test_fit_gives_back_the_published_laws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = tmp_path / "fit.png"
    args = ("--fit", str(PUBLISHED_CSV), "--figure", str(figure), "--law", "ratio", "full")
    content = ask_json(capsys, *args, "--dim", "4096", "--epsilon", "0.0645")
    ratio, full = content["fits"]
    assert ratio["constants"] == {"C": pytest.approx(1.2934, abs=1e-4)}
    assert (ratio["num_points"], ratio["num_dropped"]) == (160, 0)
    assert ratio["r2"] == pytest.approx(0.9983, abs=1e-4)
    assert ratio["mape"] == pytest.approx(0.045, abs=1e-3)
    expected = {"C": 0.45809143, "a": 1.0668005, "b": 1.44738666, "c": 0.97197234}
    assert full["constants"] == pytest.approx(expected, rel=1e-5)
    for fit in content["fits"]:
        for name, (low, high) in fit["constant_intervals"].items():
            assert low < fit["constants"][name] < high
    assert content["answers"][1]["capacity"] == pytest.approx(3.99e7, rel=0.01)
    assert figure.stat().st_size > 1000
    lines = ask(capsys, "--fit", str(PUBLISHED_CSV), "--law", "ratio").splitlines()
    assert lines[0].split()[:3] == ["law", "constant", "value"]
    assert lines[1].split()[:3] == ["ratio", "C", "1.2934"]
    assert lines[1].split()[-4:] == ["0.99830", "4.50%", "1.17%", "160"]
    assert len(lines) == 2


def test_too_few_packings_leave_a_law_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = tmp_path / "few.csv"
    few.write_text("\n".join(PUBLISHED_CSV.read_text().splitlines()[:12]))
    content = ask_json(capsys, "--fit", str(few))
    assert [fit["law"] for fit in content["fits"]] == ["ratio", "jl"]
    (reason,) = content["left_out"]
    assert reason.startswith("fit: expected at least 30 packings with k > d for law 'full', got 11")
    assert "left out: fit: expected at least 30" in ask(capsys, "--fit", str(few))
    with pytest.raises(ValueError, match="fit: expected at least 30 packings"):
        main(["--fit", str(few), "--law", "full"])


@pytest.mark.parametrize(
    ("args", "match"),
    [
        ([], "epsilon: expected --epsilon, --num_vectors, --embeddings, --model or --fit"),
        (["--epsilon", "0.1"], "dim: expected together with --epsilon or --num_vectors"),
        (["--dim", "8"], "dim: expected together with --epsilon or --num_vectors"),
        (["--dim", "x", "--epsilon", ".1"], "dim: expected a number .* STEP above 0, got 'x'"),
        (["--dim", "8.5", "--epsilon", ".1"], "dim: expected an integer, got 8.5"),
        (["--dim", "8", "--epsilon", ".1:.2"], "epsilon: expected a number or FIRST:LAST:STEP"),
        (["--dim", "8", "--epsilon", ".1:.2:0"], "epsilon: expected a number or FIRST:LAST:STEP"),
        (["--dim", "8:inf:1", "--epsilon", ".1"], "dim: expected a number or FIRST:LAST:STEP"),
        (["--dim", "8", "--epsilon", "nan"], "epsilon: expected a number or FIRST:LAST:STEP"),
        (["--dim", "8", "--epsilon", "0"], r"epsilon: expected bounds on \|cos\|, .* got 0"),
        (["--dim", "0", "--epsilon", ".1"], "dim: expected an integer of at least 1, got 0"),
        (["--dim", "8", "--num_vectors", "0"], "num_vectors: expected a finite number of at"),
        (
            ["--dim", "8", "--epsilon", "1"],
            r"epsilon: expected bounds on \|cos\|, .* below 1, got 1",
        ),
        (["--dim", "8", "--epsilon", "1.5"], r"epsilon: expected bounds on .* below 1, got 1.5"),
        (["--dim", "8", "--epsilon", "0.5:1.2:0.1"], r"epsilon: .* below 1, got 1.2"),
        (["--dim", "8", "--epsilon", "0.2:0.1:0.1"], "epsilon: expected .* with FIRST up to LAST"),
        (["--dim", "10:5:5", "--epsilon", "0.1"], "^dim: expected .* with FIRST up to LAST"),
        (["--dim", "10:9:5", "--epsilon", "0.1"], "^dim: expected .* with FIRST up to LAST"),
        (["--dim", "10:12:5", "--epsilon", ".1"], "^dim: expected a STEP that fits .*'10:12:5'"),
        (["--dim", "8", "--epsilon", "0.1:0.2:0.3"], "^epsilon: expected a STEP that fits"),
        (["--dim", "8", "--num_vectors", "10:12:5"], "^num_vectors: expected a STEP that fits"),
        (["--dim", "1e999999", "--epsilon", ".1"], "dim: expected numbers from 1e-300 to 1e300"),
        (["--dim", "1e12", "--epsilon", ".1"], "dim: expected at most 1,000,000,000, got"),
        (["--dim", "8", "--epsilon", "1e-999999"], "epsilon: expected numbers from 1e-300"),
        (["--dim", "8", "--num_vectors", "1e999999"], "num_vectors: expected numbers from"),
        (
            ["--dim", "8", "--epsilon", "0.01:1:1e-9"],
            "epsilon: expected at most 1,000 numbers .*, got about 9.9e.8 from '0.01:1:1e-9'",
        ),
        (
            ["--dim", "10:1000:10", "--epsilon", "0.01:0.9:0.01"],
            "dim: expected at most 1,000 questions at a time, got 100 dimensions with 90 numbers",
        ),
        (["--dim", "9" * 100, "--epsilon", ".1"], "dim: expected at most 1,000,000,000, got 1"),
        (["--dim", "x" * 1000, "--epsilon", ".1"], "got 'x{60}...'$"),
        (["--dim", "8", "--epsilon", ".1", "--law", "x"], "law: invalid choice: 'x'"),
        (["--dim", "8", "--epsilon", ".1", "--num_vectors", "9"], "num_vectors: not allowed with"),
        (["--model", "Llama 9"], "model: expected a published model, got 'Llama 9'; near: Llama"),
        (["--wrong"], "epsilon: expected --epsilon|unrecognized arguments: --wrong"),
        (["--dim", "8", "--epsilon", ".1", "--figure", "f.png"], "figure: expected --fit with it"),
        (["--fit", "nowhere"], "fit: expected a CSV file or a folder of runs, got nowhere"),
        (["--embeddings", "nowhere.npy"], "embeddings: expected a readable file, got nowhere"),
        (["--embeddings", "some.bin"], "embeddings: expected a .npy or .pt file, got some.bin"),
    ],
)
def test_what_makes_no_question_is_refused(args: list[str], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        main(args)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(3, 3)}, tmp_path / "dict.pt")
    np.save(tmp_path / "row.npy", np.ones(3))
    for name in ("dict.pt", "row.npy"):
        with pytest.raises(ValueError, match="embeddings: expected one matrix in"):
            main(["--embeddings", str(tmp_path / name)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_orthogonal_rows_have_room_for_as_many_as_dimensions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: torch.dtype
) -> None:
    rotation = torch.linalg.qr(torch.randn(48, 48, dtype=torch.float64)).Q
    for name, matrix in {"identity": torch.eye(48), "rotation": rotation}.items():
        np.save(tmp_path / f"{name}.npy", matrix.to(dtype).numpy())
        answers = ask_json(capsys, "--embeddings", str(tmp_path / f"{name}.npy"))["answers"]
        assert [answer["epsilon"] for answer in answers] == [0, 0, 0, 0]
        assert [answer["capacity"] for answer in answers] == pytest.approx([48] * 4)
        assert not any(answer["extrapolates"] for answer in answers)
    text = ask(capsys, "--embeddings", str(tmp_path / "identity.npy"), "--law", "full")
    assert text.splitlines()[1].split() == ["48", "0", "full", "48", "-"]


def test_rows_that_point_away_from_each_other_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "simplex.npy", np.eye(5) - 0.2)
    with pytest.raises(ValueError, match=r"embeddings: .*simplex.npy: expected an epsilon of at"):
        main(["--embeddings", str(tmp_path / "simplex.npy")])


@pytest.mark.parametrize("name", ["empty.npy", "empty.pt", "text.npy", "text.pt", "nan.npy"])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("" if name.startswith("empty") else "no matrix\n")
    if name == "nan.npy":
        np.save(tmp_path / name, np.full((3, 3), np.nan))
    with pytest.raises(ValueError, match=rf"^embeddings: .*{name}: \S+") as refused:
        main(["--embeddings", str(tmp_path / name)])
    assert "\n" not in str(refused.value)


def test_a_flipped_bit_is_found_by_the_checksums(tmp_path: Path) -> None:
    torch.save(torch.eye(9), tmp_path / "eye.pt")
    content = bytearray((tmp_path / "eye.pt").read_bytes())
    content[content.index(torch.eye(9).numpy().tobytes())] ^= 1
    (tmp_path / "eye.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"^embeddings: .*eye.pt, which is damaged: Bad CRC-32"):
        main(["--embeddings", str(tmp_path / "eye.pt")])


def test_a_fit_that_no_law_can_take_is_refused(tmp_path: Path) -> None:
    one = tmp_path / "one.csv"
    one.write_text("k,d,max_abs_cosine\n100,8,0.7\n")
    with pytest.raises(ValueError, match=r"fit: expected at least 3 packings .*, got 1; run more"):
        main(["--fit", str(one)])
    with pytest.raises(ValueError, match=r"fit: expected at least 3 packings .*, got 1; run more"):
        main(["--fit", str(one), "--dim", "8", "--epsilon", "0.5"])


def test_a_deviation_that_no_cosine_reaches_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    text = ask(capsys, "--dim", "4", "--num_vectors", "1e30", "--law", "jl")
    assert text.splitlines()[1].endswith("beyond the law: no cosine is above 1")
    args = ("--dim", "16", "--num_vectors", "1e30", "100", "--law", "full", "ratio", "jl")
    answers = ask_json(capsys, *args)["answers"]
    marks = {(each["law"], each["num_vectors"]): each["beyond_law"] for each in answers}
    assert all(each["beyond_law"] == (each["epsilon"] >= 1) for each in answers)
    # sqrt(1.293 ln(1e30 / 16) / 16) = 2.3, sqrt(1.293 ln(100 / 16) / 16) = 0.38
    assert marks["ratio", 1e30] is True
    assert marks["ratio", 100] is False
    (forward,) = ask_json(capsys, "--dim", "16", "--epsilon", "0.9", "--law", "jl")["answers"]
    assert forward["beyond_law"] is False


def test_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["capacity", "--dim", "4096", "--epsilon", "0.0645", "--law", "full"]) == 0
    assert "3.99e7" in capsys.readouterr().out
    assert cli.main(["capacity", "--dim", "4096", "--epsilon", "-1"]) == 2
    expected = "error: epsilon: expected bounds on |cos|, above 0 and below 1, got -1\n"
    assert capsys.readouterr().err == expected


FEW = "k,d,max_abs_cosine\n5,10,0.1\n4,10,0.1\n6,20,0.1\n"


def test_a_range_of_one_number_is_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    answers = ask_json(capsys, "--dim", "10:10:5", "--epsilon", "0.1", "--law", "jl")["answers"]
    assert [answer["dim"] for answer in answers] == [10]


def test_a_figure_of_orthogonal_packings_alone_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "few.csv").write_text(FEW)
    args = ("--fit", str(tmp_path / "few.csv"), "--law", "jl")
    (fit,) = ask_json(capsys, *args)["fits"]
    assert fit["num_points"] == 3
    figure = tmp_path / "new" / "fit.png"
    match = "^figure: expected packings with more vectors than dimensions, got none of 3; leave"
    with pytest.raises(ValueError, match=match):
        main([*args, "--figure", str(figure)])
    assert capsys.readouterr().out == ""
    assert not figure.parent.exists()


def test_the_folder_of_a_figure_is_created_only_for_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = tmp_path / "new" / "folder" / "fit.svg"
    args = ("--fit", str(PUBLISHED_CSV), "--law", "ratio", "--figure", str(figure))
    with pytest.raises(ValueError, match=r"^dim: expected an integer of at least 1, got 0"):
        main([*args, "--dim", "0", "--epsilon", "0.1"])
    assert list(tmp_path.iterdir()) == []
    ask(capsys, *args)
    assert b"<svg" in figure.read_bytes()
