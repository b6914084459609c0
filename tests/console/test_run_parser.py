"""Which value wins, whom an option reaches, and what is said about it."""

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.tiny_run import TinyModel
from toolkit.cli import main
from toolkit.console.run_parser import files_first

CONFIGS = Path(__file__).parent.parent.parent / "configs"
TOY = f"--config={CONFIGS / 'toy.yaml'}"
POCKET = f"--config={CONFIGS / 'pocket.yaml'}"
PACKING = f"--config={CONFIGS / 'packing.yaml'}"
PYTHIA = f"--config={CONFIGS / 'pythia.yaml'}"
AUTOENCODER_LOSES = (
    "model: the change from SuperpositionAutoencoder to VectorPacking drops num_features, "
    "widths, weight_decay\n"
)


@pytest.fixture
def parsed(capsys: pytest.CaptureFixture[str]) -> Any:
    """The configuration that a command line makes, and what it says on standard error."""

    def parse(*args: str) -> tuple[Any, str]:
        assert main([*args, "--print_config"]) == 0, capsys.readouterr().err
        out, err = capsys.readouterr()
        return yaml.safe_load(out), err

    return parse


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Any:
    """The line that refuses a command line."""

    def refuse(*args: str) -> str:
        assert main(list(args)) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return err.removeprefix("error: ").rstrip()

    return refuse


def names(specs: list[dict[str, Any]]) -> list[str]:
    return [spec["class_path"].rpartition(".")[2] for spec in specs]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["-a", "--config", "x", "--b=1"], ["--config", "x", "-a", "--b=1"]),
        (["--b", "1", "-c", "x", "--config=y"], ["-c", "x", "--config=y", "--b", "1"]),
        (["--b=1", "-cx", "--trainer", "t.yaml"], ["-cx", "--trainer", "t.yaml", "--b=1"]),
        (["--model=A", "--config", "x"], ["--model=A", "--config", "x", "--model=A"]),
        (["--b=1", "--config"], ["--config", "--b=1"]),
        # A name that ends like that of a configuration is a value like any other.
        (["--texts.source=a.csv", "--texts.source=b.yaml"], None),
        (["--b=a.json", "--b=1", "--trainer=t.json"], ["--trainer=t.json", "--b=a.json", "--b=1"]),
        ([], []),
    ],
)
def test_files_come_first(args: list[str], expected: list[str] | None) -> None:
    assert files_first(args, ["model"], ["trainer"]) == (args if expected is None else expected)


def test_the_command_line_wins_wherever_it_stands(parsed: Any) -> None:
    options = ["--trainer.max_steps=7", "--seed_everything=3", "--trainer.callbacks+=Spectrum"]
    for args in ([*options, TOY], [TOY, *options], [options[0], TOY, *options[1:]]):
        config, err = parsed("fit", *args)
        assert (config["trainer"]["max_steps"], config["seed_everything"]) == (7, 3)
        assert names(config["trainer"]["callbacks"]) == [
            "ScalingLaw",
            "SuperpositionGeometry",
            "Spectrum",
        ]
        assert not err


def test_files_count_in_their_order(parsed: Any, tmp_path: Path) -> None:
    for name, steps in (("a", 1), ("b", 2)):
        (tmp_path / f"{name}.yaml").write_text(f"trainer:\n  max_steps: {steps}\n")
    a, b = (f"--config={tmp_path}/{name}.yaml" for name in "ab")
    assert parsed("fit", a, "--trainer.max_epochs=3", b)[0]["trainer"]["max_steps"] == 2
    assert parsed("fit", b, "--trainer.max_epochs=3", a)[0]["trainer"]["max_steps"] == 1
    # A file for a part of the configuration is a file, too.
    (tmp_path / "trainer.yaml").write_text("max_steps: 4\nmax_epochs: 5\n")
    config, _ = parsed("fit", "--trainer.max_steps=9", f"--trainer={tmp_path}/trainer.yaml")
    assert (config["trainer"]["max_steps"], config["trainer"]["max_epochs"]) == (9, 5)


