"""A folder has one writer at a time, and a killed one leaves it free."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkit.runs import folder_lock
from toolkit.runs.folder_lock import LOCK_NAME, locked

HOLDER = """
import sys, time
from pathlib import Path
from toolkit.runs.folder_lock import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the lock of ``tmp_path / "run"``."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_a_second_process_is_told_of_the_first(
    holder: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    start = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    wanted = (
        rf"run: expected a folder to which no other process writes, got {tmp_path}/run, to which "
        rf"process {holder.pid} on {socket.gethostname()}, started {start} writes; "
        "wait for its end, or give another name with --run"
    )
    with pytest.raises(ValueError, match=wanted), locked(tmp_path / "run"):
        pytest.fail("two writers")


def test_a_kill_frees_the_lock(holder: "subprocess.Popen[str]", tmp_path: Path) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert json.loads((tmp_path / "run" / LOCK_NAME).read_text())["pid"] == holder.pid
    with locked(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / LOCK_NAME).read_text())["pid"] == os.getpid()
        (tmp_path / "run" / "kept").touch()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["kept"]


def test_the_lock_goes_with_its_process_though_a_forked_one_lives_on(tmp_path: Path) -> None:
    """Such as a data loader's worker, which outlives a killed parent for some seconds."""
    pids = tmp_path / "grandchild"
    child = os.fork()
    if child == 0:
        with locked(tmp_path / "run"):
            grandchild = os.fork()
            if grandchild == 0:
                time.sleep(60)
            pids.write_text(str(grandchild))
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    grandchild = int(pids.read_text())
    try:
        # The fork's own handler may still be about to close the descriptor.
        for _ in range(100):
            try:
                with locked(tmp_path / "run"):
                    break
            except ValueError:
                time.sleep(0.05)
        else:
            pytest.fail("a worker keeps the lock")
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_the_lock_ends_with_the_body_also_after_an_exception(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="from the body"), locked(tmp_path):
            raise RuntimeError("from the body")
    assert list(tmp_path.iterdir()) == []


def test_without_locks_a_warning_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(folder_lock, "_lock", refuse)
    message = r"its file system has no locks \(No locks available\)"
    with pytest.warns(UserWarning, match=message), locked(tmp_path / "run"):
        assert list((tmp_path / "run").iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_holder_is_another_process(
    holder: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    (tmp_path / "run" / LOCK_NAME).write_text("")
    message = "to which another process writes"
    with pytest.raises(ValueError, match=message), locked(tmp_path / "run"):
        pytest.fail("two writers")
