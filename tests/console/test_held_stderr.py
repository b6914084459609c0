"""One line on standard error before the first step, everything after it."""

import contextlib
import io
import logging
import pickle
import re
import signal
import sys
from argparse import ArgumentError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import pytest

from toolkit.console.held_stderr import HeldStderr, one_line, run_quietly
from toolkit.console.stages import stage

LOGGER = logging.getLogger("tests.diagnostics")
Command = Callable[[HeldStderr], int]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def handler_on_stderr() -> Iterator[logging.StreamHandler[Any]]:
    """A handler that has taken hold of standard error, as Lightning's does at import."""
    handler = logging.StreamHandler(sys.stderr)
    LOGGER.addHandler(handler)
    try:
        yield handler
    finally:
        LOGGER.removeHandler(handler)


def talkative(end: Command) -> Command:
    """A command that writes to standard error, and then ends like ``end``."""

    def command(held: HeldStderr) -> int:
        print("printed", file=sys.stderr)
        LOGGER.error("logged")
        return end(held)

    return command


def succeed(held: HeldStderr) -> int:
    return 0


def fail(held: HeldStderr) -> NoReturn:
    raise ValueError("width: expected at least 1, got 0")


def start_and_fail(held: HeldStderr) -> NoReturn:
    held.start()
    fail(held)


def press_ctrl_c() -> None:
    raise KeyboardInterrupt


def lightning_interrupted(held: HeldStderr) -> int:
    try:
        press_ctrl_c()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        sys.exit(1)
    return 0


def test_an_early_failure_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with handler_on_stderr():
        assert run_quietly(talkative(fail), debug=False) == 2
    assert capsys.readouterr() == ("", "error: width: expected at least 1, got 0\n")


def test_a_later_failure_shows_everything(capsys: pytest.CaptureFixture[str]) -> None:
    with handler_on_stderr():
        assert run_quietly(talkative(start_and_fail), debug=False) == 1
    error = capsys.readouterr().err
    assert error.startswith("printed\nlogged\n")
    assert "Traceback" in error
    assert error.endswith("ValueError: width: expected at least 1, got 0\n")


def test_debug_shows_everything_of_an_early_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with handler_on_stderr():
        assert run_quietly(talkative(fail), debug=True) == 2
    error = capsys.readouterr().err
    assert error.startswith("printed\nlogged\n")
    assert "in fail" in error


def test_success_shows_what_was_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with handler_on_stderr():
        assert run_quietly(talkative(succeed), debug=False) == 0
    assert capsys.readouterr().err.startswith("printed\nlogged\n")


def test_nothing_is_kept_once_started(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []

    def command(held: HeldStderr) -> int:
        print("before", file=sys.stderr)
        seen.append(capsys.readouterr().err)
        held.start()
        seen.append(capsys.readouterr().err)
        print("after", file=sys.stderr)
        seen.append(capsys.readouterr().err)
        return 5

    assert run_quietly(command, debug=False) == 5
    assert seen == ["", "before\n", "after\n"]


def test_standard_error_and_its_handlers_come_back() -> None:
    before = sys.stderr
    with handler_on_stderr() as earlier, contextlib.ExitStack() as stack:
        inside = []

        def command(held: HeldStderr) -> int:
            later = stack.enter_context(handler_on_stderr())
            assert earlier.stream is later.stream is held
            inside.append(later)
            return 0

        assert run_quietly(command, debug=False) == 0
        assert sys.stderr is earlier.stream is inside[0].stream is before


@pytest.mark.parametrize("started", [False, True])
def test_ctrl_c_is_quiet(started: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def command(held: HeldStderr) -> int:
        if started:
            held.start()
        raise KeyboardInterrupt

    assert run_quietly(command, debug=False) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_ctrl_c_that_lightning_took_is_quiet_and_given_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    assert run_quietly(lightning_interrupted, debug=False) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_command_and_its_handler_comes_back(
    number: signal.Signals, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = signal.getsignal(number)

    def command(held: HeldStderr) -> int:
        with contextlib.suppress(Exception):
            signal.raise_signal(number)
        return 0

    assert run_quietly(command, debug=False) == code
    assert capsys.readouterr() == ("", "interrupted\n")
    assert signal.getsignal(number) is handler


@pytest.mark.parametrize(
    ("code", "expected", "written"),
    [(None, 0, ""), (0, 0, ""), (3, 3, ""), ("no space left", 1, "no space left\n")],
)
def test_exit_codes_pass(
    code: int | str | None, expected: int, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_quietly(lambda held: sys.exit(code), debug=False) == expected
    assert capsys.readouterr().err == written


def test_a_progress_bar_passes_on_a_terminal() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        held = HeldStderr(stream)
        held.write("\r 10 %")
        held.write("a warning\n")
    assert terminal.getvalue() == "\r 10 %"
    assert pipe.getvalue() == ""


def test_a_spawned_process_keeps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    copy = pickle.loads(pickle.dumps(HeldStderr(io.StringIO())))
    copy.write("seen\n")
    assert capsys.readouterr().err == "seen\n"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("lr: expected\n  a number"), "lr: expected a number"),
        (TypeError("devices: expected an int"), "devices: expected an int"),
        (KeyError("x"), "KeyError: 'x'"),
        (IndexError("out of range"), "IndexError: out of range"),
        (FileNotFoundError(2, "No such file", "a.yaml"), "a.yaml: No such file"),
        (OSError("disk full"), "disk full"),
        (ArgumentError(None, "unrecognized arguments: --x"), "unrecognized arguments: --x"),
        (ValueError("y" * 600), "y" * 500 + " ... (--debug shows all)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_one_line(error: Exception, expected: str) -> None:
    assert one_line(error) == expected


@pytest.mark.parametrize("debug", [True, False])
def test_stages_are_told_of_when_debugging(debug: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def command(held: HeldStderr) -> int:
        with stage("model.gguf: weights"):
            return 0

    assert run_quietly(command, debug=debug) == 0
    line = capsys.readouterr().err
    found = re.fullmatch(r"model\.gguf: weights: 0\.\d s, \d+\.\d\d GiB of memory.*\n", line)
    assert (found is not None) == debug
    assert debug or not line
    with stage("afterwards"):
        pass
    assert capsys.readouterr().err == ""