def test_the_same_for_probe(parsed: Any) -> None:
    config, _ = parsed("probe", "--max_disk_gb=7", "--series.steps=pythia", PYTHIA)
    assert config["max_disk_gb"] == 7
    assert config["series"]["init_args"]["steps"] == "pythia"


def test_a_file_may_complete_the_class_of_the_command_line(parsed: Any, tmp_path: Path) -> None:
    (tmp_path / "lr.yaml").write_text("model:\n  init_args:\n    lr: 3\n")
    config, err = parsed("fit", "--model=VectorPacking", f"--config={tmp_path}/lr.yaml")
    assert config["model"]["init_args"]["lr"] == 3
    assert not err


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([TOY, "--model=VectorPacking"], AUTOENCODER_LOSES),
        (["--model=VectorPacking", TOY], AUTOENCODER_LOSES),
        ([TOY, PACKING], AUTOENCODER_LOSES),
        (
            [TOY, "--data.frequencies=ExponentialFrequencies"],
            (
                "data.frequencies: the change from PowerFrequencies to ExponentialFrequencies "
                "drops exponent\n"
            ),
        ),
        ([TOY, "--model=SuperpositionAutoencoder"], ""),
        ([TOY, "--data.frequencies=PowerFrequencies"], ""),
    ],
)
def test_a_change_of_class_names_what_it_drops(args: list[str], expected: str, parsed: Any) -> None:
    assert parsed("fit", *args)[1] == expected


def test_a_change_of_class_in_probe(parsed: Any) -> None:
    config, err = parsed("probe", PYTHIA, "--series=Models", "--series.names=[a]")
    assert config["series"]["init_args"]["names"] == ["a"]
    assert err == "series: the change from HubRevisions to Models drops repo, steps\n"


def test_an_option_of_the_list_says_whom_it_reached(parsed: Any) -> None:
    config, err = parsed("fit", TOY, "--trainer.callbacks.schedule=5")
    schedules = [c["init_args"]["schedule"] for c in config["trainer"]["callbacks"]]
    assert schedules == ["log", 5]
    assert err == (
        "trainer.callbacks.schedule: reaches SuperpositionGeometry alone, the last of 2; "
        "--trainer.callbacks.NAME.schedule reaches the one named\n"
    )
    assert not parsed("fit", PACKING, "--trainer.callbacks.schedule=5")[1]


def test_a_callback_is_reached_by_its_name(parsed: Any) -> None:
    config, err = parsed("fit", "--trainer.callbacks.ScalingLaw.schedule=5", TOY)
    callbacks = config["trainer"]["callbacks"]
    assert names(callbacks) == ["ScalingLaw", "SuperpositionGeometry"]
    assert [c["init_args"]["schedule"] for c in callbacks] == [5, "log"]
    assert not err


def test_a_callback_of_probe_and_its_texts(parsed: Any) -> None:
    config, err = parsed(
        "probe", PYTHIA, "--callbacks.SubspacePGA.k=50", "--callbacks.Spectrum.texts.num_test=7"
    )
    pga, probe, _, spectrum, _ = config["callbacks"]
    assert pga["init_args"]["k"] == 50
    assert pga["init_args"]["remove"] == [1, 5, 10]
    assert spectrum["init_args"]["texts"]["num_test"] == 7
    assert probe["init_args"]["texts"] is None
    assert not err


