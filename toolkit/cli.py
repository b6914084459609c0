"""The command line: it chooses the command, and imports no large library before it runs."""

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from toolkit import __version__
from toolkit.console.held_stderr import HeldStderr, run_quietly
from toolkit.console.parser import did_you_mean

_NEGATIVE_NUMBER = re.compile(r"-(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|-inf", re.IGNORECASE)


class _Command(NamedTuple):
    """A command: its summary in ``--help``, and a function that returns the exit code."""

    summary: str
    run: Callable[[list[str], HeldStderr], int]


def main(args: list[str] | None = None) -> int:
    """Run one command of the toolkit.

    Args:
        args: Command and options, by default those of the process.

    Returns:
        The exit code: 0, 2 when the command could not start, 130 after Ctrl-C, 143 after SIGTERM.
    """
    args = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in args
    args = [argument for argument in args if argument != "--debug"]
    args, threads = _without_threads(args)
    return run_quietly(lambda held: _run(args, threads, held), debug=debug)


def _run(args: list[str], threads: str | None, held: HeldStderr) -> int:
    if args[:1] in (["-h"], ["--help"]):
        sys.stdout.write(_help())
        return 0
    if args[:1] == ["--version"]:
        sys.stdout.write(f"{__version__}\n")
        return 0
    command = _command(args)
    args = join_negative_numbers(args)
    if threads is None:
        return command.run(args, held)
    with importlib.import_module("toolkit.threads").given(threads):
        return command.run(args, held)


def _without_threads(args: list[str]) -> tuple[list[str], str | None]:
    """Return the arguments without ``--threads``, and its last value."""
    kept: list[str] = []
    threads = None
    values = iter(args)
    for argument in values:
        name, equals, value = argument.partition("=")
        if name == "--threads":
            threads = value if equals else next(values, "")
        else:
            kept.append(argument)
    return kept, threads


def join_negative_numbers(args: list[str]) -> list[str]:
    """Write ``--key -1e-2`` as ``--key=-1e-2``: argparse would read the former as two options."""
    joined: list[str] = []
    for argument in args:
        option = joined[-1] if joined else ""
        if _NEGATIVE_NUMBER.fullmatch(argument) and option.startswith("--") and "=" not in option:
            joined[-1] = f"{option}={argument}"
        else:
            joined.append(argument)
    return joined


def _command(args: list[str]) -> _Command:
    known = ", ".join(_COMMANDS)
    if not args:
        raise ValueError(f"command: expected one of {known}, got none; see --help")
    if args[0] not in _COMMANDS:
        hint = did_you_mean(args[0], _COMMANDS) or "; see --help"
        raise ValueError(f"command: expected one of {known}, got {args[0]!r}{hint}")
    return _COMMANDS[args[0]]


def _run_trainer(args: list[str], held: HeldStderr) -> int:
    _import_named("callbacks", "toolkit.data", "toolkit.models")
    importlib.import_module("toolkit.commands.train.command").run(args, held)
    return 0


def _run_probe(args: list[str], held: HeldStderr) -> int:
    if not {"-h", "--help"}.isdisjoint(args):
        sys.stdout.write(importlib.import_module("toolkit.commands.probe.options").help_text())
        return 0
    series = ("local", "models", "hub", "lightning")
    _import_named(
        "callbacks", "toolkit.data", *(f"toolkit.lm.checkpoints.{name}" for name in series)
    )
    code: int = importlib.import_module("toolkit.commands.probe.command").main(args[1:], held)
    return code


def _import_named(*modules: str) -> None:
    """Import the modules whose classes a configuration may name without their path."""
    _check_callbacks_are_ours()
    for module in modules:
        importlib.import_module(module)


def _run_capacity(args: list[str], held: HeldStderr) -> int:
    del held  # All work is short, so errors are always shown in one line.
    code: int = importlib.import_module("toolkit.commands.capacity.command").main(args[1:])
    return code


def _run_epsilon(args: list[str], held: HeldStderr) -> int:
    del held  # The error of a model is always shown in one line.
    code: int = importlib.import_module("toolkit.commands.epsilon.command").main(args[1:])
    return code


def _run_agree(args: list[str], held: HeldStderr) -> int:
    del held  # The error of a model is always shown in one line.
    code: int = importlib.import_module("toolkit.commands.agree.command").main(args[1:])
    return code


def _check_callbacks_are_ours() -> None:
    spec = importlib.util.find_spec("callbacks")
    ours = Path(__file__).resolve().parent.parent / "callbacks" / "__init__.py"
    found = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
    if found != ours:
        raise ValueError(
            f"callbacks: expected the toolkit's package at {ours.parent}, got {found}; "
            "rename yours or run from another folder"
        )


def _help() -> str:
    width = max(map(len, _COMMANDS))
    commands = "".join(f"  {name:{width}}  {text}\n" for name, (text, _) in _COMMANDS.items())
    return (
        "usage: python -m toolkit COMMAND [options]\n\n"
        "Train toy superposition models and measure the representation geometry of language "
        f"models.\n\ncommands:\n{commands}\n"
        "options:\n"
        "  -h, --help  show this message; after a command, its options\n"
        "  --version   show the version\n"
        "  --debug     show tracebacks, every message from the start, and the time and memory\n"
        "              that models take to load\n"
        "  --threads N compute with N threads; by default OMP_NUM_THREADS, else one for small\n"
        "              models and as many as the processor has cores for others\n"
    )


_COMMANDS = {
    "fit": _Command("train a model and measure it while it trains", _run_trainer),
    "validate": _Command("measure a checkpoint on the held-out data", _run_trainer),
    "test": _Command("evaluate a checkpoint on the test data", _run_trainer),
    "predict": _Command("run a checkpoint on the test data", _run_trainer),
    "probe": _Command("measure a series of checkpoints, each at its own step", _run_probe),
    "capacity": _Command("tell how many directions fit, by the capacity laws", _run_capacity),
    "epsilon": _Command("measure a model's embedding deviation from its files", _run_epsilon),
    "agree": _Command("tell whether models place the same texts alike", _run_agree),
}
