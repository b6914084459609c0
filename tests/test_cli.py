"""The command line from outside: exit codes, standard error, folders, continuing."""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import yaml  # type: ignore[import-untyped]
from torch import Tensor

from tests.runs.test_event_files import read_points
from tests.tiny_run import TinyModel
from toolkit import __version__
from toolkit.cli import join_negative_numbers, main
from toolkit.runs.table import read_measurements

ROOT = Path(__file__).parent.parent
TINY = ["--model=tests.tiny_run.TinyModel", "--data=tests.tiny_run.TinyData"]
TOY = [
    "--model=SuperpositionAutoencoder",
    "--model.num_features=12",
    "--model.widths=[2, 3]",
    "--data=SparseFeatures",
    "--data.num_features=12",
    "--data.batch_size=8",
    "--data.num_held_out=2",
    "--data.frequencies=PowerFrequencies",
    "--trainer.callbacks+=SuperpositionGeometry",
    "--trainer.callbacks.schedule=20",
]
QUIET = [
    "--trainer.enable_progress_bar=false",
    "--trainer.num_sanity_val_steps=0",
    "--trainer.log_every_n_steps=1",
]
EVERY_10 = ["--trainer.max_steps=40", "--checkpoint.every_n_train_steps=10"]


def fit(root: Path, *args: str, command: str = "fit") -> int:
    return main([command, *QUIET, f"--trainer.default_root_dir={root}", *args])


def shell(folder: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    """Run ``python -m toolkit`` as a user does, in a folder of the user's."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "toolkit", *args],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


def last_checkpoint(version_folder: Path) -> dict[str, Any]:
    checkpoint: dict[str, Any] = torch.load(
        version_folder / "checkpoints" / "last.ckpt", weights_only=True
    )
    return checkpoint


def assert_same_state(first: Any, second: Any) -> None:
    """Equal to the last bit, containers included."""
    if isinstance(first, Tensor):
        assert torch.equal(first, second)
    elif isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            assert_same_state(first[key], second[key])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for left, right in zip(first, second, strict=True):
            assert_same_state(left, right)
    else:
        # In a form in which NaN equals itself.
        assert repr(first) == repr(second)


def assert_same_run(first: Path, second: Path) -> None:
    """Same weights, optimiser, callbacks' history, table and TensorBoard points."""
    ours, theirs = last_checkpoint(first), last_checkpoint(second)
    for key in ("global_step", "state_dict", "optimizer_states", "lr_schedulers"):
        assert_same_state(ours[key], theirs[key])
    histories = [
        {key: state for key, state in checkpoint["callbacks"].items() if "history" in state}
        for checkpoint in (ours, theirs)
    ]
    assert_same_state(*histories)
    points = read_points(first)
    assert repr(points) == repr(read_points(second))
    for tag, values in points.items():
        steps = [step for step, _ in values]
        # Lightning logs the epoch with training and with validation.
        assert tag == "epoch" or steps == sorted(set(steps)), tag
    tables = [
        [row._replace(run="") for row in read_measurements(folder / "measurements.csv")]
        if (folder / "measurements.csv").exists()
        else []
        for folder in (first, second)
    ]
    assert list(map(repr, tables[0])) == list(map(repr, tables[1]))


# The entry


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_names_every_command(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for name in ("fit", "validate", "test", "predict", "capacity", "--debug", "--version"):
        assert f"\n  {name}" in out or f", {name}" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr() == (f"{__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--help"], "--version"),
        (["--version"], __version__),
        (["probe", "--help"], "--dry_run"),
        (["capacity", "--help"], "FIRST:LAST:STEP"),
        (["epsilon", "--help"], "--unembedding"),
        (["agree", "--help"], "--num_random"),
    ],
)
def test_help_and_version_do_not_import_torch(args: list[str], told: str) -> None:
    code = (
        "import sys; from toolkit.cli import main; "
        f"assert main({args!r}) == 0; "
        "assert not {'torch', 'lightning', 'jsonargparse'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert told in done.stdout


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ([], "got none; see --help"),
        (["fti"], "got 'fti'; did you mean fit?"),
        (["--model", "fit"], "got '--model'; see --help"),
    ],
)
def test_an_unknown_command(
    args: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    commands = "fit, validate, test, predict, probe, capacity, epsilon, agree"
    message = f"error: command: expected one of {commands}, {problem}\n"
    assert capsys.readouterr() == ("", message)


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: python -m toolkit [options] fit")
    assert "--run " in out
    assert "--checkpoint.every_n_train_steps" in out


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--lr", "-1e-2"], ["--lr=-1e-2"]),
        (["--lr", "-0.5", "--x", "-3"], ["--lr=-0.5", "--x=-3"]),
        (["--lr", "-.5", "--x", "-1.E+3", "-inf"], ["--lr=-.5", "--x=-1.E+3", "-inf"]),
        (["--lr=1", "-2"], ["--lr=1", "-2"]),
        (["fit", "-2"], ["fit", "-2"]),
        (["--lr", "1e-3"], ["--lr", "1e-3"]),
        (["-c", "toy.yaml"], ["-c", "toy.yaml"]),
        (["--x", "-c"], ["--x", "-c"]),
        (["-2"], ["-2"]),
    ],
)
def test_join_negative_numbers(args: list[str], expected: list[str]) -> None:
    before = list(args)
    assert join_negative_numbers(args) == expected
    assert args == before