def test_one_of_several_by_its_number(parsed: Any, refused: Any) -> None:
    two = [TOY, "--trainer.callbacks+=ScalingLaw"]
    config, _ = parsed("fit", *two, "--trainer.callbacks.ScalingLaw.1.schedule=5")
    assert [c["init_args"]["schedule"] for c in config["trainer"]["callbacks"]] == [5, "log", "log"]
    config, _ = parsed("fit", *two, "--trainer.callbacks.ScalingLaw.2.schedule=5")
    assert [c["init_args"]["schedule"] for c in config["trainer"]["callbacks"]] == ["log", "log", 5]
    assert refused("fit", *two, "--trainer.callbacks.ScalingLaw.schedule=5") == (
        "trainer.callbacks.ScalingLaw.schedule: expected one ScalingLaw, found 2; "
        "--trainer.callbacks.ScalingLaw.1.schedule reaches the first"
    )
    assert refused("fit", *two, "--trainer.callbacks.ScalingLaw.3.schedule=5") == (
        "trainer.callbacks.ScalingLaw: expected a number from 1 to 2, got 3"
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["fit", TOY, "--trainer.callbacks.ScalingLow.schedule=5"],
            (
                "trainer.callbacks.ScalingLow: expected one of ScalingLaw, SuperpositionGeometry, "
                "got ScalingLow; did you mean ScalingLaw?"
            ),
        ),
        (
            ["fit", TOY, "--trainer.callbacks.ScalingLaw.scedule=5"],
            (
                "trainer.callbacks: callbacks.ScalingLaw has no argument 'scedule'; "
                "did you mean schedule?"
            ),
        ),
        (
            ["fit", "--trainer.callbacks=SubspacePCA"],
            "trainer.callbacks: no class named SubspacePCA; did you mean SubspacePGA?",
        ),
        (
            ["fit", "--model=Superposition"],
            "model: no class named Superposition; did you mean SuperpositionAutoencoder?",
        ),
        (
            ["fit", "--trainer.max_step=5"],
            "unrecognized arguments: --trainer.max_step=5; did you mean --trainer.max_steps?",
        ),
        (["fit", "--seed=5"], "unrecognized arguments: --seed=5; did you mean --seed_everything?"),
        (
            ["fit", TOY, "--model.lear=5"],
            (
                "model: toolkit.models.SuperpositionAutoencoder has no argument 'lear'; "
                "did you mean lr?"
            ),
        ),
        (
            ["fit", TOY, "--data.frequencies.expon=5"],
            (
                "data.frequencies: toolkit.data.PowerFrequencies has no argument 'expon'; "
                "did you mean exponent?"
            ),
        ),
        (
            ["fit", "--trainer.max_steps.x=3"],
            "trainer.max_steps: there is no argument 'x'; int has none",
        ),
        (
            ["fit", TOY, "--model.lr.x=3"],
            "model.lr: there is no argument 'x'; float has none",
        ),
        (["probe", "--dry"], "unrecognized arguments: --dry; did you mean --dry-run?"),
        (
            ["probe", PYTHIA, "--series.stps=log"],
            (
                "series: toolkit.lm.checkpoints.hub.HubRevisions has no argument 'stps'; "
                "did you mean steps?"
            ),
        ),
        (
            ["probe", TOY],
            (
                f"config {CONFIGS}/toy.yaml: expected a configuration of probe, got one of fit; "
                f"start it with python -m toolkit fit --config {CONFIGS}/toy.yaml"
            ),
        ),
        (
            ["validate", PYTHIA],
            (
                f"config {CONFIGS}/pythia.yaml: expected a configuration of validate, got one of "
                f"probe; start it with python -m toolkit probe --config {CONFIGS}/pythia.yaml"
            ),
        ),
        (
            ["capacity", "--epsilo", "3"],
            "unrecognized arguments: --epsilo 3; did you mean --epsilon?",
        ),
        (["epsilon", "x", "--cvs=y"], "unrecognized arguments: --cvs=y; did you mean --csv?"),
        (
            ["agree", "x", "y", "--num_text=3"],
            "unrecognized arguments: --num_text=3; did you mean --num_texts?",
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_what_is_unknown_is_refused_with_the_nearest(
    args: list[str], message: str, refused: Any
) -> None:
    assert refused(*args) == message


class NamedModel(TinyModel):
    """A model with a text among its arguments."""

    def __init__(self, name: str, tags: list[str] | None = None) -> None:
        super().__init__()
        self.save_hyperparameters()


def test_entries_of_a_nested_mapping_stand_side_by_side(parsed: Any) -> None:
    nested = ["--model.config.rope.factor=3", "--model.config.rope.kind=x", "--model.config.n=1e3"]
    config, _ = parsed("fit", POCKET, *nested)
    given = config["model"]["init_args"]["config"]
    assert given["rope"] == {"factor": 3, "kind": "x"}
    assert given["n"] == 1000.0
    assert given["model_type"] == "gpt_neox"


TEXTS = ["1e5", "7e10", "2e3", "1e400", "0x10", "1_000", "no", "12:30"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_stays_as_it_was_typed(text: str, parsed: Any, tmp_path: Path) -> None:
    typed, _ = parsed("fit", "--model=LanguageModel", f"--model.pretrained={text}", f"--run={text}")
    assert typed["model"]["init_args"]["pretrained"] == text
    assert typed["run"] == text
    path = tmp_path / "quoted.yaml"
    path.write_text(
        f"model: {{class_path: LanguageModel, init_args: {{pretrained: '{text}'}}}}\nrun: '{text}'"
    )
    quoted, _ = parsed("fit", f"--config={path}")
    assert quoted == typed


@pytest.mark.parametrize("text", TEXTS)
def test_a_printed_configuration_is_read_again(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--series=HubRevisions", f"--series.repo={text}", f"--run={text}"]
    args += ["--callbacks+=SubspacePGA", f"--callbacks.texts.source={text}"]
    assert main(["probe", *args, "--print_config"]) == 0
    printed = capsys.readouterr().out
    (tmp_path / "printed.yaml").write_text(printed)
    assert main(["probe", f"--config={tmp_path}/printed.yaml", "--print_config"]) == 0
    assert capsys.readouterr().out == printed
    config = yaml.safe_load(printed)
    assert config["series"]["init_args"]["repo"] == text
    assert config["callbacks"][0]["init_args"]["texts"]["source"] == text


def test_every_file_of_a_run_keeps_the_text(tmp_path: Path) -> None:
    where = [f"--trainer.default_root_dir={tmp_path}", "--trainer.enable_progress_bar=false"]
    model = [f"--model={NamedModel.__module__}.NamedModel", "--model.name=1e400"]
    args = ["--data=tests.tiny_run.TinyData", "--trainer.max_steps=1", "--run=7e10", *where]
    assert main(["fit", *model, "--model.tags=['2e3', x]", *args]) == 0
    folder = tmp_path / "7e10" / "version_0"
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["model"]["init_args"] == {"name": "1e400", "tags": ["2e3", "x"]}
    hparams = yaml.safe_load((folder / "hparams.yaml").read_text())
    assert (hparams["name"], hparams["tags"]) == ("1e400", ["2e3", "x"])
    assert main(["fit", f"--config={folder}/config.yaml"]) == 0
    again = tmp_path / "7e10" / "version_1"
    for name in ("config.yaml", "hparams.yaml"):
        assert (again / name).read_text() == (folder / name).read_text()


@pytest.mark.parametrize(("text", "got"), [("1e5", "100000.0"), ("12", "12"), ("no", "False")])
def test_a_number_where_a_text_is_due(text: str, got: str, refused: Any, tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(f"model: {{class_path: LanguageModel, init_args: {{pretrained: {text}}}}}\n")
    assert refused("fit", f"--config={path}") == (
        f"config {path}: model.pretrained: expected str, got {got}; "
        "put a text that looks like this in quotes"
    )


@pytest.mark.parametrize("text", ["a\\b", "it's", " x", '"x"', "1e5"])
def test_a_nested_text_stays_as_it_was_typed(text: str, parsed: Any) -> None:
    config, _ = parsed(
        "probe", "--series=Models", "--series.names=[a]", "--callbacks+=SubspacePGA",
        f"--callbacks.texts.source={text}",
    )  # fmt: skip
    assert config["callbacks"][0]["init_args"]["texts"]["source"] == text


@pytest.mark.parametrize("command", ["fit", "probe"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("data:\n  class_path: A\n  class_path: B\n", "line 3: key 'class_path' stands in line 2"),
        ("data: &a\n  init_args: *a\n", "line 2: alias *a stands inside &a itself"),
        ("a: " + "[" * 60 + "]" * 60, "line 1: expected at most 50 levels"),
        ("runn: x\n", "there is no option 'runn'; did you mean run?"),
    ],
    ids=["twice", "cycle", "depth", "unknown"],
)
def test_a_file_is_refused_by_name(
    command: str, content: str, message: str, refused: Any, tmp_path: Path
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    assert refused(command, f"--config={path}").startswith(f"config {path}: {message}")
