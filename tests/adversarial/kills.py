"""Kill runs of ``fit`` and ``probe`` at random moments, continue them, compare with whole ones.

``python -m tests.adversarial.kills --moments 60`` sends SIGKILL, SIGTERM and SIGINT in turn, each
at a seeded point of a run's progress and a seeded instant behind it. What was ended is continued,
and ended again, until it comes to its end. Then its weights, table and TensorBoard points have to
be those of a run that nothing has ended.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Its first import sets environment variables, which must not look like a test's.
import lightning as L
import numpy as np
import torch
import yaml  # type: ignore[import-untyped]
from torch import Tensor

# What each process would import anew.
import toolkit.commands.probe.command
import toolkit.commands.train.command  # noqa: F401
from tests.callbacks.language import write_texts
from tests.data.tiny_corpus import write_folder
from tests.lm.listed_hub import save_revision
from tests.runs.test_event_files import read_points
from toolkit.cli import main as run_toolkit

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
EXIT_CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
_SECONDS_BEHIND = 0.03
_SECONDS_TO_START = 0.5
_SHARE_OF_STARTS = 1 / 6
_SECONDS_AT_MOST = 300.0
_PACE = "pace"


class Pace(L.Callback):
    """Tells how many batches a run has begun, in a file whose length is their number."""

    def __init__(self, path: str) -> None:
        self.path = path

    def on_train_batch_start(self, *args: Any) -> None:
        with Path(self.path).open("ab", buffering=0) as file:
            file.write(b".")


@dataclass(frozen=True)
class Kind:
    """A kind of run.

    Attributes:
        name: Its name.
        command: ``fit`` or ``probe``.
        config: Its configuration, apart from paths.
        length: How far its progress goes: batches of a ``fit``, lines of a walk's table.
    """

    name: str
    command: str
    config: dict[str, Any]
    length: int


@dataclass
class Outcome:
    """What came of one run.

    Attributes:
        codes: How its processes ended, those that a signal was sent to, by signal and code.
        anew: How often nothing had been kept, so that it was started anew.
        differences: Where it differs from the whole run.
    """

    codes: list[tuple[signal.Signals, int]] = field(default_factory=list)
    anew: int = 0
    differences: list[str] = field(default_factory=list)


def kinds(folder: Path) -> list[Kind]:
    """Return the shrunken kinds of runs; their texts and checkpoints are written to a folder."""
    texts = {"source": str(write_texts(folder)), "num_train": 16, "num_test": 12}
    for step in range(5):
        save_revision(folder / "hf" / f"step-{step}", seed=step)
    return [_toy(), _packing(), _pocket(folder, texts), _walk(folder, texts)]


def _fit(name: str, steps: int, **parts: Any) -> Kind:
    trainer = {
        "max_steps": steps,
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "log_every_n_steps": 1,
        "val_check_interval": 7,
        "check_val_every_n_epoch": None,
        "callbacks": parts.pop("callbacks"),
    }
    checkpoint = {"every_n_train_steps": 7}
    return Kind(name, "fit", {"trainer": trainer, "checkpoint": checkpoint, **parts}, steps)


def _class(class_path: str, **arguments: Any) -> dict[str, Any]:
    return {"class_path": class_path, "init_args": arguments}


def _toy() -> Kind:
    return _fit(
        "toy",
        60,
        model=_class("SuperpositionAutoencoder", num_features=24, widths=[2, 3, 5]),
        data=_class("SparseFeatures", num_features=24, batch_size=16, num_held_out=2),
        callbacks=[_class("ScalingLaw", schedule=6), _class("SuperpositionGeometry", schedule=4)],
    )


def _packing() -> Kind:
    return _fit(
        "packing",
        60,
        model=_class("VectorPacking", num_vectors=60, dim=8),
        callbacks=[_class("PackingGeometry", schedule=5)],
    )


def _pocket(folder: Path, texts: dict[str, Any]) -> Kind:
    shape = {
        "model_type": "gpt_neox",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 64,
        "hidden_dropout": 0.1,
        "attention_dropout": 0.1,
    }
    return _fit(
        "pocket",
        40,
        model=_class("LanguageModel", config=shape),
        data=_class(
            "TextCorpus",
            source=str(write_folder(folder / "corpus")),
            vocab_size=300,
            block_size=16,
            batch_size=16,
            held_out_fraction=0.1,
            cache_dir=str(folder / "cache"),
        ),
        callbacks=[
            _class("CheckpointSchedule", schedule=9),
            _class("SubspacePGA", texts=texts, k=3, num_null=4, schedule=7),
            _class("LinearProbe", texts=texts, schedule=10),
            _class("EmbeddingDeviation", schedule=7),
        ],
    )


def _walk(folder: Path, texts: dict[str, Any]) -> Kind:
    callbacks = [
        _class("SubspacePGA", texts=texts, k=3, num_null=4),
        _class("LinearProbe", texts=texts),
        _class("EmbeddingDeviation"),
    ]
    series = _class("LocalFolders", pattern=str(folder / "hf" / "*"), name="tiny")
    config = {"series": series, "callbacks": callbacks, "accelerator": "cpu"}
    return Kind("probe", "probe", config, 0)


class Runner:
    """Runs one kind of run in processes of their own.

    Args:
        kind: The kind.
        folder: Where its configuration, logs and runs go.
    """

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        folder.mkdir(parents=True)

    def arguments(self, root: Path, *, goes_on: bool) -> list[str]:
        """Return the command line of a run in ``root``, new or continued."""
        config = dict(self.kind.config)
        where = f"--root={root}"
        if self.kind.command == "fit":
            pace = _class("tests.adversarial.kills.Pace", path=str(self.folder / _PACE))
            trainer = config["trainer"]
            config["trainer"] = {**trainer, "callbacks": [pace, *trainer["callbacks"]]}
            where = f"--trainer.default_root_dir={root}"
        path = self.folder / f"{self.kind.name}.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        last = ["--ckpt_path=last"] if goes_on and self.kind.command == "fit" else []
        return [self.kind.command, f"--config={path}", where, *last]

    def start(self, root: Path, *, goes_on: bool) -> int:
        """Start a process, and return its id."""
        arguments = self.arguments(root, goes_on=goes_on)
        (self.folder / _PACE).write_bytes(b"")
        child = os.fork()
        if child == 0:
            with (self.folder / "log.txt").open("ab", buffering=0) as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            # A shell lets what it starts in the background ignore Ctrl-C.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                code = run_toolkit(arguments)
            except KeyboardInterrupt:
                # It came before the command had begun.
                code = EXIT_CODES[signal.SIGINT]
            sys.stdout.flush()
            os._exit(code)
        return child

    def kept(self, root: Path) -> int:
        """How far what is kept has come: the step of the checkpoint, or the lines of the table."""
        if self.kind.command == "probe":
            return self.progress(root)
        path = self.version(root) / "checkpoints" / "last.ckpt"
        if not path.exists():
            return 0
        return int(torch.load(path, weights_only=True, mmap=True)["global_step"])

    def progress(self, root: Path) -> int:
        """How many batches the running process has begun, or the lines of the walk's table."""
        if self.kind.command == "fit":
            return (self.folder / _PACE).stat().st_size
        table = self.version(root) / "measurements.csv"
        return table.read_bytes().count(b"\n") if table.exists() else 0

    def version(self, root: Path) -> Path:
        """The folder that a run in ``root`` writes to."""
        return root / self.kind.name / "version_0"


