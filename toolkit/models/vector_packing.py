"""How many nearly orthogonal directions fit: packing by a Gram penalty (arXiv 2606.02765)."""

import math
from collections.abc import Iterator
from math import inf
from typing import Any, Literal

import torch
from lightning.pytorch.cli import OptimizerCallable
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from typing_extensions import override

from toolkit.functional._checks import (
    as_float,
    integer_at_least,
    number_at_least,
    require_memory,
    shown,
)
from toolkit.functional.packing import (
    LARGEST_EXPONENT,
    PenaltyWithMaxResult,
    gram_penalty_with_max,
    max_abs_cosine,
    published_exponent,
)
from toolkit.models.scheduled import ScheduledModule

# A normal step hardly changes the sum of powers; a diverging run multiplies it by thousands.
_DIVERGED = 2.0


class VectorPacking(ScheduledModule):
    """Unit vectors that a Gram penalty spreads as evenly as it can.

    The defaults raise the exponent while the learning rate falls, which packs better than the
    published recipe (``exponent="published", lr="published"``) in a fifth of its steps. A run
    that breaks is noticed in the penalty: it goes back to the best vectors, forgets the moments
    and halves its learning rate. The result is always the best vectors seen.

    Args:
        num_vectors: Number of vectors k.
        dim: Dimension d.
        exponent: p of the penalty, 2 to 1,000,000. A pair is raised geometrically from its first
            to its second number, in even integers; ``published`` is the paper's rule.
        lr: Learning rate, which falls along a cosine; ``published`` is the paper's constant one,
            0.005 for d <= 1024, else 0.0025.
        warmup_fraction: Share of the run in which that rate rises first.
        lr_floor: Where the cosine ends, as a share of the learning rate.
        betas: Decay rates of Adam's moments; a long second moment lets steps blow up as p rises.
        optimizer: Replaces Adam with its lr and betas; the schedule stays.

    Attributes:
        vectors: The vectors being trained, shape (k, d), of any norm.
        best_vectors: Those with the smallest largest |cosine| so far, as they were.
        best_max_abs_cosine: That largest |cosine|; infinite before the first step.
        last_exponent: Exponent of the last step.
        on_bar: Values of the last step for the progress bar, by name.
        restarts: How often the run went back to the best vectors.

    Raises:
        ValueError: If a number is out of range.
    """

    vectors: nn.Parameter
    best_vectors: Tensor
    best_max_abs_cosine: Tensor
    last_exponent: Tensor
    restarts: Tensor
    scale: Tensor

    def __init__(
        self,
        num_vectors: int,
        dim: int,
        *,
        exponent: Literal["published"] | float | tuple[float, float] = (4, 400),
        lr: Literal["published"] | float = 0.01,
        warmup_fraction: float = 0.02,
        lr_floor: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.95),
        optimizer: OptimizerCallable | None = None,
    ) -> None:
        super().__init__(
            betas=betas, warmup_fraction=warmup_fraction, lr_floor=lr_floor, optimizer=optimizer
        )
        self.num_vectors = integer_at_least("num_vectors", num_vectors, 2)
        self.dim = integer_at_least("dim", dim, 1)
        require_memory("num_vectors, dim", num_vectors, dim)
        self.exponents = _exponents(exponent, num_vectors, dim)
        self.constant_lr = lr == "published"
        self.lr = _learning_rate(lr, dim)
        self.save_hyperparameters(ignore=["optimizer"])
        start = nn.functional.normalize(torch.randn(num_vectors, dim))
        self.vectors = nn.Parameter(start)
        self.register_buffer("best_vectors", start.detach().clone())
        self.register_buffer("best_max_abs_cosine", torch.tensor(inf))
        self.register_buffer("last_exponent", torch.tensor(self.exponents[0]))
        self.register_buffer("restarts", torch.tensor(0))
        self.register_buffer("scale", torch.tensor(0.0))

    @property
    def rows_per_step(self) -> int:
        """Rows that each weight is multiplied by in a step: every vector meets all others."""
        return self.num_vectors

    def forward(self) -> Tensor:
        """Return the best vectors seen, as unit vectors, shape (k, d)."""
        return nn.functional.normalize(self.best_vectors)

    @override
    def training_step(self, batch: object, batch_idx: int) -> Tensor:
        step = self.trainer.global_step
        exponent = self._exponent_at(step)
        result = self._guarded_penalty(exponent)
        self.on_bar = {"max|cos|": result.max_abs_cosine.detach()}
        self._keep_if_better(self.vectors, result.max_abs_cosine)
        self.scale.copy_(result.penalty.detach())
        self.last_exponent.fill_(exponent)
        if self.begins_logged_step():
            self._log_step(result)
        return result.penalty

    @override
    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: torch.optim.Optimizer | LightningOptimizer,
        optimizer_closure: Any = None,
    ) -> None:
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        # The vectors of the last step are measured nowhere else.
        is_last = self.trainer.global_step + 1 >= self._total_steps
        if is_last and bool(torch.isfinite(self.vectors).all()):
            self._keep_if_better(self.vectors, max_abs_cosine(self.vectors))

    @override
    def validation_step(self, batch: object, batch_idx: int) -> None:
        self.log("packing_val/max_abs_cosine", self.best_max_abs_cosine, batch_size=1)

    @override
    def test_step(self, batch: object, batch_idx: int) -> None:
        self.log("packing_test/max_abs_cosine", self.best_max_abs_cosine, batch_size=1)

    @override
    def predict_step(self, batch: object, batch_idx: int) -> Tensor:
        return self.forward()

    @override
    def train_dataloader(self) -> "EmptyBatches":
        if self.trainer.max_steps < 0:
            raise ValueError(
                f"trainer.max_steps: expected 0 or more, got {self.trainer.max_steps}; the "
                "schedules need to know the length of the run"
            )
        # Lightning warns of a loader without any batch, which a run of 0 steps needs.
        return EmptyBatches(max(1, self.trainer.max_steps) * self.trainer.accumulate_grad_batches)

    @override
    def val_dataloader(self) -> "EmptyBatches":
        return EmptyBatches(1)

    test_dataloader = val_dataloader
    predict_dataloader = val_dataloader

    def _guarded_penalty(self, exponent: float) -> PenaltyWithMaxResult:
        """The penalty of the vectors, or of the best ones if theirs has exploded."""
        if not bool(torch.isfinite(self.vectors).all()):
            self._go_back(inf)
        result = gram_penalty_with_max(self.vectors, exponent, scale=self.scale)
        # How many times larger the sum of powers is than at the last step. Where it can reach 0,
        # rounding alone multiplies it.
        growth = float((result.penalty.detach().double() / self.scale) ** exponent)
        if self.scale > 0 and growth > _DIVERGED and self.num_vectors > self.dim:
            self._go_back(growth)
            result = gram_penalty_with_max(self.vectors, exponent)
        return result

    @torch.no_grad()
    def _go_back(self, growth: float) -> None:
        """Restart from the best vectors, without moments and with half the learning rate."""
        self.vectors.copy_(self.best_vectors)
        self.scale.zero_()
        self.restarts += 1
        optimizer = self.optimizers(use_pl_optimizer=False)
        optimizer.state.clear()  # type: ignore[union-attr]
        for group in optimizer.param_groups:  # type: ignore[union-attr]
            group["lr"] /= 2
        self.log_at_step({"packing_train/growth_before_restart": growth})
        rank_zero_warn(
            f"step {self.trainer.global_step}: the sum of powers grew {growth:.3g} times; went "
            f"back to the best vectors (max |cos| {float(self.best_max_abs_cosine):.4f}) with half "
            "the learning rate"
        )

    @torch.no_grad()
    def _keep_if_better(self, vectors: Tensor, largest: Tensor | float) -> None:
        if largest < self.best_max_abs_cosine:
            self.best_vectors.copy_(vectors)
            self.best_max_abs_cosine.fill_(float(largest))

    def _exponent_at(self, step: int) -> float:
        first, last = self.exponents
        if first == last:
            return first
        share = step / max(1, self._total_steps - 1)
        # An odd power keeps the sign by itself.
        return max(2.0, 2.0 * round(first * math.pow(last / first, share) / 2))

    @override
    def lr_factor(self, step: int) -> float:
        # Half of it after each restart.
        factor = math.pow(0.5, int(self.restarts))
        return factor if self.constant_lr else factor * super().lr_factor(step)

    @override
    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": [self.vectors]}]

    def _log_step(self, result: PenaltyWithMaxResult) -> None:
        """Log the penalty and the largest |cosine| of the current step."""
        self.log("max|cos|", result.max_abs_cosine, prog_bar=True, logger=False, batch_size=1)
        self.log_at_step(
            {
                "packing_train/penalty": float(result.penalty.detach()),
                "packing_train/max_abs_cosine": float(result.max_abs_cosine),
            }
        )


