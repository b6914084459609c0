"""Output never decides about results: bad encodings, readers that leave, full disks."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO, cast

import pytest

from toolkit.console.shown_text import ShownText, shown_output

ROOT = Path(__file__).parent.parent.parent
CAPACITY = ["capacity", "--dim", "100", "--epsilon", "0.1"]
TINY = [
    "fit",
    "--model=tests.tiny_run.TinyModel",
    "--data=tests.tiny_run.TinyData",
    "--trainer.max_steps=3",
]


def command(folder: Path, line: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of the shell; ``$T`` is the toolkit."""
    tool = f"{sys.executable} -m toolkit"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line.replace('$T', tool)}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
    )


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_the_encoding_lacks_becomes_a_question_mark(encoding: str) -> None:
    raw = io.BytesIO()
    stream = ShownText(io.TextIOWrapper(raw, encoding=encoding))
    assert stream.write("a • é\udce4\n") == 7
    stream.flush()
    expected = {"ascii": b"a ? ??\n", "latin-1": b"a ? \xe9?\n", "utf-8": "a • é?\n".encode()}
    assert raw.getvalue() == expected[encoding]
    assert stream.encoding == encoding
    assert stream.error is None


@pytest.mark.parametrize(
    ("error", "counts"), [(BrokenPipeError(32, "p"), 0), (OSError(28, "f"), 1)]
)
@pytest.mark.parametrize("method", ["write", "flush"])
def test_a_stream_that_fails_is_given_up(error: OSError, counts: bool, method: str) -> None:
    class Failing(io.StringIO):
        def write(self, text: str) -> int:
            if method == "write":
                raise error
            return len(text)

        def flush(self) -> None:
            raise error

    stream = ShownText(cast("TextIO", Failing()))
    stream.writelines(["a", "b"])
    stream.flush()
    assert stream.error is (error if counts else None)


def test_a_process_without_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with shown_output() as out:
        print("lost")
        assert out.error is None


@pytest.mark.parametrize("line", [f"$T {' '.join(CAPACITY)}", "$T --help", "$T --version"])
def test_a_reader_that_leaves(tmp_path: Path, line: str) -> None:
    gone = command(tmp_path, f"{line} | true")
    assert (gone.returncode, gone.stderr) == (0, "")
    closed = command(tmp_path, f"{line} >&-")
    assert (closed.returncode, closed.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_an_answer_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    full = command(tmp_path, f"$T {' '.join(CAPACITY)} > /dev/full")
    assert (full.returncode, full.stderr) == (1, "standard output: No space left on device\n")
    # Where nothing can be said, the exit code still tells.
    assert command(tmp_path, "$T capacty > /dev/full 2>&1").returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("line", ["$T", "script -qec '$T' /dev/null"])
def test_a_run_ends_whatever_the_terminal_can_show(
    tmp_path: Path, encoding: str, line: str
) -> None:
    toy = f"fit --config {ROOT}/configs/toy.yaml --trainer.max_steps=3 --run=toy"
    for what, name in ((toy, "toy"), (" ".join([*TINY, "--run=é"]), "é")):
        end = command(tmp_path, line.replace("$T", f"$T {what}"), PYTHONIOENCODING=encoding)
        assert end.returncode == 0, end.stderr
        assert "Traceback" not in end.stdout + end.stderr
        assert (tmp_path / "checkpoints" / name / "version_0" / "summary.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["| true", "| head -c 1", ">&-", "> /dev/full", "2>&1 | true"])
def test_a_run_ends_wherever_its_output_goes(tmp_path: Path, target: str) -> None:
    end = command(tmp_path, f"$T {' '.join(TINY)} {target}")
    assert end.returncode == 0, end.stderr
    assert "Traceback" not in end.stderr
    assert (tmp_path / "checkpoints" / "tiny_model" / "version_0" / "summary.json").exists()
