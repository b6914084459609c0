"""A signal ends work where it is whole, at once before there is any, and always at the second."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from toolkit.interruption import Interrupted, Interruption, _leave

ROOT = Path(__file__).parent.parent
BOTH = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])


def end(number: int) -> None:
    os.kill(os.getpid(), number)


def run_child(body: str, number: int) -> "subprocess.CompletedProcess[str]":
    """Run code in a process of its own; ``send()`` in it gives it the signal."""
    head = f"""
        import os, signal, sys
        from toolkit.interruption import Interrupted, interruption
        def send():
            os.kill(os.getpid(), {int(number)})
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(body)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def interrupted_in(interruption: Interruption, work: Callable[[], None]) -> Interrupted:
    """What ends the work, which is expected to be ended by a signal."""
    with pytest.raises(Interrupted) as raised, interruption.handled():
        work()
    return raised.value


@BOTH
def test_without_anything_to_finish_it_ends_at_once(number: int, code: int) -> None:
    done = []

    def work() -> None:
        end(number)
        done.append("more")

    ended = interrupted_in(Interruption(), work)
    assert (ended.exit_code, str(ended)) == (code, f"interrupted by {signal.Signals(number).name}")
    assert not isinstance(ended, Exception)
    assert done == []


@BOTH
def test_work_is_finished_first(number: int, code: int) -> None:
    interruption = Interruption()
    done: list[object] = []

    def work() -> None:
        with interruption.deferred():
            interruption.check()
            done.append(interruption.requested)
            end(number)
            done.append(interruption.requested)
        done.append("more")

    assert interrupted_in(interruption, work).exit_code == code
    assert done == [False, True]


def test_check_ends_between_two_units() -> None:
    interruption = Interruption()
    done = []

    def work() -> None:
        with interruption.deferred():
            for unit in range(5):
                if unit == 2:
                    end(signal.SIGTERM)
                done.append(unit)
                interruption.check()

    interrupted_in(interruption, work)
    assert done == [0, 1, 2]


def test_the_outermost_deferral_counts() -> None:
    interruption = Interruption()
    done = []

    def work() -> None:
        interruption.defer()
        with interruption.deferred():
            end(signal.SIGINT)
        done.append("inner")
        interruption.settle()
        done.append("outer")

    interrupted_in(interruption, work)
    assert done == ["inner"]


def test_a_failure_inside_is_not_hidden() -> None:
    interruption = Interruption()

    def work() -> None:
        with interruption.handled(), interruption.deferred():
            end(signal.SIGTERM)
            raise ValueError("unit: failed")

    with pytest.raises(ValueError, match=r"^unit: failed$"):
        work()


def test_everything_is_given_back() -> None:
    interruption = Interruption()
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Interrupted), interruption.handled(), interruption.deferred():
        end(signal.SIGTERM)
    assert not interruption.requested
    interruption.check()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    with interruption.handled(), interruption.deferred():
        pass
    assert signal.set_wakeup_fd(-1) == -1


def test_handlers_are_taken_back_from_a_library() -> None:
    interruption = Interruption()

    def work() -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)
        interruption.take_over()
        end(signal.SIGTERM)

    interrupted_in(interruption, work)


def test_another_thread_leaves_signals_alone() -> None:
    seen = []

    def work() -> None:
        with Interruption().handled(), Interruption().deferred():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_an_ignored_signal_stays_ignored() -> None:
    body = """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with interruption.handled():
            send()
        print("went on")
    """
    done = run_child(body, signal.SIGINT)
    assert (done.returncode, done.stdout) == (0, "went on\n")


@BOTH
def test_a_second_signal_ends_it_whatever_it_does(number: int, code: int) -> None:
    body = """
        try:
            with interruption.handled(), interruption.deferred():
                send()
                print("working", flush=True)
                send()
                while True:
                    pass
        finally:
            print("unwound", flush=True)
    """
    done = run_child(body, number)
    assert (done.returncode, done.stdout, done.stderr) == (code, "working\n", "interrupted\n")


@BOTH
def test_a_call_that_hears_no_signal_is_ended_too(number: int, code: int) -> None:
    body = """
        import hashlib, threading
        with interruption.handled():
            threading.Timer(0.1, send).start()
            # Minutes in one call that leaves other threads alone.
            hashlib.pbkdf2_hmac("sha256", b"", b"", 2**30)
    """
    assert run_child(body, number).returncode == code


def test_an_exception_that_somebody_swallows_ends_it_all_the_same() -> None:
    body = """
        with interruption.handled():
            try:
                send()
            except BaseException:
                pass
            while True:
                pass
    """
    assert run_child(body, signal.SIGTERM).returncode == 143


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_dies_of_sigterm_and_tells_its_parent_nothing() -> None:
    body = """
        with interruption.handled(), interruption.deferred():
            child = os.fork()
            if child == 0:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGTERM)
                while True:
                    pass
            _, status = os.waitpid(child, 0)
            print(os.WTERMSIG(status), interruption.requested)
    """
    done = run_child(body, signal.SIGTERM)
    assert (done.returncode, done.stdout) == (0, "15 False\n"), done.stderr


def test_a_process_ends_though_nobody_reads_its_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []

    def broken(descriptor: int, text: bytes) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("os.write", broken)
    monkeypatch.setattr("os._exit", codes.append)
    _leave(signal.SIGTERM)
    assert codes == [143]
