"""Time the toy step against a simple script, and `fit` against a bare loop.

The baseline draws every cell, runs the model densely through autograd and updates with AdamW
written in Python; each width and decay is a separate run. Ours draws active cells, shares a
batch between the widths and uses the closed-form step. Both see float32 and the same threads;
each figure is the median over interleaved rounds.

    python benchmarks/toy.py
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import lightning as L
import torch
from torch import Tensor

from toolkit.data import PowerFrequencies, SparseFeatures
from toolkit.models import SuperpositionAutoencoder
from toolkit.optim import AdamW

NUM_FEATURES, BATCH_SIZE = 1000, 2048
WIDTHS, DECAYS = [10, 15, 25, 39, 63, 100], [-1.0, 0.0, 1.0]
LR, BETAS, EPS = 1e-2, (0.9, 0.999), 1e-8


class NaiveRun:
    """One width, one decay: dense sampling, dense autograd, AdamW line by line."""

    def __init__(self, probabilities: Tensor, m: int, decay: float) -> None:
        self.probabilities, self.decay = probabilities.float(), decay
        self.weight = (torch.randn(NUM_FEATURES, m) / m**0.5).requires_grad_()
        self.bias = torch.randn(NUM_FEATURES, requires_grad=True)
        self.parameters = (self.weight, self.bias)
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.parameters]
        self.count = 0

    def step(self) -> None:
        """Draw a batch, differentiate, update."""
        active = torch.rand(BATCH_SIZE, NUM_FEATURES) < self.probabilities
        inputs = active * (2 * torch.rand(BATCH_SIZE, NUM_FEATURES))
        outputs = torch.relu(inputs @ self.weight @ self.weight.T + self.bias)
        loss = ((outputs - inputs) ** 2).mean()
        self.update(torch.autograd.grad(loss, self.parameters))

    @torch.no_grad()
    def update(self, gradients: tuple[Tensor, ...]) -> None:
        """Decay W, then take one Adam step."""
        self.count += 1
        if self.decay < 0:
            norms = self.weight.norm(dim=1, keepdim=True)
            self.weight += LR * self.decay * self.weight * (1 - 1 / norms)
        else:
            self.weight *= 1 - LR * self.decay
        for parameter, gradient, (first, second) in zip(
            self.parameters, gradients, self.moments, strict=True
        ):
            first.mul_(BETAS[0]).add_(gradient, alpha=1 - BETAS[0])
            second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            mean = first / (1 - BETAS[0] ** self.count)
            scale = (second / (1 - BETAS[1] ** self.count)).sqrt() + EPS
            parameter.sub_(LR * mean / scale)


class FastRun:
    """Several widths, one decay: the toolkit's data, step and optimiser in a bare loop."""

    def __init__(self, data: SparseFeatures, widths: list[int], decay: float) -> None:
        self.model = SuperpositionAutoencoder(data.num_features, widths, weight_decay=decay)
        self.batches = iter(data.train_dataloader())
        split: list[dict[str, Any]] = [
            {"params": list(self.model.weights), "weight_decay": decay},
            {"params": list(self.model.biases)},
        ]
        self.optimizer = AdamW(split, LR, betas=BETAS)

    def step(self) -> None:
        """Take the next batch, differentiate, update."""
        self.optimizer.zero_grad()
        loss = self.model.losses(next(self.batches)).sum() / self.model.num_features
        torch.autograd.backward(loss)
        self.optimizer.step()


def seconds(work: Callable[[], None], repeats: int) -> float:
    """Return the seconds of one call, averaged over ``repeats`` calls."""
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - start) / repeats


def compare(
    name: str, naive: Callable[[], None], fast: Callable[[], None], rounds: int, repeats: int
) -> None:
    """Print the median ratio of interleaved rounds and both medians."""
    naive()
    fast()
    times = [(seconds(naive, repeats), seconds(fast, 4 * repeats)) for _ in range(rounds)]
    ratio = median(slow / quick for slow, quick in times)
    slow, quick = (1e3 * median(column) for column in zip(*times, strict=True))
    print(f"{name:34s} x{ratio:5.1f}   baseline {slow:8.2f} ms   ours {quick:8.2f} ms", flush=True)


def step_all(runs: Sequence[NaiveRun | FastRun]) -> None:
    """Advance every run by one step."""
    for run in runs:
        run.step()


def time_steps(data: SparseFeatures, rounds: int) -> None:
    """One width against one width, and the whole sweep against eighteen runs."""
    for m in (10, 100):
        naive, fast = NaiveRun(data.probabilities, m, -1.0), FastRun(data, [m], -1.0)
        compare(f"step, m = {m}", naive.step, fast.step, rounds, repeats=5)
    slow = [NaiveRun(data.probabilities, m, decay) for m in WIDTHS for decay in DECAYS]
    quick = [FastRun(data, WIDTHS, decay) for decay in DECAYS]
    compare(
        "sweep step, 6 widths x 3 decays",
        lambda: step_all(slow),
        lambda: step_all(quick),
        rounds,
        repeats=1,
    )


def time_fit(rounds: int, steps: int) -> None:
    """The sizes of configs/toy.yaml: `fit` without a logger against the bare loop, per step."""
    widths, ratios = [10, 15, 23, 34, 51], []
    for _ in range(rounds):
        data = SparseFeatures(512, PowerFrequencies(1.0), steps_per_epoch=steps, seed=0)
        bare = FastRun(data, widths, -1.0)
        quick = seconds(bare.step, steps)
        trainer = L.Trainer(
            accelerator="cpu",
            max_steps=steps,
            logger=False,
            limit_val_batches=0,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        model = SuperpositionAutoencoder(512, widths)
        start = time.perf_counter()
        trainer.fit(model, data)
        ratios.append((time.perf_counter() - start) / steps / quick)
    ratio = median(ratios)
    print(f"fit against the bare loop: x{ratio:.2f} the time of a step, bare {1e3 * quick:.2f} ms")


def main() -> None:
    """Print every ratio."""
    parser = argparse.ArgumentParser(description="toy step and fit against baselines")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--exponent", type=float, default=1.0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
    data = SparseFeatures(
        NUM_FEATURES,
        PowerFrequencies(options.exponent),
        batch_size=BATCH_SIZE,
        steps_per_epoch=10**9,
    )
    time_steps(data, options.rounds)
    time_fit(options.rounds, steps=1000)


if __name__ == "__main__":
    main()
