"""Ctrl-C and SIGTERM end a walk after the running batch, whatever failures it forgives."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Its first import sets environment variables, which must not look like a test's.
import lightning  # noqa: F401
import pytest
import yaml  # type: ignore[import-untyped]

from tests.callbacks.language import small_texts
from tests.commands.probe.probing import curves_of, local, write_config
from tests.lm.listed_hub import save_revision
from toolkit.cli import main
from toolkit.lm.reading import capture as _capture
from toolkit.lm.reading import hidden_states


def walk(folder: Path) -> int:
    """Run a walk over two checkpoints, whose callbacks turn failures into warnings."""
    path = folder / "walk.yaml"
    if not path.exists():
        for step in (1, 2):
            save_revision(folder / "hf" / f"step-{step}", seed=step)
        texts = small_texts(folder, batch_size=4)
        write_config(path, texts, series=local(f"{folder}/hf/*", name="tiny"))
        config = yaml.safe_load(path.read_text())
        for callback in config["callbacks"]:
            arguments = callback.setdefault("init_args", {})
            arguments["on_error"] = "warn"
            if "texts" in arguments:
                arguments["texts"]["batch_size"] = 4
        path.write_text(yaml.safe_dump(config))
    return main(["probe", f"--config={path}", f"--root={folder / 'runs'}"])


def signalling(signum: int, at: int, finished: list[int], *, twice: bool = False) -> Any:
    """The reading of a batch, during which a signal comes the n-th time."""
    plain: Callable[..., Any] = _capture.captured_layers

    def read(*args: Any) -> Any:
        begun = len(finished) + 1
        if begun == at:
            os.kill(os.getpid(), signum)
            if twice:
                os.kill(os.getpid(), signum)
                time.sleep(60)
        found = plain(*args)
        finished.append(begun)
        return found

    return read


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_walk_after_the_running_batch(
    tmp_path: Path,
    signum: int,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    finished: list[int] = []
    monkeypatch.setattr(hidden_states, "captured_layers", signalling(signum, 4, finished))
    assert walk(tmp_path) == code
    assert finished == [1, 2, 3, 4]
    assert capsys.readouterr().err.endswith("\ninterrupted\n")
    # Started again it ends like one that was never interrupted.
    monkeypatch.undo()
    assert walk(tmp_path) == 0
    version = tmp_path / "runs" / "walk" / "version_0"
    table, curves = (version / "measurements.csv").read_bytes(), curves_of(version / "tiny")
    (tmp_path / "runs").rename(tmp_path / "interrupted")
    assert walk(tmp_path) == 0
    assert (version / "measurements.csv").read_bytes() == table
    assert curves_of(version / "tiny") == curves


def test_a_second_signal_ends_the_walk_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        hidden_states, "captured_layers", signalling(signal.SIGTERM, 4, [], twice=True)
    )
    child = os.fork()
    if child == 0:
        os._exit(walk(tmp_path))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 143