# What is wrong, in one line


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--model.widht=3"],
            "model: tests.tiny_run.TinyModel has no argument 'widht'; did you mean width?",
        ),
        (["--model.width=abc"], "model.width: expected int, got abc"),
        (["--model.width=0"], "width: expected at least 1, got 0"),
        (["--data.rates=[1, x]"], "data.rates: expected float, got x"),
        (["--trainer.max_steps=x"], "trainer.max_steps: expected int, got x"),
        (
            ["--trainer.max_stepz=3"],
            "unrecognized arguments: --trainer.max_stepz=3; did you mean --trainer.max_steps?",
        ),
        (["--config=none.yaml"], "config none.yaml: File does not exist: '{cwd}/none.yaml'"),
        (
            ["--ckpt_path=none.ckpt"],
            "ckpt_path: expected an existing file or 'last', got none.ckpt",
        ),
        (["--run=../x"], "run: expected the name of a folder, got '../x'; give --run NAME"),
        (
            ["--trainer.callbacks=Nope"],
            (
                "trainer.callbacks: no class named Nope; "
                "give a full class_path for a class of your own"
            ),
        ),
        (
            ["--trainer.callbacks=tests.tiny_run.EndAt", "--trainer.callbacks.step=x"],
            "trainer.callbacks.step: expected int, got x",
        ),
        (
            ["--trainer.callbacks=SuperpositionGeometry", "--trainer.callbacks.schedule=0"],
            (
                "schedule: expected a positive integer, a list of non-negative integers or 'log', "
                "got 0"
            ),
        ),
        (["--model.fail_in=setup"], "fail_in: expected another place, got setup"),
        (
            ["--model.fail_in=configure_optimizers"],
            "fail_in: expected another place, got configure_optimizers",
        ),
        (
            ["--model.fail_in=validation_step", "--trainer.num_sanity_val_steps=1"],
            "fail_in: expected another place, got validation_step",
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_an_early_failure_is_one_line(
    tmp_path: Path, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(tmp_path, *TINY, "--trainer.max_steps=3", *args) == 2
    expected = message.format(cwd=Path.cwd())
    assert capsys.readouterr().err == f"error: {expected}\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: b: c\n", "Problems parsing config: mapping values are not allowed in this context"),
        ("- a\n", "Unexpected config: - a"),
        ("trainer:\n  max_steps: x\n", "trainer.max_steps: expected int, got x"),
    ],
    ids=["no YAML", "no mapping", "wrong type"],
)
def test_a_config_that_cannot_be_read_is_named(
    tmp_path: Path, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(content)
    assert fit(tmp_path, "-c", str(path)) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: config {path}: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("modle: x\n", "there is no option 'modle'; did you mean model?"),
        (
            "trainer:\n  max_stepz: 3\n",
            "there is no option 'trainer.max_stepz'; did you mean trainer.max_steps?",
        ),
    ],
    ids=["first level", "second level"],
)
def test_an_unknown_key_of_a_config(
    tmp_path: Path, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(content)
    assert fit(tmp_path, "-c", str(path), *TINY) == 2
    assert capsys.readouterr().err == f"error: config {path}: {message}\n"


@pytest.mark.parametrize("command", ["fit", "validate", "test", "predict"])
def test_a_model_is_needed(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(tmp_path, command=command) == 2
    assert (
        capsys.readouterr().err == "error: model: expected a class, got none; give --model NAME\n"
    )


@pytest.mark.parametrize("position", [0, 1, 5])
def test_debug_shows_the_traceback(
    tmp_path: Path, position: int, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["fit", *QUIET, *TINY, "--trainer.max_steps=3", "--model.fail_in=setup"]
    args.append(f"--trainer.default_root_dir={tmp_path}")
    args.insert(position, "--debug")
    assert main(args) == 2
    err = capsys.readouterr().err
    assert "written before the failure\n" in err
    assert "in _pass_through" in err
    assert err.endswith("ValueError: fail_in: expected another place, got setup\n")


def test_a_failure_of_the_first_step_shows_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(tmp_path, *TINY, "--trainer.max_steps=3", "--model.fail_in=training_step") == 1
    err = capsys.readouterr().err
    assert "in training_step" in err
    assert err.endswith("ValueError: fail_in: expected another place, got training_step\n")


@pytest.mark.parametrize(("by", "code"), [("interrupt", 130), ("terminate", 143)])
def test_a_signal_keeps_the_step_and_says_how_to_go_on(
    tmp_path: Path, by: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = ["--trainer.callbacks=tests.tiny_run.EndAt", "--trainer.callbacks.step=12"]
    assert fit(tmp_path, *TINY, *EVERY_10, *ending, f"--trainer.callbacks.by={by}") == code
    err = capsys.readouterr().err
    version = tmp_path / "tiny_model" / "version_0"
    *_, said, kept, command = err.splitlines()
    assert "Traceback" not in err
    assert said == "interrupted"
    assert kept == f"step 12 is kept, in {version / 'checkpoints' / 'last.ckpt'}; go on with"
    assert command.startswith("  python -m toolkit fit --trainer.enable_progress_bar=false ")
    assert command.endswith(f" --trainer.callbacks.by={by} --ckpt_path last")
    assert last_checkpoint(version)["global_step"] == 12
    assert not (version / "summary.json").exists()


def test_callbacks_of_somebody_else_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "callbacks").mkdir()
    (tmp_path / "callbacks" / "__init__.py").write_text("raise SystemExit('imported')\n")
    done = shell(tmp_path, "fit", *TINY)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: callbacks: expected the toolkit's package at {ROOT / 'callbacks'}, got "
        f"{tmp_path / 'callbacks' / '__init__.py'}; rename yours or run from another folder\n"
    )


# Numbers


@pytest.mark.parametrize("number", ["1e-3", "-1e-2", "-0.5", "2", "-.5", "-1E-2"])
@pytest.mark.parametrize("way", ["space", "equals", "yaml"])
def test_numbers_are_floats(
    tmp_path: Path, number: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = {
        "space": ["--model.lr", number],
        "equals": [f"--model.lr={number}"],
        "yaml": [f"--config={tmp_path / 'lr.yaml'}"],
    }[way]
    (tmp_path / "lr.yaml").write_text(f"model:\n  init_args:\n    lr: {number}\n")
    assert main(["fit", *TINY, *args, "--print_config"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["model"]["init_args"]["lr"] == float(number)
    assert isinstance(config["model"]["init_args"]["lr"], float)


@pytest.mark.parametrize(
    "args",
    [["--data.rates=[1e-3, -1e-2, -0.5]"], ["--data.rates", "[1e-3,-1e-2,-0.5]"]],
    ids=["equals", "space"],
)
def test_numbers_in_lists_are_floats(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", *TINY, *args, "--print_config"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["data"]["init_args"]["rates"] == [1e-3, -1e-2, -0.5]


# Run folders


def test_a_run_leaves_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(tmp_path, *TOY, "--trainer.max_steps=12") == 0
    run = tmp_path / "superposition_autoencoder"
    version = run / "version_0"
    out = capsys.readouterr().out
    assert "After step 12" in out
    assert out.splitlines()[-1] == f"tensorboard --logdir {run}"
    names = {path.name.partition(".")[0] for path in version.iterdir()}
    assert names >= {"config", "checkpoints", "events", "measurements", "summary"}
    assert json.loads((version / "summary.json").read_text())["step"] == 12
    checkpoint = last_checkpoint(version)
    assert checkpoint["global_step"] == 12
    assert {row.step for row in read_measurements(version / "measurements.csv")} >= {0, 12}
    assert not list(version.rglob("*.tmp"))


@pytest.mark.parametrize("steps", [19, 20, 23])
def test_the_last_checkpoint_is_of_the_last_step(tmp_path: Path, steps: int) -> None:
    args = [f"--trainer.max_steps={steps}", "--checkpoint.every_n_train_steps=10"]
    assert fit(tmp_path, *TINY, *args) == 0
    version = tmp_path / "tiny_model" / "version_0"
    assert last_checkpoint(version)["global_step"] == steps
    latest = "step=10.ckpt" if steps < 20 else "step=20.ckpt"
    names = {path.name for path in (version / "checkpoints").iterdir()}
    assert names == {"last.ckpt", latest}


@pytest.mark.parametrize(
    ("args", "name"),
    [(["--run=mine"], "mine"), (["--run=sweep/a"], "sweep/a"), ([], "small")],
)
def test_the_run_is_named_after_the_option_or_the_config(
    tmp_path: Path, args: list[str], name: str
) -> None:
    config = tmp_path / "small.yaml"
    config.write_text("trainer:\n  max_steps: 2\n")
    assert fit(tmp_path, *TINY, f"--config={config}", *args) == 0
    saved = yaml.safe_load((tmp_path / name / "version_0" / "config.yaml").read_text())
    assert saved["run"] == name


def test_the_saved_config_repeats_the_run(tmp_path: Path) -> None:
    assert fit(tmp_path, *TOY, "--trainer.max_steps=12", "--seed_everything=3", "--run=first") == 0
    saved = tmp_path / "first" / "version_0" / "config.yaml"
    config = yaml.safe_load(saved.read_text())
    assert config["ckpt_path"] is None
    assert config["trainer"]["logger"] is None
    assert config["seed_everything"] == 3
    assert main(["fit", f"--config={saved}"]) == 0
    assert_same_run(tmp_path / "first" / "version_0", tmp_path / "first" / "version_1")
    again = tmp_path / "first" / "version_1" / "config.yaml"
    assert again.read_text() == saved.read_text()


def test_the_seed_is_zero_by_default(tmp_path: Path) -> None:
    assert fit(tmp_path, *TINY, "--trainer.max_steps=2", "--run=a") == 0
    assert fit(tmp_path, *TINY, "--trainer.max_steps=2", "--run=b", "--seed_everything=0") == 0
    assert fit(tmp_path, *TINY, "--trainer.max_steps=2", "--run=c", "--seed_everything=1") == 0
    weights = [last_checkpoint(tmp_path / n / "version_0")["state_dict"] for n in "abc"]
    assert_same_state(weights[0], weights[1])
    assert not torch.equal(weights[0]["layer.weight"], weights[2]["layer.weight"])


def test_a_logger_of_the_users_own_is_respected(tmp_path: Path) -> None:
    logger = ["--trainer.logger=CSVLogger", f"--trainer.logger.save_dir={tmp_path / 'own'}"]
    assert fit(tmp_path, *TINY, "--trainer.max_steps=2", *logger) == 0
    version = tmp_path / "own" / "lightning_logs" / "version_0"
    assert {"config.yaml", "summary.json", "metrics.csv"} <= {p.name for p in version.iterdir()}
    assert not (tmp_path / "tiny_model").exists()


def test_without_a_logger_the_run_has_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for version in range(2):
        assert fit(tmp_path, *TINY, "--trainer.max_steps=2", "--trainer.logger=false") == 0
        folder = tmp_path / "tiny_model" / f"version_{version}"
        assert {p.name for p in folder.iterdir()} == {"config.yaml", "summary.json", "checkpoints"}
    assert "tensorboard" not in capsys.readouterr().out


def test_a_folder_of_another_run_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = ["--trainer.logger=TensorBoardLogger", f"--trainer.logger.save_dir={tmp_path / 'own'}"]
    logger.append("--trainer.logger.version=3")
    assert fit(tmp_path, *TINY, "--trainer.max_steps=2", *logger) == 0
    capsys.readouterr()
    assert fit(tmp_path, *TINY, "--trainer.max_steps=3", *logger) == 2
    assert capsys.readouterr().err == (
        "error: trainer.logger: expected a folder without an earlier run, got "
        f"{tmp_path / 'own' / 'lightning_logs' / 'version_3'}; give it another name or version\n"
    )


@pytest.mark.parametrize(
    "option", ["--trainer.enable_checkpointing=false", "--trainer.fast_dev_run=1"]
)
def test_no_checkpoint_where_none_is_wanted(tmp_path: Path, option: str) -> None:
    assert fit(tmp_path, *TINY, "--trainer.max_steps=2", option) == 0
    assert not list(tmp_path.rglob("*.ckpt"))
    assert len(list(tmp_path.rglob("summary.json"))) == ("fast_dev_run" not in option)


@pytest.mark.filterwarnings("ignore:You are trying to `self.log\\(\\)`:UserWarning")
def test_a_bare_run_has_nothing_that_costs_time(tmp_path: Path) -> None:
    root = f"--trainer.default_root_dir={tmp_path}"
    assert main(["fit", *TINY, root, "--trainer.max_steps=2", "--trainer.barebones=true"]) == 0
    version = tmp_path / "tiny_model" / "version_0"
    assert {path.name for path in version.iterdir()} == {"config.yaml", "summary.json"}


def test_another_interval_replaces_that_in_steps(tmp_path: Path) -> None:
    epochs = ["--trainer.limit_train_batches=3", "--trainer.max_epochs=2"]
    assert fit(tmp_path, *TINY, *epochs, "--checkpoint.every_n_epochs=1") == 0
    checkpoints = tmp_path / "tiny_model" / "version_0" / "checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == {"last.ckpt", "step=6.ckpt"}


# Continuing

ENDING = ["--trainer.callbacks+=tests.tiny_run.EndAt", "--trainer.callbacks.step=25"]


@pytest.mark.parametrize(
    "kind", [TINY, [*TINY, "--trainer.logger=false"], TOY], ids=["tiny", "no logger", "toy"]
)
def test_a_broken_run_continues_in_its_folder(
    tmp_path: Path, kind: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(tmp_path, *kind, *EVERY_10, "--run=whole") == 0
    assert fit(tmp_path, *kind, *EVERY_10, "--run=broken", *ENDING) == 1
    capsys.readouterr()
    assert fit(tmp_path, *kind, *EVERY_10, "--run=broken", "--ckpt_path=last") == 0
    assert "unfinished" not in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "broken").iterdir()] == ["version_0"]
    assert_same_run(tmp_path / "whole" / "version_0", tmp_path / "broken" / "version_0")
    names = {path.name for path in (tmp_path / "broken" / "version_0" / "checkpoints").iterdir()}
    assert names == {"last.ckpt", "step=40.ckpt"}


@pytest.mark.parametrize(
    ("damage", "steps"),
    [
        ("deleted", "0, 5, 10, 15, 20, 25"),
        pytest.param("zeros", "10", marks=pytest.mark.slow),
    ],
)
def test_what_tensorboard_has_lost_is_written_again(
    tmp_path: Path, damage: str, steps: str, caplog: pytest.LogCaptureFixture
) -> None:
    toy = [*TOY[:-1], "--trainer.callbacks.schedule=5"]
    toy += ["--trainer.callbacks+=ScalingLaw", "--trainer.callbacks.schedule=5"]
    assert fit(tmp_path, *toy, *EVERY_10, "--run=whole") == 0
    assert fit(tmp_path, *toy, *EVERY_10, "--run=broken", *ENDING) == 1
    whole, broken = (tmp_path / name / "version_0" for name in ("whole", "broken"))
    (events,) = broken.glob("events.out.tfevents.*")
    if damage == "deleted":
        events.unlink()
        warned: Any = contextlib.nullcontext()
    else:
        content = events.read_bytes()
        third, half = len(content) // 3, len(content) // 2
        events.write_bytes(content[:third] + bytes(half - third) + content[half:])
        warned = pytest.warns(UserWarning, match="bytes are damaged; the points in them are lost")
    with warned, caplog.at_level("INFO"):
        assert fit(tmp_path, *toy, *EVERY_10, "--run=broken", "--ckpt_path=last") == 0
    expected, points = (read_points(folder) for folder in (whole, broken))
    measured = [t for t in expected if t.startswith(("scaling/", "superposition/"))]
    assert "scaling/loss_against_width" in measured
    for tag in measured:
        found, known = (sorted(where.get(tag, [])) for where in (points, expected))
        if tag in {"superposition/norm_histogram", "superposition/overlap_against_width"}:
            # They take the weights of their step.
            assert set(found) < set(known), tag
        else:
            assert repr(found) == repr(known), tag
    said = f"superposition: TensorBoard lacks the figures of step {steps}, which take the weights"
    assert said in caplog.text
    assert "scaling: TensorBoard lacks" not in caplog.text


def test_a_new_run_names_the_unfinished_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(tmp_path, *TINY, *EVERY_10, *ENDING) == 1
    capsys.readouterr()
    assert fit(tmp_path, *TINY, *EVERY_10) == 0
    run = tmp_path / "tiny_model"
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == f"{run / 'version_0'} is unfinished: --ckpt_path last continues it"
    assert last_checkpoint(run / "version_1")["global_step"] == 40
    assert last_checkpoint(run / "version_0")["global_step"] == 25


def test_trying_one_step_leaves_the_unfinished_run_alone(tmp_path: Path) -> None:
    assert fit(tmp_path, *TINY, *EVERY_10, *ENDING) == 1
    version = tmp_path / "tiny_model" / "version_0"
    before = read_points(version)
    assert fit(tmp_path, *TINY, "--ckpt_path=last", "--trainer.fast_dev_run=1") == 0
    assert read_points(version) == before
    assert len(before["own/loss"]) == 25


def test_nothing_to_continue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(tmp_path, *TINY, "--trainer.max_steps=2") == 0
    capsys.readouterr()
    assert fit(tmp_path, *TINY, "--trainer.max_steps=4", "--ckpt_path=last") == 2
    assert capsys.readouterr().err == (
        f"error: ckpt_path: expected an unfinished run in {tmp_path / 'tiny_model'}, found none; "
        "leave it out to start a new one\n"
    )


def test_last_needs_the_default_logger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = ["--trainer.logger=CSVLogger", f"--trainer.logger.save_dir={tmp_path / 'own'}"]
    assert fit(tmp_path, *TINY, *logger, "--ckpt_path=last") == 2
    assert capsys.readouterr().err == (
        "error: ckpt_path: 'last' is known for the default logger alone; give the file's path\n"
    )


def test_a_path_starts_a_new_folder_from_that_checkpoint(tmp_path: Path) -> None:
    assert fit(tmp_path, *TINY, "--trainer.max_steps=10") == 0
    run = tmp_path / "tiny_model"
    checkpoint = run / "version_0" / "checkpoints" / "last.ckpt"
    before = checkpoint.read_bytes()
    assert fit(tmp_path, *TINY, "--trainer.max_steps=20", f"--ckpt_path={checkpoint}") == 0
    assert checkpoint.read_bytes() == before
    assert fit(tmp_path, *TINY, "--trainer.max_steps=20", "--run=whole") == 0
    whole = last_checkpoint(tmp_path / "whole" / "version_0")
    continued = last_checkpoint(run / "version_1")
    for key in ("global_step", "state_dict", "optimizer_states"):
        assert_same_state(whole[key], continued[key])
    assert yaml.safe_load((run / "version_1" / "config.yaml").read_text())["ckpt_path"] is None


def test_a_checkpoint_with_a_flipped_bit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(tmp_path, *TINY, "--trainer.max_steps=3") == 0
    checkpoint = tmp_path / "tiny_model" / "version_0" / "checkpoints" / "last.ckpt"
    content = bytearray(checkpoint.read_bytes())
    weight = next(iter(last_checkpoint(checkpoint.parent.parent)["state_dict"].values()))
    content[content.index(weight.numpy().tobytes())] ^= 1
    checkpoint.write_bytes(content)
    capsys.readouterr()
    assert fit(tmp_path, *TINY, "--trainer.max_steps=6", f"--ckpt_path={checkpoint}") == 2
    line = capsys.readouterr().err
    assert line.startswith(
        f"error: ckpt_path: expected a whole file of torch.save, got {checkpoint}"
    )
    assert "which is damaged: Bad CRC-32 for file" in line
    assert line.count("\n") == 1


def test_settings_given_when_continuing_count(tmp_path: Path) -> None:
    assert fit(tmp_path, *TINY, *EVERY_10, *ENDING, "--model.lr=0.1") == 1
    assert fit(tmp_path, *TINY, *EVERY_10, "--ckpt_path=last", "--model.lr=0.025") == 0
    version = tmp_path / "tiny_model" / "version_0"
    assert last_checkpoint(version)["hyper_parameters"]["lr"] == 0.025
    settings = [
        yaml.safe_load((version / name).read_text())["model"]["init_args"]["lr"]
        for name in ("config_before_step_25.yaml", "config.yaml")
    ]
    assert settings == [0.1, 0.025]


def test_a_continued_run_that_was_at_its_end_is_finished(tmp_path: Path) -> None:
    assert fit(tmp_path, *TOY, "--trainer.max_steps=12") == 0
    version = tmp_path / "superposition_autoencoder" / "version_0"
    summary = (version / "summary.json").read_text()
    rows = read_measurements(version / "measurements.csv")
    (version / "summary.json").unlink()
    assert fit(tmp_path, *TOY, "--trainer.max_steps=12", "--ckpt_path=last") == 0
    assert (version / "summary.json").read_text() == summary
    assert read_measurements(version / "measurements.csv") == rows
    assert [path.name for path in version.glob("config*")] == ["config.yaml"]


# Other commands


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_a_checkpoint_brings_its_model(tmp_path: Path, command: str) -> None:
    assert fit(tmp_path, *TINY, "--trainer.max_steps=5", "--model.width=2", "--run=a") == 0
    data = TINY[1]
    assert fit(tmp_path, data, "--ckpt_path=last", "--run=a", command=command) == 0
    checkpoint = tmp_path / "a" / "version_0" / "checkpoints" / "last.ckpt"
    assert fit(tmp_path, data, f"--ckpt_path={checkpoint}", command=command) == 0
    saved = yaml.safe_load((tmp_path / "tiny_model" / "version_0" / "config.yaml").read_text())
    assert saved["model"]["init_args"]["width"] == 2


def test_a_model_beside_the_checkpoint_is_taken_as_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(tmp_path, *TINY, "--trainer.max_steps=5", "--model.width=2") == 0
    args = [*TINY, "--model.width=4", "--ckpt_path=last"]
    capsys.readouterr()
    assert fit(tmp_path, *args, command="validate") == 2
    err = capsys.readouterr().err
    assert "size mismatch for layer.weight" in err
    assert err.count("\n") == 1


def test_a_checkpoint_without_a_class_needs_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = L.Trainer(
        default_root_dir=tmp_path, logger=False, max_steps=1, barebones=True, accelerator="cpu"
    )
    trainer.strategy.connect(TinyModel())
    trainer.save_checkpoint(tmp_path / "plain.ckpt", weights_only=False)
    assert fit(tmp_path, TINY[1], f"--ckpt_path={tmp_path / 'plain.ckpt'}", command="validate") == 2
    assert (
        capsys.readouterr().err == "error: model: expected a class, got none; give --model NAME\n"
    )


# In a shell of its own


def test_a_run_is_calm(tmp_path: Path) -> None:
    config = yaml.safe_dump({"trainer": {"max_steps": 5, "log_every_n_steps": 1}})
    (tmp_path / "toy.yaml").write_text(config)
    done = shell(tmp_path, "fit", "--config", "toy.yaml", *TOY)
    assert done.returncode == 0
    *_, last = done.stdout.splitlines()
    assert last == "tensorboard --logdir checkpoints/toy"
    assert "Training" in done.stdout
    assert "5/5" in done.stdout
    assert "v_num" not in done.stdout
    assert done.stderr.splitlines() == [
        "Seed set to 0",
        done.stderr.splitlines()[1],
        "`Trainer.fit` stopped: `max_steps=5` reached.",
    ]
    assert done.stderr.splitlines()[1].startswith("GPU available: ")
    assert (tmp_path / "checkpoints" / "toy" / "version_0" / "summary.json").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--model.fail_in=setup"], "fail_in: expected another place, got setup"),
        pytest.param(["--model.width=0"], "width: expected at least 1", marks=pytest.mark.slow),
        pytest.param(["--nope"], "unrecognized arguments: --nope", marks=pytest.mark.slow),
    ],
    ids=["setup", "building", "parsing"],
)
def test_an_early_failure_is_one_line_in_a_shell(
    tmp_path: Path, args: list[str], message: str
) -> None:
    done = shell(tmp_path, "fit", *TINY, *args, "--trainer.max_steps=3")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [TINY, TOY], ids=["tiny", "toy"])
@pytest.mark.parametrize("step", [20, 25, 40])
def test_a_killed_run_continues_as_if_nothing_had_happened(
    tmp_path: Path, kind: list[str], step: int
) -> None:
    args = ["fit", *kind, *EVERY_10, "--trainer.log_every_n_steps=1"]
    killing = [
        "--trainer.callbacks+=tests.tiny_run.EndAt",
        f"--trainer.callbacks.step={step}",
        "--trainer.callbacks.by=kill",
    ]
    assert shell(tmp_path, *args, "--run=whole").returncode == 0
    assert shell(tmp_path, *args, "--run=killed", *killing).returncode == -9
    done = shell(tmp_path, *args, "--run=killed", "--ckpt_path", "last")
    assert done.returncode == 0, done.stderr
    runs = tmp_path / "checkpoints"
    assert [path.name for path in (runs / "killed").iterdir()] == ["version_0"]
    assert_same_run(runs / "whole" / "version_0", runs / "killed" / "version_0")


def test_refuses_more_processes_than_a_machine_can_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fit(tmp_path, *TINY, "--trainer.accelerator=cpu", "--trainer.devices=7000") == 2
    err = capsys.readouterr().err
    assert re.fullmatch(
        r"error: trainer\.devices: expected at most \d+ on this machine, one process each, "
        r"got 7000\n",
        err,
    )
    assert not list(tmp_path.iterdir())
