"""Standard error of a command: a single line if the command fails before its first step."""

import io
import logging
import signal
import sys
import threading
import traceback
from argparse import ArgumentError
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any, TextIO, cast

from toolkit.atomic import is_disk_full
from toolkit.console.parser_messages import shortened
from toolkit.console.shown_text import ShownText, shown_output
from toolkit.console.stages import told_stages
from toolkit.interruption import Interrupted, interruption

_USAGE_ERROR = 2
_INTERRUPTED = 128 + signal.SIGINT
_MAX_LENGTH = 500
# The messages of these classes are complete without the class name.
_TELLING = ("ArgumentError", "MisconfigurationException", "OSError", "TypeError", "ValueError")


class HeldStderr(io.TextIOBase):
    """Standard error that holds back all text until the command's first step.

    On a terminal, text with a carriage return passes at once: it is a progress bar.

    Args:
        stream: The stream that receives the text in the end.
        hold: Whether to hold text back.
    """

    def __init__(self, stream: TextIO, *, hold: bool = True) -> None:
        self.started = False
        self._stream = stream
        self._held: list[str] = []
        self._holding = hold

    def write(self, text: str) -> int:
        """Hold the text back, or pass it on."""
        if self._holding and not ("\r" in text and self.isatty()):
            self._held.append(text)
            return len(text)
        return self._stream.write(text)

    def show(self, text: str) -> None:
        """Write the text at once, before the text that is held back."""
        self._stream.write(text)
        self.flush()

    def start(self) -> None:
        """Note that the first step begins; write the held text, and pass later text on."""
        self.started = True
        self.release()

    def release(self) -> None:
        """Write the held text, and pass later text on."""
        text = "".join(self._held)
        self.drop()
        # On a terminal a progress bar may replace sys.stderr; it writes text above itself.
        (sys.stderr if self.isatty() else self._stream).write(text)
        self.flush()

    def drop(self) -> None:
        """Drop the held text, and pass later text on."""
        self._holding = False
        self._held.clear()

    def flush(self) -> None:
        """Flush the underlying stream."""
        self._stream.flush()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the underlying stream."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """Return whether the text ends up on a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor of the underlying stream."""
        return self._stream.fileno()

    def __reduce__(self) -> tuple[Any, ...]:
        # A spawned process has its own standard error, and nothing to keep.
        return _passing_stderr, ()


class RefusedRunError(ValueError):
    """Ends a run for a fault found in its first steps; the run's files are removed."""


def run_quietly(action: Callable[[HeldStderr], int], *, debug: bool) -> int:
    """Run a command and return its exit code.

    Args:
        action: The command; it calls ``start`` of its argument when its first step begins, and
            returns its exit code.
        debug: Whether to hold no text back and to show tracebacks.

    Returns:
        The command's code, also that of a SystemExit; 2 after an exception before the first
        step and after a `RefusedRunError`, 1 after any other exception, 130 after Ctrl-C, 143
        after SIGTERM.
    """
    with (
        shown_output() as out,
        _held_stderr(hold=not debug) as held,
        told_stages(debug=debug),
        _threads_without_full_disks(),
    ):
        code = _run(action, held, debug=debug)
        out.flush()
        if out.error is not None:
            held.write(f"standard output: {out.error.strerror}\n")
            # The files of a run are complete; an answer on standard output is lost.
            code = code or int(not held.started)
    return code


def _run(action: Callable[[HeldStderr], int], held: HeldStderr, *, debug: bool) -> int:
    try:
        with interruption.handled():
            code = action(held)
    except Interrupted as ended:
        return _interrupted(held, ended.exit_code, getattr(ended, "__notes__", ()))
    except KeyboardInterrupt as pressed:
        return _interrupted(held, notes=getattr(pressed, "__notes__", ()))
    except SystemExit as leaving:
        # Lightning turns a KeyboardInterrupt into an exit with code 1.
        if isinstance(leaving.__context__, KeyboardInterrupt):
            return _interrupted(held, notes=getattr(leaving.__context__, "__notes__", ()))
        held.release()
        return _exit_code(leaving)
    except Exception as error:  # noqa: BLE001
        return _failed(error, held, debug=debug)
    held.release()
    return code


def show_at_once(text: str) -> None:
    """Write to standard error at once, even before the command's first step."""
    if isinstance(sys.stderr, HeldStderr):
        sys.stderr.show(text)
    else:
        sys.stderr.write(text)


def one_line(error: BaseException) -> str:
    """Return an error's message as one line that names the argument."""
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    else:
        text = shortened(str(error), from_parser=isinstance(error, ArgumentError))
    if not any(base.__name__ in _TELLING for base in type(error).__mro__):
        text = f"{type(error).__name__}: {text}"
    text = " ".join(text.split())
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]} ... (--debug shows all)"


def _failed(error: Exception, held: HeldStderr, *, debug: bool) -> int:
    is_refused = isinstance(error, RefusedRunError)
    if debug or (held.started and not (is_refused or is_disk_full(error))):
        held.release()
        traceback.print_exception(error)
    else:
        held.drop()
        # For a run that has begun, the notes name the kept checkpoint and how to continue.
        notes = getattr(error, "__notes__", ()) if held.started and not is_refused else ()
        held.write("".join(f"{line}\n" for line in (f"error: {one_line(error)}", *notes)))
    return 1 if held.started and not is_refused else _USAGE_ERROR


def _interrupted(held: HeldStderr, code: int = _INTERRUPTED, notes: Sequence[str] = ()) -> int:
    held.drop()
    held.write("".join(f"{line}\n" for line in ("interrupted", *notes)))
    return code


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None or isinstance(leaving.code, int):
        return leaving.code or 0
    sys.stderr.write(f"{leaving.code}\n")
    return 1


@contextmanager
def _held_stderr(*, hold: bool) -> Iterator[HeldStderr]:
    """Replace standard error by a `HeldStderr`, in log handlers as well."""
    stream = sys.stderr
    held = HeldStderr(cast("TextIO", ShownText(stream)), hold=hold)
    _redirect_handlers(stream, held)
    try:
        with redirect_stderr(held):
            yield held
    finally:
        held.flush()
        _redirect_handlers(held, stream)


@contextmanager
def _threads_without_full_disks() -> Iterator[None]:
    """Show no error of a full disk from TensorBoard's thread; its next point raises it again."""
    hook = threading.excepthook

    def quiet(failure: threading.ExceptHookArgs) -> None:
        if failure.exc_value is None or not is_disk_full(failure.exc_value):
            hook(failure)

    threading.excepthook = quiet
    try:
        yield
    finally:
        threading.excepthook = hook


def _redirect_handlers(source: TextIO | HeldStderr, target: TextIO | HeldStderr) -> None:
    loggers = [logging.root, *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        # Handlers with a property of this name read sys.stderr at each message: nothing to change.
        if isinstance(handler, logging.StreamHandler) and vars(handler).get("stream") is source:
            handler.setStream(target)


def _passing_stderr() -> HeldStderr:
    return HeldStderr(sys.stderr, hold=False)