def end_of(child: int) -> int:
    """Wait for a process, and return its exit code, negative the signal that it died of."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def send_at(
    number: signal.Signals, child: int, is_reached: Callable[[], bool], delay: float
) -> bool:
    """Send the signal a delay after a point is reached; return whether the process was there."""
    deadline = time.monotonic() + _SECONDS_AT_MOST
    while not is_reached():
        # It stays there for the next one who waits.
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return False
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            raise TimeoutError(f"process {child} has come to no end: {end_of(child)}")
        time.sleep(0.0005)
    time.sleep(delay)
    os.kill(child, number)
    return True


def run_with_kills(
    runner: Runner, root: Path, numbers: list[signal.Signals], draw: np.random.Generator
) -> Outcome:
    """Run, send the signals one after the other, and continue until the run comes to its end."""
    outcome = Outcome()
    goes_on = False
    for number in numbers:
        kept = runner.kept(root)
        # A walk's table is one for all its processes; what counts batches is one for each.
        start = kept if runner.kind.command == "probe" else 0
        target = start + int(draw.integers(max(1, runner.kind.length - kept)))
        delay = draw.random() * _SECONDS_BEHIND
        if draw.random() < _SHARE_OF_STARTS:
            target, delay = -1, draw.random() * _SECONDS_TO_START
        child = runner.start(root, goes_on=goes_on)

        def is_reached(target: int = target) -> bool:
            return target < 0 or runner.progress(root) > target

        sent = send_at(number, child, is_reached, delay)
        code = end_of(child)
        if sent:
            outcome.codes.append((number, code))
        if code == 0:
            return outcome
        goes_on = runner.kept(root) > 0
        if runner.kind.command == "fit" and not goes_on:
            outcome.anew += 1
            shutil.rmtree(root, ignore_errors=True)
    code = end_of(runner.start(root, goes_on=goes_on))
    if code:
        outcome.differences.append(f"the continued run ended with {code}")
    return outcome


def differences(runner: Runner, whole: Path, killed: Path) -> list[str]:
    """Return where two runs that have ended differ: weights, table, points, files."""
    first, second = runner.version(whole), runner.version(killed)
    found = []
    if _table(first) != _table(second):
        found.append("measurements.csv")
    for folder in {first, *(path.parent for path in first.rglob("events.out.tfevents.*"))}:
        other = second / folder.relative_to(first)
        found += _unlike_points(read_points(folder), read_points(other))
    names = [_names(folder) for folder in (first, second)]
    if names[0] != names[1]:
        found.append(f"files {sorted(names[0] ^ names[1])}")
    for path in first.rglob("*.ckpt"):
        other = second / path.relative_to(first)
        if other.exists() and not _same(_weights(path), _weights(other)):
            found.append(f"weights of {path.name}")
    return found


def _table(version: Path) -> str:
    return (version / "measurements.csv").read_text(encoding="utf-8")


def _names(version: Path) -> set[str]:
    # What a continued run adds, or names after its process.
    own = ("events.out.tfevents", "config_before", "config.yaml")
    paths = (path.relative_to(version) for path in version.rglob("*") if path.is_file())
    return {str(path) for path in paths if not path.name.startswith(own)}


def _unlike_points(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    found = [f"tag {tag}" for tag in first.keys() ^ second.keys()]
    for tag in first.keys() & second.keys():
        one, other = (sorted(map(repr, points[tag])) for points in (first, second))
        if one != other:
            steps = [sorted(step for step, _ in points[tag]) for points in (first, second)]
            found.append(f"points of {tag} at {steps[0]} and {steps[1]}")
    return found


def _weights(path: Path) -> dict[str, Any]:
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    parts = ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "random_states")
    return {name: checkpoint[name] for name in parts}


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_same(first[k], second[k]) for k in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return repr(first) == repr(second)


def has_right_code(number: signal.Signals, code: int) -> bool:
    """Return whether a process that was sent the signal has ended as it should."""
    # 0: it had come to its end; the negative signal: it came before the command had begun.
    return code in {0, EXIT_CODES.get(number, -number), -number}


def try_kind(kind: Kind, folder: Path, moments: int, draw: np.random.Generator) -> list[Outcome]:
    """Kill runs of one kind at so many moments, and compare each with a whole one."""
    runner = Runner(kind, folder / kind.name)
    whole = runner.folder / "whole"
    code = end_of(runner.start(whole, goes_on=False))
    if code:
        log = (runner.folder / "log.txt").read_text(encoding="utf-8")
        raise RuntimeError(f"the whole run of {kind.name} ended with {code}:\n{log}")
    length = kind.length or runner.progress(whole)
    runner.kind = Kind(kind.name, kind.command, kind.config, length)
    numbers = [SIGNALS[i % len(SIGNALS)] for i in range(moments)]
    outcomes: list[Outcome] = []
    while numbers:
        root = runner.folder / f"run_{len(outcomes)}"
        count = int(draw.integers(1, 4))
        mine, numbers = numbers[:count], numbers[count:]
        outcome = run_with_kills(runner, root, mine, draw)
        # Those that its end has left over.
        numbers = mine[len(outcome.codes) :] + numbers
        if not outcome.differences:
            outcome.differences = differences(runner, whole, root)
        outcomes.append(outcome)
        if not outcome.differences:
            shutil.rmtree(root)
    return outcomes


def table_of(outcomes: dict[str, list[Outcome]]) -> str:
    """Return a table with a line for each kind, and what differs below it."""
    lines = [
        f"{'kind':10} {'runs':>5} {'kills':>6} {'equal':>6} {'right code':>11} {'anew':>5}  codes"
    ]
    for name, runs in outcomes.items():
        codes = [pair for outcome in runs for pair in outcome.codes]
        right = sum(has_right_code(number, code) for number, code in codes)
        equal = sum(not outcome.differences for outcome in runs)
        shown = Counter(f"{number.name}:{code}" for number, code in codes)
        lines.append(
            f"{name:10} {len(runs):5} {len(codes):6} {equal:6} {right:11} "
            f"{sum(outcome.anew for outcome in runs):5}  "
            + " ".join(f"{key} x{count}" for key, count in sorted(shown.items()))
        )
    for name, runs in outcomes.items():
        for place, outcome in enumerate(runs):
            lines += [f"{name} run_{place}: {one}" for one in outcome.differences[:5]]
    return "\n".join(lines)


def main() -> int:
    """Kill runs as the arguments say; the exit code is 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=60, help="Signals to send in all.")
    parser.add_argument("--seed", type=int, default=0, help="Fixes the moments.")
    parser.add_argument("--kinds", nargs="*", help="Kinds to try, by default all.")
    parser.add_argument("--keep", type=Path, help="Folder for runs that differ, which is kept.")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [k for k in kinds(folder) if not options.kinds or k.name in options.kinds]
    outcomes: dict[str, list[Outcome]] = {}
    for place, kind in enumerate(chosen):
        draw = np.random.default_rng((options.seed, place))
        share = (options.moments * (place + 1)) // len(chosen) - (options.moments * place) // len(
            chosen
        )
        outcomes[kind.name] = try_kind(kind, folder, share, draw)
        print(table_of({kind.name: outcomes[kind.name]}), flush=True)
    print(table_of(outcomes))
    if options.keep is None:
        shutil.rmtree(folder)
    runs = [outcome for of_kind in outcomes.values() for outcome in of_kind]
    right = all(has_right_code(*pair) for outcome in runs for pair in outcome.codes)
    return 0 if right and not any(outcome.differences for outcome in runs) else 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
