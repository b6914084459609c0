"""Time a packing step against autograd through the Gram matrix, and measure memory and growth.

The baseline is a simple script: |G - I| ** p of the normalised vectors, autograd,
torch's Adam. Ours is the model's own step, penalty and optimiser, in a bare loop. Both see float32
and one thread; each ratio is the median over interleaved rounds, in processor time. Memory is the
need of a fresh process for one step beyond the vectors and Adam's moments (Linux). Our step is
3 k^2 d floating-point operations, the fewest that plain matrix products allow, the baseline's 6:
the last figure is the ratio that 3 k^2 d at the speed of torch's own product would reach.

    python benchmarks/packing.py
"""

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from toolkit.functional import gram_penalty, published_exponent
from toolkit.optim import AdamW

SIZES = [(2000, 64), (2000, 256), (4000, 512)]
GROWTH = [1000, 2000, 4000, 8000]
LR = 1e-3


def start(num_vectors: int, dim: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random vectors, the same for every side."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(num_vectors, dim, generator=generator).to(dtype).requires_grad_()


class NaiveStep:
    """The whole Gram matrix, differentiated by autograd."""

    def __init__(self, num_vectors: int, dim: int, exponent: int) -> None:
        self.vectors, self.exponent = start(num_vectors, dim), exponent
        self.optimizer = torch.optim.Adam([self.vectors], lr=LR)

    def __call__(self) -> None:
        """Evaluate, differentiate, update."""
        self.optimizer.zero_grad()
        units = self.vectors / self.vectors.norm(dim=1, keepdim=True)
        gram = units @ units.T
        penalty = ((gram - torch.eye(len(gram))).abs() ** self.exponent).sum()
        torch.autograd.backward(penalty)
        self.optimizer.step()


class FastStep:
    """The toolkit's penalty and optimiser."""

    def __init__(self, num_vectors: int, dim: int, exponent: int) -> None:
        self.vectors, self.exponent = start(num_vectors, dim), exponent
        self.optimizer = AdamW([self.vectors], LR)
        self.scale: Tensor | None = None

    def __call__(self) -> None:
        """Evaluate, differentiate, update."""
        self.optimizer.zero_grad()
        penalty = gram_penalty(self.vectors, self.exponent, scale=self.scale)
        torch.autograd.backward(penalty)
        self.optimizer.step()
        self.scale = penalty.detach()


SIDES: dict[str, type[NaiveStep] | type[FastStep]] = {"naive": NaiveStep, "fast": FastStep}


def seconds(work: Callable[[], object], repeats: int = 1) -> float:
    """Return the processor seconds of one call, averaged over ``repeats`` calls."""
    begun = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - begun) / repeats


def gradient_error(num_vectors: int, dim: int, exponent: int) -> float:
    """Relative difference of the float32 gradient from float64 autograd of the p-norm."""
    vectors = start(num_vectors, dim)
    (ours,) = torch.autograd.grad(gram_penalty(vectors, exponent), vectors)
    exact = start(num_vectors, dim, torch.float64)
    units = exact / exact.norm(dim=1, keepdim=True)
    cosines = (units @ units.T - torch.eye(num_vectors, dtype=torch.float64)).abs()
    scale = cosines.detach().max()
    penalty = scale * ((cosines / scale) ** exponent).sum() ** (1 / exponent)
    (expected,) = torch.autograd.grad(penalty, exact)
    return float((ours - expected).norm() / expected.norm())


def extra_memory(side: str, num_vectors: int, dim: int, exponent: int) -> float:
    """Mebibytes that a step needs, measured in a separate process."""
    arguments = ["--child", side, str(num_vectors), str(dim), str(exponent)]
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def child(side: str, num_vectors: int, dim: int, exponent: int) -> None:
    """Print the growth of this process's peak memory over one step, in MiB."""
    SIDES[side](8, 2, exponent)()
    step = SIDES[side](num_vectors, dim, exponent)
    step.vectors.grad = torch.zeros_like(step.vectors)
    step.optimizer.step()
    # A step may reuse pages of the imports without a new count: reset the peak.
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_memory()
    step()
    print(peak_memory() - before)


def peak_memory() -> float:
    """Peak resident memory of this process in MiB."""
    status = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def peak_products() -> float:
    """Floating-point operations a second of torch's matrix product at a favourable size."""
    left, right = torch.randn(2, 512, 512)
    left @ right
    return 2 * 512**3 / min(seconds(lambda: left @ right, 5) for _ in range(10))


def compare_steps(rounds: int, exponent: int | None) -> None:
    """Print ratio, times, memory and gradient error for each size."""
    peak = peak_products()
    for num_vectors, dim in SIZES:
        power = exponent or published_exponent(num_vectors, dim)
        naive, fast = NaiveStep(num_vectors, dim, power), FastStep(num_vectors, dim, power)
        naive()
        fast()
        times = [(seconds(naive), seconds(fast, 3)) for _ in range(rounds)]
        ratio = median(slow / quick for slow, quick in times)
        slow, quick = (median(column) for column in zip(*times, strict=True))
        memory = [extra_memory(side, num_vectors, dim, power) for side in SIDES]
        floor = 3 * num_vectors**2 * dim / peak
        print(
            f"{num_vectors} x {dim}, p = {power:3d}: x{ratio:4.1f}  baseline {1e3 * slow:7.1f} ms, "
            f"ours {1e3 * quick:6.1f} ms; memory {memory[0]:5.0f} -> {memory[1]:3.0f} MiB; "
            f"gradient {gradient_error(num_vectors, dim, power):.0e}; products alone "
            f"{1e3 * floor:5.1f} ms: x{slow / floor:.1f} at most",
            flush=True,
        )


def time_growth(rounds: int) -> None:
    """Print how the step's time grows with the number of vectors; k^2 is expected."""
    times = []
    for num_vectors in GROWTH:
        step = FastStep(num_vectors, 64, 8)
        step()
        times.append(median(seconds(step) for _ in range(rounds)))
    shown = ", ".join(f"{k}: {1e3 * t:.1f} ms" for k, t in zip(GROWTH, times, strict=True))
    slope = math.log(times[-1] / times[0]) / math.log(GROWTH[-1] / GROWTH[0])
    print(f"growth with k at d = 64: {shown}; k^{slope:.2f}")


def main() -> None:
    """Print every row."""
    parser = argparse.ArgumentParser(description="a packing step against its plain script")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--exponent", type=int, help="instead of the published ones")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.child:
        side, *numbers = options.child
        child(side, *map(int, numbers))
        return
    compare_steps(options.rounds, options.exponent)
    time_growth(options.rounds)


if __name__ == "__main__":
    main()
