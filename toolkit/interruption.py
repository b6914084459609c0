"""Ctrl-C and SIGTERM: noted during work, handled between complete units of work."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

# Seconds after which a process without deferred work ends without unwinding.
_SECONDS_TO_UNWIND = 0.8
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h\n"


class Interrupted(BaseException):
    """Ends a command after a signal.

    It is no `Exception`, so that handlers of failed measurements do not catch it.

    Args:
        signum: The signal.

    Attributes:
        exit_code: 130 after SIGINT, 143 after SIGTERM.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum


class Interruption:
    """A signal's request to end, which long work handles between complete units.

    Within `handled`, a signal raises `Interrupted` at once; if the process still runs 0.8 s later,
    it ends without unwinding. Within `deferred`, or between `defer` and `settle`, the signal is
    only noted, and `check` raises. A second signal always ends the process at once. Outside of
    `handled` these methods have no effect.
    """

    def __init__(self) -> None:
        self._active = False
        self._depth = 0
        self._signum: int | None = None

    @property
    def requested(self) -> bool:
        """Whether a signal has arrived."""
        return self._signum is not None

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle both signals while the body runs in the main thread.

        A signal that the process ignored from its start stays ignored.
        """
        if self._active or threading.current_thread() is not threading.main_thread():
            yield
            return
        self._active, self._depth, self._signum = True, 0, None
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        try:
            with self._watched():
                self.take_over()
                yield
        finally:
            for number, handler in before.items():
                # None: a handler that Python did not set, and cannot restore.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            self._active, self._signum = False, None

    def take_over(self) -> None:
        """Install the handlers again, replacing handlers that a library has installed since."""
        if self._active:
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, self._note)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Only note signals while the body runs; raise `Interrupted` at its end after a signal."""
        self.defer()
        try:
            yield
        finally:
            self._depth -= 1
        self._raise_unless_deferred()

    def defer(self) -> None:
        """Only note signals from here on."""
        self._depth += 1

    def settle(self) -> None:
        """End the deferral; raise `Interrupted` if a signal has arrived."""
        self._depth -= 1
        self._raise_unless_deferred()

    def check(self) -> None:
        """Raise `Interrupted` if a signal has arrived."""
        if self._signum is not None:
            raise Interrupted(self._signum)

    def leave_to_parent(self) -> None:
        """Let SIGTERM end a forked process; the parent decides about Ctrl-C."""
        if self._active:
            self._active, self._signum = False, None
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        del frame
        if self._signum is not None:
            # The watching thread ends the process.
            return
        self._signum = signum
        self._raise_unless_deferred()

    def _raise_unless_deferred(self) -> None:
        if self._depth == 0:
            self.check()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Watch from a thread: the main thread may be in a long call that sees no signals."""
        receiver, sender = socket.socketpair()
        sender.settimeout(0)
        before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        thread = threading.Thread(target=self._watch, args=(receiver,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            sender.close()
            thread.join()
            receiver.close()

    def _watch(self, receiver: socket.socket) -> None:
        first: int | None = None
        while True:
            try:
                numbers = receiver.recv(1)
            except TimeoutError:
                _leave(first or signal.SIGTERM)
            if not numbers:
                return
            if numbers[0] in _SIGNALS:
                if first is not None:
                    _leave(numbers[0])
                first = numbers[0]
                receiver.settimeout(None if self._depth else _SECONDS_TO_UNWIND)


def _leave(signum: int) -> None:
    """End the process without unwinding; atomic writing leaves no file half written."""
    # Standard error may be closed; the process must end anyway.
    with suppress(OSError):
        if sys.stdout.isatty():
            # A progress bar has hidden the cursor.
            os.write(1, _SHOW_CURSOR)
        os.write(2, b"interrupted\n")
    os._exit(128 + signum)


interruption = Interruption()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=interruption.leave_to_parent)
