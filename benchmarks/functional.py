"""Time the geometry functions against simple scripts, and measure memory.

Each baseline is vectorised, sees the same float32 input and number of threads, and must give the
same values. Times are medians over interleaved rounds; "x" is the median of the rounds' ratios.
Memory is the need of a fresh process beyond its input, each side in a separate process (Linux).

    python benchmarks/functional.py
    python benchmarks/functional.py --only pga_1000x1024 --rounds 3
"""

import argparse
import ctypes
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from torch import Tensor

from toolkit.functional import (
    CosineHistogramResult,
    EmbeddingDeviationResult,
    cosine_histogram,
    cosine_moments,
    embedding_deviation,
)
from toolkit.functional.pga import SubspacePGAResult, subspace_pga
from toolkit.functional.subspace import readout_basis

BLOCK_ROWS, NUM_BINS, BASIS_DIM, NUM_NULL = 4096, 300, 100, 100
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Row(NamedTuple):
    """A computation, the script it replaces, and the check that both agree."""

    inputs: Callable[[], tuple[Tensor, ...]]
    ours: Callable[..., Any]
    baseline: Callable[..., Any] | None
    check: Callable[[Any, Any], None] | None
    rounds: int


def cloud(num: int, dim: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows around a common direction with a decaying spectrum, filled in place."""
    generator = torch.Generator().manual_seed(0)
    scales = torch.arange(1, dim + 1) ** -0.25
    rows = torch.empty(num, dim, dtype=dtype)
    for chunk in torch.split(rows, 1024):
        chunk.copy_(torch.randn(chunk.shape, generator=generator) * scales + 0.05)
    return rows


def pga_inputs(num: int, dim: int) -> tuple[Tensor, Tensor]:
    """Hidden states and an orthonormal basis that shares part of their anisotropy."""
    return cloud(num, dim), readout_basis(cloud(2 * dim, dim).flip(0), BASIS_DIM)


def naive_deviation(embeddings: Tensor) -> float:
    """Blocks of the similarity matrix, flattened, their sums and sums of squares."""
    units = torch.nn.functional.normalize(embeddings, dim=1)
    total, square = 0.0, 0.0
    for start in range(0, len(units), BLOCK_ROWS):
        similarity = units[start : start + BLOCK_ROWS] @ units.T
        similarity[:, start : start + BLOCK_ROWS].fill_diagonal_(0)
        flat = similarity.flatten()
        total += float(flat.sum())
        square += float((flat**2).sum())
    pairs = len(units) * (len(units) - 1)
    mean = total / pairs
    return float(mean + 2 * (square / pairs - mean**2) ** 0.5)


def naive_histogram(vectors: Tensor) -> Tensor:
    """Bins by searchsorted and counts by bincount for each block of the similarity matrix."""
    units = torch.nn.functional.normalize(vectors, dim=1)
    edges = torch.linspace(-1, 1, NUM_BINS + 1)
    counts = torch.zeros(NUM_BINS, dtype=torch.int64)
    for start in range(0, len(units), BLOCK_ROWS):
        similarity = units[start : start + BLOCK_ROWS] @ units.T
        bins = torch.searchsorted(edges, similarity.flatten(), right=True) - 1
        counts += torch.bincount(bins.clamp_(0, NUM_BINS - 1), minlength=NUM_BINS)
    counts[-1] -= len(units)
    return counts // 2


def naive_basis(unembedding: Tensor) -> Tensor:
    """All singular vectors; the first are kept."""
    basis: Tensor = torch.linalg.svd(unembedding, full_matrices=False).Vh[:BASIS_DIM].mT
    return basis


def naive_pga(hidden: Tensor, basis: Tensor) -> tuple[float, list[float]]:
    """QR of a Gaussian, pdist and spearmanr for every null subspace."""
    points = hidden.numpy() - hidden.numpy().mean(0)
    direction = np.linalg.svd(points, full_matrices=False)[2][0]
    points = points - np.outer(points @ direction, direction)
    full = pdist(points, "cosine")
    rho = spearmanr(full, pdist(points @ basis.numpy(), "cosine")).statistic
    rng, null = np.random.default_rng(0), []
    for _ in range(NUM_NULL):
        subspace = np.linalg.qr(rng.standard_normal(basis.shape, dtype=np.float32))[0]
        null.append(spearmanr(full, pdist(points @ subspace, "cosine")).statistic)
    return rho, null


def same_deviation(expected: float, got: EmbeddingDeviationResult) -> None:
    """Single-precision sums agree to six digits."""
    np.testing.assert_allclose(got.epsilon, expected, rtol=1e-5)


def same_histogram(expected: Tensor, got: CosineHistogramResult) -> None:
    """Only rounding at an edge may move a similarity to the next bin."""
    moved = int((expected - got.counts).abs().sum())
    assert moved <= 1e-4 * got.num_pairs, f"{moved} of {got.num_pairs} counts moved"


def same_basis(expected: Tensor, got: Tensor) -> None:
    """The spans' largest principal angle, as sine."""
    outside = expected.double() - got.double() @ (got.double().mT @ expected.double())
    assert torch.linalg.matrix_norm(outside, 2) < 1e-2


def same_pga(expected: tuple[float, list[float]], got: SubspacePGAResult) -> None:
    """The same rho; nulls of other draws, so their means within five standard errors."""
    rho, null = expected
    np.testing.assert_allclose(float(got.rho), rho, atol=1e-6)
    error = float(got.null_std) * (2 / NUM_NULL) ** 0.5
    np.testing.assert_allclose(float(got.null_mean), np.mean(null), atol=5 * error)
    np.testing.assert_allclose(float(got.null_std), np.std(null, ddof=1), rtol=0.5)


def pga(hidden: Tensor, basis: Tensor, num_null: int = NUM_NULL) -> SubspacePGAResult:
    """Our Subspace PGA with as many nulls as the baseline's."""
    return subspace_pga(hidden, basis, num_null=num_null)


def deviation_row(num: int, dim: int, rounds: int) -> Row:
    """Embedding deviation of a float32 matrix."""
    make = partial(cloud, num, dim)
    return Row(lambda: (make(),), embedding_deviation, naive_deviation, same_deviation, rounds)


def histogram_row(num: int, dim: int, rounds: int) -> Row:
    """Histogram over all pairs."""
    make, ours = partial(cloud, num, dim), partial(cosine_histogram, num_bins=NUM_BINS)
    return Row(lambda: (make(),), ours, naive_histogram, same_histogram, rounds)


def pga_row(num: int, dim: int, rounds: int) -> Row:
    """Subspace PGA with 100 nulls."""
    return Row(partial(pga_inputs, num, dim), pga, naive_pga, same_pga, rounds)


ROWS = {
    "epsilon_16384x1024": deviation_row(16384, 1024, 5),
    "epsilon_50304x1024": deviation_row(50304, 1024, 3),
    "epsilon_128256x2048_bf16": Row(
        lambda: (cloud(128256, 2048, torch.bfloat16),), embedding_deviation, None, None, 3
    ),
    "histogram_4096x64": histogram_row(4096, 64, 5),
    "histogram_4096x1024": histogram_row(4096, 1024, 5),
    "basis_16384x1024": Row(
        lambda: (cloud(16384, 1024),),
        partial(readout_basis, k=BASIS_DIM),
        naive_basis,
        same_basis,
        5,
    ),
    "pga_1000x1024": pga_row(1000, 1024, 3),
    "pga_1000x4096": pga_row(1000, 4096, 3),
    "pga_2000x1024": pga_row(2000, 1024, 3),
}
GROWTH = "growth"


def seconds(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def time_row(row: Row, rounds: int) -> None:
    """Print the ratio and both times, after checking that both sides agree."""
    inputs = row.inputs()
    ours = partial(row.ours, *inputs)
    if row.baseline is None or row.check is None:
        ours()
        print(f"ours {median(seconds(ours) for _ in range(rounds)):8.3f} s")
        return
    baseline = partial(row.baseline, *inputs)
    row.check(baseline(), ours())
    times = [(seconds(baseline), seconds(ours)) for _ in range(rounds)]
    ratio = median(slow / quick for slow, quick in times)
    slow, quick = (median(column) for column in zip(*times, strict=True))
    print(f"x{ratio:6.1f}   baseline {slow:8.3f} s   ours {quick:8.3f} s")


def memory_of(field: str) -> int:
    """A field of this process's memory status, in KiB."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found.group(1)) if found else 0


def measure_memory(inputs: tuple[Tensor, ...], work: Callable[..., Any]) -> None:
    """Print the peak of resident memory above that of the input and the libraries."""
    work(inputs[0][:256].clone(), *inputs[1:])
    # Memory that the warm-up freed goes back to the system, and the peak starts anew.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_of("VmRSS")
    work(*inputs)
    print(f"{(memory_of('VmHWM') - before) / 1024:.0f}")


def print_growth(name: str, cases: Iterable[tuple[int, Callable[[], object]]], rounds: int) -> None:
    """Times over sizes, and between neighbours the exponent of the growth."""
    sizes, times = [], []
    for size, work in cases:
        work()
        sizes.append(size)
        times.append(median(seconds(work) for _ in range(rounds)))
    exponents = np.diff(np.log(times)) / np.diff(np.log(sizes))
    columns = "   ".join(f"{size}: {t:.3f} s" for size, t in zip(sizes, times, strict=True))
    print(f"{name:24s} {columns}   exponents {', '.join(f'{e:.2f}' for e in exponents)}")


def measure_growth(rounds: int) -> None:
    """Epsilon against V, PGA against the number of points and of nulls."""
    rows = cloud(131072, 512)
    sizes = (32768, 65536, 131072)
    print_growth(
        "epsilon, V x 512", ((n, partial(cosine_moments, rows[:n])) for n in sizes), rounds
    )
    hidden, basis = pga_inputs(2000, 1024)
    sizes = (500, 1000, 2000)
    print_growth("pga, N x 1024", ((n, partial(pga, hidden[:n], basis)) for n in sizes), rounds)
    sizes = (50, 100, 200)
    work = ((n, partial(pga, hidden[:1000], basis, n)) for n in sizes)
    print_growth("pga 1000 x 1024, nulls", work, rounds)


def child(task: str, name: str, rounds: int) -> None:
    """Work of one process: time a row, measure one side's memory, or measure growth."""
    if name == GROWTH:
        measure_growth(rounds or 3)
        return
    row = ROWS[name]
    if task == "time":
        time_row(row, rounds or row.rounds)
    elif work := row.ours if task == "ours" else row.baseline:
        measure_memory(row.inputs(), work)


def spawn(task: str, name: str, args: argparse.Namespace) -> str:
    """Run `child` in a fresh process with fixed threads and return its output."""
    threads = dict.fromkeys(THREAD_VARIABLES, str(args.threads))
    command = [sys.executable, __file__, "--only", name, "--rounds", str(args.rounds)]
    done = subprocess.run(
        [*command, "--threads", str(args.threads), "--child", task],
        env=os.environ | threads,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def main() -> None:
    """Run the chosen rows, each in separate processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", choices=[*ROWS, GROWTH], default=[*ROWS, GROWTH])
    parser.add_argument("--rounds", type=int, default=0, help="0: each row's own number")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--child", choices=["time", "baseline", "ours"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.child:
        child(args.child, args.only[0], args.rounds)
        return
    for name in args.only:
        line = spawn("time", name, args)
        if name == GROWTH:
            print(line, flush=True)
            continue
        peaks = [spawn(side, name, args) for side in ("baseline", "ours")]
        memory = " -> ".join(peak for peak in peaks if peak)
        print(f"{name:26s} {line}   peak memory {memory} MiB", flush=True)


if __name__ == "__main__":
    main()
