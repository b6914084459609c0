"""AdamW with signed decoupled decay, the warm-up schedule, and settings that survive a resume."""

from collections.abc import Callable, Iterable
from math import cos, pi
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adam import adam
from torch.optim.lr_scheduler import LambdaLR

from toolkit.functional._checks import finite, moment_decays, number_at_least, one_of, positive

DecayMode = Literal["auto", "row_norm", "plain"]


class AdamW(Optimizer):
    """Adam with decoupled weight decay of either sign (arXiv 2505.10465 and its public code).

    The decay comes before the Adam step, with that step's learning rate. Every option below can
    be set per parameter group, so that a group with ``weight_decay=0`` never decays.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate.
        betas: Decay rates of the two moments.
        eps: Added to the root of the second moment.
        weight_decay: gamma.
        decay_mode: ``plain`` multiplies by ``1 - lr gamma``. ``row_norm`` pulls each row w to unit
            norm, ``w + lr gamma w (1 - 1 / |w|)``, for gamma <= 0; a row of norm 0 is not changed.
            ``auto`` is ``row_norm`` for gamma < 0 and ``plain`` otherwise.

    Raises:
        ValueError: If a number is out of range, or ``row_norm`` meets gamma > 0 or a parameter
            that is no matrix.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decay_mode: DecayMode = "auto",
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": moment_decays("betas", betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "decay_mode": decay_mode,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters after checking its settings."""
        super().add_param_group(param_group)
        _check_group(self.param_groups[-1])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # noqa: ANN401
        """Decay, then take one Adam step.

        Args:
            closure: Evaluates the model again and returns the loss.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                _decay(parameters, group)
                self._adam(parameters, group)
        return loss

    def _adam(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        adam(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=parameters[0].device.type in {"cpu", "cuda"},
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=0.0,
            eps=group["eps"],
            maximize=False,
        )


def _check_group(group: dict[str, Any]) -> None:
    number_at_least("lr", group["lr"], 0)
    positive("eps", group["eps"])
    moment_decays("betas", group["betas"])
    check_decay(group["decay_mode"], finite("weight_decay", group["weight_decay"]))
    if _restores_norms(group) and any(parameter.ndim != 2 for parameter in group["params"]):
        raise ValueError(
            "params: expected matrices in a group that decays by row_norm; put vectors into a "
            "group with weight_decay 0"
        )


def check_decay(decay_mode: DecayMode, weight_decay: float) -> DecayMode:
    """Return the mode of decay, or raise a ValueError if it does not allow this strength."""
    one_of("decay_mode", decay_mode, "auto", "row_norm", "plain")
    if decay_mode == "row_norm" and weight_decay > 0:
        raise ValueError(
            "weight_decay: expected at most 0 with decay_mode row_norm, which would otherwise push "
            f"rows away from unit norm, got {weight_decay}; use decay_mode plain"
        )
    return decay_mode


def _restores_norms(group: dict[str, Any]) -> bool:
    mode: DecayMode = group["decay_mode"]
    gamma: float = group["weight_decay"]
    return mode == "row_norm" or (mode == "auto" and gamma < 0)


def _decay(parameters: list[Tensor], group: dict[str, Any]) -> None:
    strength = group["lr"] * group["weight_decay"]
    if strength == 0:
        return
    for parameter in parameters:
        if _restores_norms(group):
            norms = torch.linalg.vector_norm(parameter, dim=1, keepdim=True)
            factors = 1 + strength * (1 - 1 / norms)
            parameter.mul_(torch.where(norms > 0, factors, 1.0))
        else:
            parameter.mul_(1 - strength)


def warmup_cosine(step: int, *, warmup_steps: int, total_steps: int, floor: float) -> float:
    """Return the factor on the learning rate of update ``step`` (counted from 0).

    Linear warm-up over ``warmup_steps`` updates, then a cosine from 1 down to ``floor`` at the
    last update; the schedule of the runs in arXiv 2505.10465.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = (step - warmup_steps) / max(1, total_steps - 1 - warmup_steps)
    return floor + (1 - floor) * (1 + cos(pi * min(1.0, progress))) / 2


class Settings:
    """The settings of a new optimiser, to be restored after a checkpoint is loaded.

    Loading a checkpoint also loads its learning rate, decay and betas. The settings of the present
    command replace them, and the schedule continues from the saved step.

    Args:
        optimizer: A freshly built optimiser.
        scheduler: Its schedule.
    """

    def __init__(self, optimizer: Optimizer, scheduler: LambdaLR) -> None:
        self._optimizer, self._scheduler = optimizer, scheduler
        self._groups = [
            {name: value for name, value in group.items() if name not in {"params", "lr"}}
            for group in optimizer.param_groups
        ]

    def restore(self) -> None:
        """Replace the settings that a checkpoint has loaded."""
        scheduler = self._scheduler
        scheduler.base_lrs = [group["initial_lr"] for group in self._groups]
        for group, settings, factor in zip(
            self._optimizer.param_groups, self._groups, scheduler.lr_lambdas, strict=True
        ):
            group.update(settings)
            group["lr"] = settings["initial_lr"] * factor(scheduler.last_epoch)
        scheduler._last_lr = [group["lr"] for group in self._optimizer.param_groups]  # noqa: SLF001
