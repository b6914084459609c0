"""Time the linear probe against StandardScaler and LogisticRegression, and compare what they find.

The features imitate one layer's hidden states: a power-law spectrum in a random basis, unequal
scales and means, one outlier coordinate, four classes. Both sides see the same float32 features
and one thread; each ratio is the median over interleaved rounds. The baseline keeps scikit-learn's
default tolerance unless its loss is then more than 1e-4 above the minimum, in which case it gets
the next smaller power of ten. "Exact" is a float64 fit with a tolerance of 1e-9. Where the penalty
is chosen, the two sides hold out different rows.

    python benchmarks/probe.py
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

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
SIZES = [(4000, 512), (4000, 1024), (1000, 2048)]
PENALTIES = [1.0, 0.3, 0.1, 0.03, 0.01, 0.001]
NUM_CLASSES, NUM_TEST, ALLOWED_EXCESS = 4, 2000, 1e-4


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
    """Seconds one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio_line(baseline: Callable[[], object], ours: Callable[[], object], rounds: int) -> str:
    """Median ratio of interleaved rounds and both medians."""
    baseline(), ours()
    times = [(seconds(baseline), seconds(ours)) for _ in range(rounds)]
    ratio = median(slow / quick for slow, quick in times)
    slow, quick = (1e3 * median(column) for column in zip(*times, strict=True))
    return f"x{ratio:5.1f}   baseline {slow:7.1f} ms   ours {quick:7.1f} ms"


def accurate_baseline(problem: Problem, l2: float, minimum: float) -> tuple[float, Baseline, float]:
    """The loosest tolerance within the allowed excess, its fit and its excess."""
    features, labels = problem.train.numpy(), problem.train_labels.numpy()
    tol = 1e-4
    while True:
        fit = Baseline(features, labels, l2, tol)
        excess = objective(problem, fit.model.coef_, fit.model.intercept_, l2) - minimum
        if excess <= ALLOWED_EXCESS:
            return tol, fit, excess
        tol /= 10


def compare_single(problem: Problem, l2: float, rounds: int) -> None:
    """One penalty: ratio, excess of both losses, test accuracies."""
    train, labels = problem.train.numpy(), problem.train_labels.numpy()
    exact = Baseline(train.astype(np.float64), labels, l2, 1e-9)
    minimum = objective(problem, exact.model.coef_, exact.model.intercept_, l2)
    tol, baseline, excess = accurate_baseline(problem, l2, minimum)
    probe = fit_linear_probe(problem.train, problem.train_labels, l2=l2)
    own = objective(problem, probe.weight.numpy(), probe.bias.numpy(), l2) - minimum
    ratio = ratio_line(
        lambda: Baseline(train, labels, l2, tol),
        lambda: fit_linear_probe(problem.train, problem.train_labels, l2=l2),
        rounds,
    )
    print(
        f"{tuple(problem.train.shape)!s:13} l2 {l2:7.1e}  {ratio}   excess loss {excess:.0e} "
        f"(tol {tol:.0e}, {baseline.model.n_iter_[0]} iterations), ours {own:.0e} "
        f"({int(probe.num_iter)})   {accuracies(problem, baseline, probe)}, exact "
        f"{exact.accuracy(problem.test.double().numpy(), problem.test_labels.numpy()):.4f}",
        flush=True,
    )


def compare_choice(problem: Problem, rounds: int) -> None:
    """Penalty chosen among six on held-out rows."""
    train, labels = problem.train.numpy(), problem.train_labels.numpy()

    def ours() -> LinearProbeResult:
        return fit_linear_probe(problem.train, problem.train_labels, l2=PENALTIES)

    ratio = ratio_line(lambda: chosen_baseline(train, labels, 1e-4), ours, rounds)
    print(
        f"{tuple(problem.train.shape)!s:13} best of {len(PENALTIES)}   {ratio}   "
        f"{accuracies(problem, chosen_baseline(train, labels, 1e-4), ours())}",
        flush=True,
    )


def accuracies(problem: Problem, baseline: Baseline, probe: LinearProbeResult) -> str:
    """Test accuracies of both."""
    test: tuple[Tensor, Tensor] = problem.test, problem.test_labels
    theirs = baseline.accuracy(test[0].numpy(), test[1].numpy())
    return f"accuracy {theirs:.4f}, ours {float(probe_accuracy(probe, *test)):.4f}"


def main() -> None:
    """Print every ratio."""
    parser = argparse.ArgumentParser(description="linear probe against scikit-learn")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for num_rows, dim in SIZES:
            problem = Problem(num_rows, dim)
            for l2 in (0.1, 0.01, 1 / num_rows):
                compare_single(problem, l2, options.rounds)
            compare_choice(problem, max(options.rounds // 2, 1))


if __name__ == "__main__":
    main()
