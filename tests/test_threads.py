"""The number of threads: who decides, how large small work is, and that it is given back."""

import os
import subprocess
import sys
from collections.abc import Iterator

import lightning as L
import pytest
import torch
from threadpoolctl import threadpool_info
from torch import nn

from callbacks.base import MeasurementCallback
from callbacks.moment import Moment
from tests.tiny_run import TinyData, TinyModel
from toolkit import threads
from toolkit.cli import main
from toolkit.models import SuperpositionAutoencoder, VectorPacking
from toolkit.runs.points import Point


@pytest.fixture(autouse=True)
def environment() -> Iterator[pytest.MonkeyPatch]:
    """A machine of two cores on which the user has said nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        yield patch
    torch.set_num_threads(before)


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def large() -> nn.Module:
    return nn.Linear(2048, 2048, device="meta")


def test_work_of_a_step_is_weights_times_rows() -> None:
    assert threads.multiply_adds(nn.Linear(10, 20, bias=False)) == 1024 * 200
    # Each of 50 vectors meets each of the 50.
    assert threads.multiply_adds(VectorPacking(50, 3)) == 50 * 50 * 3
    assert threads.multiply_adds(nn.LazyLinear(3)) == 0


@pytest.mark.parametrize(
    ("module", "is_small"),
    [
        (SuperpositionAutoencoder(1000, [10, 15, 25, 39, 63, 100]), True),
        (VectorPacking(2000, 128), True),
        (VectorPacking(4000, 512), False),
        (large(), False),
    ],
)
def test_small_work_gets_one_thread_and_large_work_all(module: nn.Module, is_small: bool) -> None:
    before = blas_threads()
    with threads.suited_to(module):
        assert torch.get_num_threads() == (1 if is_small else 2)
        assert blas_threads() == ({1} if is_small else before)
    assert torch.get_num_threads() == 2
    assert blas_threads() == before


def test_count_comes_back_after_an_exception() -> None:
    with pytest.raises(RuntimeError, match="in the body"), threads.suited_to(nn.Linear(2, 2)):
        raise RuntimeError("in the body")
    assert torch.get_num_threads() == 2


def test_environment_comes_before_the_choice(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OMP_NUM_THREADS", "2")
    with threads.suited_to(nn.Linear(2, 2)):
        assert torch.get_num_threads() == 2


def test_option_comes_before_environment_and_choice(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OMP_NUM_THREADS", "1")
    with threads.given(3), threads.suited_to(nn.Linear(2, 2)):
        assert torch.get_num_threads() == 3
        assert blas_threads() == {3}
    assert torch.get_num_threads() == 2


class Counting(MeasurementCallback):
    """Measures how many threads measure."""

    metric = "threads"

    def measure(self, moment: Moment) -> list[Point]:
        return [Point("number", "", float(torch.get_num_threads()))]


@pytest.mark.parametrize(("options", "expected"), [([], 1), (["--threads=2"], 2)])
def test_fit_chooses_by_the_model_and_obeys_the_option(
    options: list[str], expected: int, tmp_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    step = TinyModel.training_step

    def counted(self: TinyModel, *args: object) -> object:
        seen.append(torch.get_num_threads())
        return step(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(TinyModel, "training_step", counted)
    args = ["--model=tests.tiny_run.TinyModel", "--data=tests.tiny_run.TinyData"]
    args += [f"--trainer.default_root_dir={tmp_path}", "--trainer.max_steps=2", *options]
    assert main(["fit", *args, "--trainer.enable_progress_bar=false"]) == 0
    assert set(seen) == {expected}
    assert torch.get_num_threads() == 2


def test_callback_in_a_users_trainer_gives_the_count_back(tmp_path: str) -> None:
    callback = Counting(schedule=1)
    trainer = L.Trainer(
        max_steps=2,
        callbacks=[callback],
        default_root_dir=tmp_path,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        log_every_n_steps=1,
    )
    trainer.fit(TinyModel(), TinyData())
    assert callback.history[2] == {"threads/number": 1.0}
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("value", ["0", "two", "1.5", ""])
def test_refuses_a_number_of_threads_that_is_none(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capacity", "--threads", value, "--dim=10", "--epsilon=0.05"]) == 2
    err = capsys.readouterr().err
    assert err == f"error: --threads: expected a whole number of at least 1, got {value!r}\n"


def test_threads_of_the_command_wait_without_spinning() -> None:
    code = (
        "import runpy, sys, os; sys.argv = ['toolkit', '--version']\n"
        "try: runpy.run_module('toolkit', run_name='__main__')\n"
        "except SystemExit: print('torch' in sys.modules, os.environ['OMP_WAIT_POLICY'])"
    )
    variables = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False PASSIVE"
