"""The toy model of superposition (arXiv 2505.10465), several widths in one run."""

from collections import defaultdict
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor, nn
from typing_extensions import override

from toolkit.data.active_cells import ActiveCells
from toolkit.functional._checks import (
    different,
    finite,
    flag,
    integer_at_least,
    integers_at_least,
    number_at_least,
    one_of,
    positive,
    require_memory,
)
from toolkit.functional.reconstruction import (
    cell_layout,
    dense_reconstruction_loss,
    reconstruct,
    reconstruction_loss,
)
from toolkit.models.scheduled import ScheduledModule
from toolkit.optim import DecayMode, check_decay


class SuperpositionAutoencoder(ScheduledModule):
    """Autoencoders ``y = relu(W W^T x + b)`` of several widths m, trained on the same batches.

    One run gives one curve L(m). Each width starts from a random stream of its own, fixed by
    torch's random state and m: its start and its training do not depend on the other widths. The
    objective is the squared error averaged over samples and features, as in the published runs;
    the loss is logged as that mean and as the sum over features, which the paper's text uses.

    Args:
        num_features: Number of features n.
        widths: Hidden widths m, each with its own W (n x m) and b.
        lr: Learning rate of every W; see ``width_scaled_lr``.
        bias_lr: Learning rate of every b; by default that of W.
        width_scaled_lr: The large published run's rule: ``lr (8 / m)^0.25`` for W and
            ``bias_lr / m`` for b.
        weight_decay: gamma, decoupled, on W alone; negative favours superposition.
        decay_mode: How W decays, see `toolkit.optim.AdamW`.
        betas: Decay rates of Adam's moments.
        warmup_fraction: Share of the run with linear warm-up; then a cosine follows.
        lr_floor: Where the cosine ends, as a share of the learning rate.
        weight_init_scale: W starts as N(0, 1) times this over sqrt(m).
        bias_init_scale: b starts as N(0, 1) times this.
        loss_scale: Factor on the objective; 100 in the large published run.
        step: ``sparse`` is the fast step; ``dense`` gives the same numbers by the definition.
        optimizer: Replaces AdamW with its lr, betas and decay; the schedule stays.

    Raises:
        ValueError: If a number is out of range.
    """

    def __init__(
        self,
        num_features: int,
        widths: list[int],
        *,
        lr: float = 1e-2,
        bias_lr: float | None = None,
        width_scaled_lr: bool = False,
        weight_decay: float = -1.0,
        decay_mode: DecayMode = "auto",
        betas: tuple[float, float] = (0.9, 0.999),
        warmup_fraction: float = 0.1,
        lr_floor: float = 0.05,
        weight_init_scale: float = 1.0,
        bias_init_scale: float = 1.0,
        loss_scale: float = 1.0,
        step: Literal["sparse", "dense"] = "sparse",
        optimizer: OptimizerCallable | None = None,
    ) -> None:
        super().__init__(
            betas=betas, warmup_fraction=warmup_fraction, lr_floor=lr_floor, optimizer=optimizer
        )
        self.num_features = integer_at_least("num_features", num_features, 1)
        self.widths = different("widths", integers_at_least("widths", widths, 1))
        require_memory("num_features, widths", num_features, sum(self.widths))
        self.lr = positive("lr", lr)
        self.bias_lr = lr if bias_lr is None else positive("bias_lr", bias_lr)
        self.width_scaled_lr = flag("width_scaled_lr", width_scaled_lr)
        self.weight_decay = finite("weight_decay", weight_decay)
        self.decay_mode: DecayMode = check_decay(decay_mode, weight_decay)
        self.loss_scale = positive("loss_scale", loss_scale)
        self.step = one_of("step", step, "sparse", "dense")
        number_at_least("weight_init_scale", weight_init_scale, 0)
        number_at_least("bias_init_scale", bias_init_scale, 0)
        self.save_hyperparameters(ignore=["optimizer"])
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for m, generator in zip(self.widths, _generators(self.widths), strict=True):
            weight = _normal(num_features, m, generator=generator)
            bias = _normal(num_features, generator=generator)
            self.weights.append(nn.Parameter(weight * (weight_init_scale / m**0.5)))
            self.biases.append(nn.Parameter(bias * bias_init_scale))

    def forward(self, inputs: Tensor) -> list[Tensor]:
        """Return the reconstruction of each width.

        Args:
            inputs: x, shape ``(B, n)``.

        Returns:
            One tensor of shape ``(B, n)`` for each width.
        """
        pairs = zip(self.weights, self.biases, strict=True)
        return [reconstruct(weight, bias, inputs) for weight, bias in pairs]

    def losses(self, batch: ActiveCells) -> Tensor:
        """Return each width's loss on the batch, summed over features, shape ``(num_widths,)``.

        Raises:
            ValueError: If the batch has another number of features than the model.
        """
        self._check_features(batch.num_features, "a batch")
        pairs = zip(self.weights, self.biases, strict=True)
        if self.step == "dense":
            inputs = batch.dense()
            return torch.stack([dense_reconstruction_loss(w, b, inputs) for w, b in pairs])
        cells = cell_layout(batch.row, batch.feature, batch.value, batch.num_rows)
        return torch.stack([reconstruction_loss(w, b, cells) for w, b in pairs])

    @override
    def setup(self, stage: str) -> None:
        data = getattr(self.trainer, "datamodule", None)
        given = getattr(data, "num_features", self.num_features)
        self._check_features(given, "data")

    def _check_features(self, number: int, place: str) -> None:
        if number != self.num_features:
            raise ValueError(
                f"num_features: expected {self.num_features} as in the model, got {place} with "
                f"{number}; give data and model the same number"
            )

    @override
    def training_step(self, batch: ActiveCells, batch_idx: int) -> Tensor:
        """Return the objective: the widths' mean losses added, times the scale."""
        losses = self.losses(batch)
        self.on_bar = {"loss": losses[-1].detach()}
        if self.begins_logged_step():
            self._log_losses(losses.detach(), batch.num_rows)
        return losses.sum() * (self.loss_scale / self.num_features)

    @override
    def validation_step(self, batch: ActiveCells, batch_idx: int) -> None:
        self._log_evaluation("val", batch)

    @override
    def test_step(self, batch: ActiveCells, batch_idx: int) -> None:
        self._log_evaluation("test", batch)

    @override
    def predict_step(self, batch: ActiveCells, batch_idx: int) -> list[Tensor]:
        return self.forward(batch.dense())

    @override
    def parameter_groups(self) -> list[dict[str, Any]]:
        # One group for each learning rate and decay: fewer groups make the update cheaper.
        members: dict[tuple[float, float], list[nn.Parameter]] = defaultdict(list)
        for m, weight, bias in zip(self.widths, self.weights, self.biases, strict=True):
            weight_lr = self.lr * (8 / m) ** 0.25 if self.width_scaled_lr else self.lr
            bias_lr = self.bias_lr / m if self.width_scaled_lr else self.bias_lr
            members[weight_lr, self.weight_decay].append(weight)
            members[bias_lr, 0.0].append(bias)
        return [
            {
                "params": parameters,
                "lr": lr,
                "weight_decay": decay,
                "decay_mode": self.decay_mode if decay else "plain",
            }
            for (lr, decay), parameters in members.items()
        ]

    def _log_losses(self, losses: Tensor, batch_size: int) -> None:
        """Log the losses that the weights of the current step have on a fresh batch."""
        values = self._by_width("toy", losses.tolist())
        self.log_dict(values, logger=False, batch_size=batch_size)
        widest = losses[-1]
        self.log("loss", widest, prog_bar=True, logger=False, batch_size=batch_size)
        self.log_at_step(values)

    def _log_evaluation(self, stage: str, batch: ActiveCells) -> None:
        values = self._by_width(f"toy_{stage}", self.losses(batch).tolist())
        self.log_evaluation(values, batch_size=batch.num_rows)

    def _by_width(self, metric: str, losses: list[float]) -> dict[str, float]:
        values = {}
        for m, loss in zip(self.widths, losses, strict=True):
            values[f"{metric}/loss/{width_name(m)}"] = loss
            values[f"{metric}/loss_mean/{width_name(m)}"] = loss / self.num_features
        return values


def _generators(widths: list[int]) -> list[torch.Generator]:
    """Return a generator for each width; torch's own advances by one number in all."""
    run = int(torch.randint(2**63 - 1, (), device="cpu"))
    # A generator uses 32 bits of its seed; the seeds of neighbouring widths must be unrelated.
    seeds = [int(np.random.SeedSequence((run, m)).generate_state(1)[0]) for m in widths]
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    """Standard normal numbers on torch's default device, the same on each."""
    return torch.randn(*shape, generator=generator, device="cpu").to(torch.empty(0).device)


def width_name(m: int) -> str:
    """Return the last part of the tags of width m."""
    return f"m_{m:04d}"
