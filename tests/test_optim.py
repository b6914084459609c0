"""Decay of either sign against closed forms, Adam against torch's own, the schedule, resume."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from toolkit.optim import AdamW, Settings, warmup_cosine


def with_gradient(values: Tensor, gradient: Tensor) -> torch.nn.Parameter:
    parameter = torch.nn.Parameter(values.clone())
    parameter.grad = gradient.clone()
    return parameter


@pytest.mark.parametrize("norm", [0.1, 5.0])
@pytest.mark.parametrize("mode", ["auto", "row_norm"])
def test_row_norm_ends_at_one(norm: float, mode: str) -> None:
    rows = torch.nn.functional.normalize(torch.randn(7, 3), dim=1) * norm
    parameter = with_gradient(rows, torch.zeros_like(rows))
    optimizer = AdamW([parameter], lr=0.01, weight_decay=-1.0, decay_mode=mode)  # type: ignore[arg-type]
    for _ in range(1000):
        optimizer.step()
    assert parameter.norm(dim=1).tolist() == pytest.approx([1.0] * 7, abs=1e-3)
    torch.testing.assert_close(
        torch.nn.functional.normalize(parameter.detach(), dim=1), rows / norm
    )


def test_row_norm_takes_exactly_the_published_step() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.5], [0.0, 0.0]], dtype=torch.float64)
    parameter = with_gradient(rows, torch.zeros_like(rows))
    AdamW([parameter], lr=0.1, weight_decay=-2.0).step()
    # w + lr gamma w (1 - 1 / |w|): norms 5 -> 5 - 0.2 * 4, 0.5 -> 0.5 + 0.2 * 0.5, 0 stays.
    assert parameter.norm(dim=1).tolist() == pytest.approx([4.2, 0.6, 0.0], rel=1e-14)


@pytest.mark.parametrize(("gamma", "mode"), [(0.5, "auto"), (0.5, "plain"), (-0.5, "plain")])
def test_plain_multiplies_exactly(gamma: float, mode: str) -> None:
    values = torch.randn(4, 3)
    parameter = with_gradient(values, torch.zeros_like(values))
    AdamW([parameter], lr=0.1, weight_decay=gamma, decay_mode=mode).step()  # type: ignore[arg-type]
    assert torch.equal(parameter.detach(), values * (1 - 0.1 * gamma))


@pytest.mark.parametrize("gamma", [0.0, 0.3])
def test_equals_torchs_adamw_for_positive_decay(gamma: float) -> None:
    torch.manual_seed(0)
    start = torch.randn(5, 4)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    options = {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": gamma}
    optimizers = (
        AdamW([ours], **options),  # type: ignore[arg-type]
        torch.optim.AdamW([theirs], **options),  # type: ignore[arg-type]
    )
    for _ in range(20):
        gradient = torch.randn(5, 4)
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_only_chosen_groups_decay() -> None:
    weight = with_gradient(torch.full((2, 2), 3.0), torch.zeros(2, 2))
    bias = with_gradient(torch.full((2,), 3.0), torch.zeros(2))
    groups: list[dict[str, Any]] = [{"params": [weight], "weight_decay": -1.0}, {"params": [bias]}]
    AdamW(groups, lr=0.1).step()
    assert torch.equal(bias.detach(), torch.full((2,), 3.0))
    assert (weight < 3).all()


def test_parameters_without_gradient_stay() -> None:
    parameter = torch.nn.Parameter(torch.ones(2, 2))
    AdamW([parameter], lr=0.1, weight_decay=0.5).step()
    assert torch.equal(parameter.detach(), torch.ones(2, 2))


def test_closure_is_evaluated_with_gradients() -> None:
    parameter = torch.nn.Parameter(torch.tensor([[2.0]]))

    def closure() -> float:
        loss = parameter.square().sum()
        torch.autograd.backward(loss)
        return loss.item()

    assert AdamW([parameter], lr=0.1).step(closure) == 4.0
    assert parameter.item() == pytest.approx(1.9, abs=1e-6)


def test_state_round_trips_through_weights_only(tmp_path: Path) -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(3, 2), torch.randn(6, 3, 2)

    def advance(parameter: torch.nn.Parameter, optimizer: AdamW, steps: range) -> None:
        for step in steps:
            parameter.grad = gradients[step].clone()
            optimizer.step()

    whole = torch.nn.Parameter(start.clone())
    advance(whole, AdamW([whole], lr=0.1, weight_decay=-1.0), range(6))

    half = torch.nn.Parameter(start.clone())
    optimizer = AdamW([half], lr=0.1, weight_decay=-1.0)
    advance(half, optimizer, range(3))
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    resumed = torch.nn.Parameter(half.detach().clone())
    optimizer = AdamW([resumed], lr=0.5)
    optimizer.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    advance(resumed, optimizer, range(3, 6))
    assert torch.equal(resumed, whole)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"lr": -0.1}, "lr: expected a finite number of at least 0, got -0.1"),
        ({"eps": 0.0}, "eps: expected a positive finite number"),
        ({"betas": (0.9, 1.0)}, r"betas: expected two numbers in \[0, 1\)"),
        ({"weight_decay": math.inf}, "weight_decay: expected a finite number"),
        ({"decay_mode": "rows"}, "decay_mode: expected 'auto', 'row_norm' or 'plain', got 'rows'"),
        ({"decay_mode": "row_norm", "weight_decay": 1.0}, "weight_decay: expected at most 0"),
    ],
)
def test_bad_options(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        AdamW([torch.nn.Parameter(torch.ones(2, 2))], **options)


def test_vectors_cannot_have_their_rows_restored() -> None:
    with pytest.raises(ValueError, match="params: expected matrices"):
        AdamW([torch.nn.Parameter(torch.ones(2))], weight_decay=-1.0)


def test_schedule() -> None:
    factors = [warmup_cosine(i, warmup_steps=4, total_steps=13, floor=0.05) for i in range(13)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[4] == 1.0
    assert factors[8] == pytest.approx(0.525)
    assert factors[12] == pytest.approx(0.05)
    assert warmup_cosine(99, warmup_steps=4, total_steps=13, floor=0.05) == pytest.approx(0.05)


def test_settings_override_what_a_checkpoint_brings_back() -> None:
    def build(lr: float, gamma: float) -> tuple[AdamW, torch.optim.lr_scheduler.LambdaLR]:
        optimizer = AdamW([torch.nn.Parameter(torch.ones(2, 2))], lr=lr, weight_decay=gamma)
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))

    optimizer, scheduler = build(0.1, 0.5)
    for _ in range(3):
        optimizer.step()
        scheduler.step()
    saved = optimizer.state_dict(), scheduler.state_dict()
    optimizer, scheduler = build(0.4, 0.7)
    settings = Settings(optimizer, scheduler)
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    assert optimizer.param_groups[0]["weight_decay"] == 0.5
    settings.restore()
    assert optimizer.param_groups[0]["lr"] == 0.4 / 4
    assert optimizer.param_groups[0]["weight_decay"] == 0.7
    assert scheduler.get_last_lr() == [0.4 / 4]
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.4 / 5, rel=1e-15)
