"""Time the linear probe against scikit-learn and torch.optim.LBFGS, and compare the fits.

The features imitate one layer's hidden states: a power-law spectrum in a random basis, unequal
scales and means, one outlier coordinate, four classes. All see the same float32 features, the same
objective and one thread; each ratio is that of the medians over interleaved rounds. The excess is
that of the objective over its minimum, which is a float64 fit of scikit-learn with a tolerance of
1e-9. Ours keeps its default tolerance, an excess of 1e-6. The others get the loosest power of ten
whose excess is below the allowed one, from 1e-4 on. Where the penalty is chosen, the two sides
hold out different rows.

    python benchmarks/probe.py
    python benchmarks/probe.py --allowed_excess 1e-4
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits
from torch import Tensor

from toolkit.functional import LinearProbeResult, fit_linear_probe, probe_accuracy

Array = npt.NDArray[np.float32]
SIZES = [(4000, 256), (4000, 1024), (4000, 2048), (1000, 2048)]
PENALTIES = [1.0, 0.3, 0.1, 0.03, 0.01, 0.001]
NUM_CLASSES, NUM_TEST = 4, 2000
LOOSEST, STRICTEST = 1e-4, 1e-9


class Problem:
    """Train and test rows of one imitated layer."""

    def __init__(self, num_rows: int, dim: int, decay: float = 1.0) -> None:
        generator = torch.Generator().manual_seed(0)
        total = num_rows + NUM_TEST
        labels = torch.randint(NUM_CLASSES, (total,), generator=generator)
        latent = torch.randn(total, dim, generator=generator)
        latent[:, :64] += 0.25 * torch.randn(NUM_CLASSES, 64, generator=generator)[labels]
        basis = torch.linalg.qr(torch.randn(dim, dim, generator=generator)).Q
        features = (latent * torch.arange(1, dim + 1) ** (-decay / 2)) @ basis
        features *= torch.randn(dim, generator=generator).exp()
        features += torch.randn(dim, generator=generator)
        features[:, 3] += 50
        self.train, self.test = features[:num_rows], features[num_rows:]
        self.train_labels, self.test_labels = labels[:num_rows], labels[num_rows:]


class Fit(NamedTuple):
    """Result of a solver, on standardised features."""

    weight: Array
    bias: Array
    num_iter: int


class Baseline:
    """The two scikit-learn steps on arrays."""

    def __init__(self, features: Array, labels: Array, l2: float, tol: float) -> None:
        self.scaler = StandardScaler()
        scaled = self.scaler.fit_transform(features)
        strength = 1 / (len(labels) * l2)
        self.model = LogisticRegression(C=strength, tol=tol, max_iter=10**5).fit(scaled, labels)

    def accuracy(self, features: Array, labels: Array) -> float:
        """Share of rows classified right."""
        return float(self.model.score(self.scaler.transform(features), labels))


def chosen_baseline(features: Array, labels: Array, tol: float) -> Baseline:
    """Choose the penalty on a fifth of the rows, then fit on all."""
    parts = train_test_split(features, labels, test_size=0.2, stratify=labels, random_state=0)
    train, held_out, train_labels, held_out_labels = parts
    scores = [
        Baseline(train, train_labels, l2, tol).accuracy(held_out, held_out_labels)
        for l2 in PENALTIES
    ]
    return Baseline(features, labels, PENALTIES[int(np.argmax(scores))], tol)


def objective(problem: Problem, weight: Array, bias: Array, l2: float) -> float:
    """Mean cross-entropy + l2/2 ||W||^2 in float64."""
    scaled = StandardScaler().fit_transform(problem.train.double().numpy())
    scores = torch.from_numpy(scaled @ weight.T.astype(np.float64) + bias)
    loss = log_loss(problem.train_labels.numpy(), scores.softmax(1).numpy())
    return float(loss + l2 / 2 * np.square(weight.astype(np.float64)).sum())


def seconds(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def scikit_learn(problem: Problem, l2: float, tol: float) -> Fit:
    """StandardScaler and LogisticRegression."""
    model = Baseline(problem.train.numpy(), problem.train_labels.numpy(), l2, tol).model
    return Fit(model.coef_, model.intercept_, int(model.n_iter_[0]))


def torch_lbfgs(problem: Problem, l2: float, tol: float) -> Fit:
    """The optimiser of torch on the loss of torch, from the same start as ours."""
    deviation, mean = torch.std_mean(problem.train, 0, correction=0)
    rows, labels = (problem.train - mean) / deviation, problem.train_labels
    weight = rows.new_zeros(NUM_CLASSES, rows.shape[1], requires_grad=True)
    bias = labels.bincount(minlength=NUM_CLASSES).div(len(labels)).log().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [weight, bias],
        max_iter=10**4,
        max_eval=10**5,
        tolerance_grad=tol,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        scores = torch.nn.functional.linear(rows, weight, bias)
        loss: Tensor = torch.nn.functional.cross_entropy(scores, labels)
        loss = loss + l2 / 2 * weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    num_iter = optimiser.state[weight]["n_iter"]
    return Fit(weight.detach().numpy(), bias.detach().numpy(), num_iter)


RIVALS = {"scikit-learn": scikit_learn, "torch LBFGS": torch_lbfgs}


def interleaved(*works: Callable[[], object], rounds: int) -> list[float]:
    """Median milliseconds of each side in interleaved rounds."""
    for work in works:
        work()
    times = [[seconds(work) for work in works] for _ in range(rounds)]
    return [1e3 * median(column) for column in zip(*times, strict=True)]


def accurate_fit(
    solver: Callable[[Problem, float, float], Fit], problem: Problem, l2: float, limit: float
) -> tuple[float, Fit]:
    """The loosest tolerance whose objective is at most ``limit``, or the strictest tolerance."""
    tol = LOOSEST
    while True:
        fit = solver(problem, l2, tol)
        if objective(problem, fit.weight, fit.bias, l2) <= limit or tol <= STRICTEST:
            return tol, fit
        tol /= 10


def compare_single(problem: Problem, l2: float, allowed: float, rounds: int) -> None:
    """One penalty: ratio to each rival, excess of all losses, test accuracy of the exact fit."""
    labels = problem.train_labels.numpy()
    exact = Baseline(problem.train.double().numpy(), labels, l2, 1e-9)
    minimum = objective(problem, exact.model.coef_, exact.model.intercept_, l2)
    fits = {
        name: accurate_fit(solver, problem, l2, minimum + allowed)
        for name, solver in RIVALS.items()
    }
    probe = fit_linear_probe(problem.train, problem.train_labels, l2=l2)
    own = objective(problem, probe.weight.numpy(), probe.bias.numpy(), l2) - minimum
    *others, ours = interleaved(
        *(partial(RIVALS[name], problem, l2, tol) for name, (tol, _) in fits.items()),
        lambda: fit_linear_probe(problem.train, problem.train_labels, l2=l2),
        rounds=rounds,
    )
    accuracy = float(probe_accuracy(probe, problem.test, problem.test_labels))
    print(
        f"{tuple(problem.train.shape)!s:13} l2 {l2:7.1e}  ours {ours:7.1f} ms, excess {own:.0e}, "
        f"{int(probe.num_iter)} iterations, accuracy {accuracy:.4f} (exact "
        f"{exact.accuracy(problem.test.double().numpy(), problem.test_labels.numpy()):.4f})"
    )
    for (name, (tol, fit)), time_taken in zip(fits.items(), others, strict=True):
        excess = objective(problem, fit.weight, fit.bias, l2) - minimum
        print(
            f"    {name:12} x{time_taken / ours:5.1f}   {time_taken:7.1f} ms, excess {excess:.0e}, "
            f"{fit.num_iter} iterations (tol {tol:.0e})",
            flush=True,
        )


def compare_choice(problem: Problem, rounds: int) -> None:
    """Penalty chosen among six on held-out rows."""
    train, labels = problem.train.numpy(), problem.train_labels.numpy()

    def ours() -> LinearProbeResult:
        return fit_linear_probe(problem.train, problem.train_labels, l2=PENALTIES)

    baseline, own = interleaved(
        lambda: chosen_baseline(train, labels, LOOSEST), ours, rounds=rounds
    )
    print(
        f"{tuple(problem.train.shape)!s:13} best of {len(PENALTIES)}   x{baseline / own:5.1f}   "
        f"scikit-learn {baseline:7.1f} ms, ours {own:7.1f} ms   "
        f"{accuracies(problem, chosen_baseline(train, labels, LOOSEST), ours())}",
        flush=True,
    )


def accuracies(problem: Problem, baseline: Baseline, probe: LinearProbeResult) -> str:
    """Test accuracies of both."""
    test: tuple[Tensor, Tensor] = problem.test, problem.test_labels
    theirs = baseline.accuracy(test[0].numpy(), test[1].numpy())
    return f"accuracy {theirs:.4f}, ours {float(probe_accuracy(probe, *test)):.4f}"


def main() -> None:
    """Print every ratio."""
    parser = argparse.ArgumentParser(description="linear probe against other solvers")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--allowed_excess", type=float, default=1e-6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for num_rows, dim in SIZES:
            problem = Problem(num_rows, dim)
            for l2 in (0.1, 0.01, 1 / num_rows):
                compare_single(problem, l2, options.allowed_excess, options.rounds)
            compare_choice(problem, max(options.rounds // 2, 1))


if __name__ == "__main__":
    main()