class EmptyBatches:
    """Batches without content, as many as the run has steps.

    Args:
        length: Number of batches.
    """

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._length))

    def state_dict(self) -> dict[str, int]:
        """Return nothing: all batches are the same, so that a run can be resumed at any."""
        return {}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Ignore the state: all batches are the same."""


def _exponents(given: object, num_vectors: int, dim: int) -> tuple[float, float]:
    """First and last exponent of a run."""
    if isinstance(given, str) and given == "published":
        exponent = float(published_exponent(num_vectors, dim))
        return exponent, exponent
    ends = given if isinstance(given, tuple | list) else (given, given)
    numbers = [as_float(end) for end in ends]
    if len(numbers) != 2 or not 2 <= numbers[0] <= numbers[1] < inf:
        raise ValueError(
            "exponent: expected 'published', a finite number of at least 2 or a rising pair of "
            f"them, got {shown(given)}"
        )
    number_at_least("exponent", numbers[1], 2, most=LARGEST_EXPONENT)
    return numbers[0], numbers[1]


def _learning_rate(given: object, dim: int) -> float:
    if isinstance(given, str) and given == "published":
        return 0.005 if dim <= 1024 else 0.0025
    if not 0 < as_float(given) < inf:
        raise ValueError(
            f"lr: expected 'published' or a positive finite number, got {shown(given)}"
        )
    return as_float(given)
