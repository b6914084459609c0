"""Time `fit` with one and with several threads, alone and beside a process that computes.

The baseline has as many threads as cores, which spin while they wait, OpenMP's default. The
toolkit's own choice is one thread for small models; the third column has all threads, which sleep
while they wait. Each figure is the median over interleaved rounds of the whole command.

    python benchmarks/threads.py
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
RUNS = {
    "toy": ["--config=configs/toy.yaml", "--trainer.max_steps=600"],
    "packing": ["--config=configs/packing.yaml", "--trainer.max_steps=150"],
    "pocket": [
        "--config=configs/pocket.yaml",
        "--trainer.max_steps=40",
        "--trainer.val_check_interval=40",
    ],
    "packing 4000 x 512": [
        "--config=configs/packing.yaml",
        "--model.num_vectors=4000",
        "--model.dim=512",
        "--trainer.max_steps=10",
    ],
}
# libgomp's default spin count without a policy.
SPIN = {"OMP_NUM_THREADS": str(os.cpu_count()), "GOMP_SPINCOUNT": "300000"}
SETTINGS: dict[str, dict[str, str]] = {
    "all, spinning": SPIN,
    "all, sleeping": {"OMP_NUM_THREADS": str(os.cpu_count())},
    "chosen": {},
}


def seconds(args: list[str], variables: dict[str, str]) -> float:
    """Return the seconds of the command in a separate process."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "toolkit", "fit", *args, f"--trainer.default_root_dir={folder}"],
            cwd=ROOT,
            env={**inherited, **variables},
            check=True,
            capture_output=True,
        )
        return time.perf_counter() - start


@contextmanager
def neighbours(number: int) -> Iterator[None]:
    """Let as many processes compute while the body runs."""
    processes = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def compare(name: str, rounds: int, busy: int) -> None:
    """Print how many times as fast as the baseline each setting is."""
    with neighbours(busy):
        times = [
            {setting: seconds(RUNS[name], variables) for setting, variables in SETTINGS.items()}
            for _ in range(rounds)
        ]
    base, *others = SETTINGS
    ratios = "   ".join(
        f"{setting} x{median(one[base] / one[setting] for one in times):5.2f}" for setting in others
    )
    beside = f"{busy} busy" if busy else "idle"
    print(f"{name:20s} {beside:7s} {ratios}   baseline {median(t[base] for t in times):6.1f} s")


def main() -> None:
    """Time every run idle and busy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--busy", nargs="+", type=int, default=[0, 1])
    options = parser.parse_args()
    for busy in options.busy:
        for name in options.runs:
            compare(name, options.rounds, busy)


if __name__ == "__main__":
    main()
