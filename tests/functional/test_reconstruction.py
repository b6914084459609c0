"""The fast step against float64 autograd of the definition, on every route and odd batch."""

import pytest
import torch
from torch import Tensor

from toolkit.functional import (
    cell_layout,
    dense_reconstruction_loss,
    reconstruct,
    reconstruction,
    reconstruction_loss,
)

BATCHES = ["sparse", "skewed", "empty", "full", "one_certain", "one_cell"]
ROUTES = [pytest.param(True, id="gram"), pytest.param(False, id="direct")]


def batch(kind: str, num_rows: int = 40, num_features: int = 23) -> Tensor:
    """A batch x of the named kind, shape (num_rows, num_features), float64."""
    generator = torch.Generator().manual_seed(1)
    chance = torch.full((num_features,), 0.05)
    if kind == "skewed":
        chance = torch.arange(1, num_features + 1) ** -2.0
    elif kind == "full":
        chance = torch.ones(num_features)
    elif kind == "one_certain":
        chance[3] = 1.0
    elif kind in {"empty", "one_cell"}:
        chance = torch.zeros(num_features)
    active = torch.rand(num_rows, num_features, generator=generator) < chance
    if kind == "one_cell":
        active[5, 7] = True
    values = 2 * torch.rand(num_rows, num_features, generator=generator, dtype=torch.float64)
    return active * values


def parameters(m: int, *, trained: bool, num_features: int = 23) -> tuple[Tensor, Tensor]:
    """W and b as at the start of a run, or with unit rows and negative biases as at its end."""
    generator = torch.Generator().manual_seed(m)
    weight = torch.randn(num_features, m, generator=generator, dtype=torch.float64) / m**0.5
    bias = torch.randn(num_features, generator=generator, dtype=torch.float64)
    if trained:
        weight = weight / weight.norm(dim=1, keepdim=True)
        bias = -0.3 * bias.abs()
    return weight, bias


def gradients(loss: Tensor, *leaves: Tensor) -> list[Tensor]:
    return [gradient.double() for gradient in torch.autograd.grad(loss, leaves)]


@pytest.mark.parametrize("gram", ROUTES)
@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("m", [1, 2, 7, 23, 30])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_equals_float64_autograd(
    gram: bool,
    kind: str,
    trained: bool,
    m: int,
    dtype: torch.dtype,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconstruction, "_prefers_gram", lambda *_: gram)
    inputs = batch(kind)
    weight, bias = (p.to(dtype).requires_grad_() for p in parameters(m, trained=trained))
    exact_weight, exact_bias = (p.detach().double().requires_grad_() for p in (weight, bias))
    row, feature = inputs.nonzero(as_tuple=True)
    value = inputs[row, feature].to(dtype)
    exact_inputs = torch.zeros_like(inputs)
    exact_inputs[row, feature] = value.double()

    loss = reconstruction_loss(weight, bias, cell_layout(row, feature, value, len(inputs)))
    exact = dense_reconstruction_loss(exact_weight, exact_bias, exact_inputs)

    assert loss.dtype == dtype
    assert loss.item() == pytest.approx(exact.item(), rel=tolerance)
    for ours, theirs in zip(
        gradients(loss, weight, bias), gradients(exact, exact_weight, exact_bias), strict=True
    ):
        assert (ours - theirs).norm() <= tolerance * theirs.norm() + 1e-30


def test_definition_on_a_case_worked_by_hand() -> None:
    # h = 2, W h + b = (2 - 0.5, 2 * 2 - 0.5), so y - x = (1.5 - 2, 3.5 - 0).
    weight, bias = torch.tensor([[1.0], [2.0]]), torch.tensor([-0.5, -0.5])
    inputs = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    assert reconstruct(weight, bias, inputs).tolist() == [[1.5, 3.5], [0.0, 0.0]]
    assert dense_reconstruction_loss(weight, bias, inputs).item() == (0.25 + 12.25) / 2


def test_the_gradient_scales_with_what_comes_from_above() -> None:
    inputs = batch("sparse")
    row, feature = inputs.nonzero(as_tuple=True)
    cells = cell_layout(row, feature, inputs[row, feature], len(inputs))
    weight, bias = (p.requires_grad_() for p in parameters(5, trained=False))
    once = gradients(reconstruction_loss(weight, bias, cells), weight, bias)
    thrice = gradients(3 * reconstruction_loss(weight, bias, cells), weight, bias)
    torch.testing.assert_close(thrice, [3 * gradient for gradient in once])


@pytest.mark.parametrize("gram", ROUTES)
@pytest.mark.parametrize("m", [2, 7, 30])
def test_the_order_inside_a_sample_changes_nothing(
    gram: bool, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconstruction, "_prefers_gram", lambda *_: gram)
    inputs = batch("dense")
    row, feature = inputs.nonzero(as_tuple=True)
    mixed = torch.randperm(len(row), generator=torch.Generator().manual_seed(1))
    order = mixed[torch.sort(row[mixed], stable=True).indices]
    row, feature = row[order], feature[order]
    assert bool(((row.diff() == 0) & (feature.diff() < 0)).any())
    weight, bias = (p.requires_grad_() for p in parameters(m, trained=False))
    cells = cell_layout(row, feature, inputs[row, feature], len(inputs))
    loss = reconstruction_loss(weight, bias, cells)
    exact = dense_reconstruction_loss(weight, bias, inputs)
    assert loss.item() == pytest.approx(exact.item(), rel=1e-12)
    for ours, theirs in zip(
        gradients(loss, weight, bias), gradients(exact, weight, bias), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


def test_inputs_are_left_alone() -> None:
    inputs = batch("sparse")
    row, feature = inputs.nonzero(as_tuple=True)
    value = inputs[row, feature]
    weight, bias = parameters(5, trained=False)
    before = [t.clone() for t in (weight, bias, row, feature, value)]
    cells = cell_layout(row, feature, value, len(inputs))
    gradients(
        reconstruction_loss(weight.requires_grad_(), bias.requires_grad_(), cells), weight, bias
    )
    for ours, copy in zip((weight, bias, row, feature, value), before, strict=True):
        assert torch.equal(ours, copy)


def test_autocast_changes_nothing() -> None:
    inputs = batch("sparse").float()
    row, feature = inputs.nonzero(as_tuple=True)
    cells = cell_layout(row, feature, inputs[row, feature], len(inputs))
    weight, bias = (p.float() for p in parameters(5, trained=False))
    plain = reconstruction_loss(weight, bias, cells)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(reconstruction_loss(weight, bias, cells), plain)


def test_the_route_follows_the_cost() -> None:
    # 40 samples that all hold the same feature: one distinct row of W W^T instead of 40 samples.
    row, feature, value = torch.arange(40), torch.zeros(40, dtype=torch.long), torch.ones(40)
    cells = cell_layout(row, feature, value, 40)
    assert reconstruction._prefers_gram(torch.zeros(50, 20), cells)
    distinct = cell_layout(row, row, value, 40)
    assert not reconstruction._prefers_gram(torch.zeros(50, 20), distinct)


@pytest.mark.parametrize(
    ("weight", "bias", "match"),
    [
        (torch.zeros(3), torch.zeros(3), r"weight, bias: expected shapes \(n, m\)"),
        (torch.zeros(3, 2), torch.zeros(4), r"weight, bias: expected shapes \(n, m\)"),
        (torch.zeros(3, 2).half(), torch.zeros(3).half(), "both float32 or both float64"),
        (torch.zeros(3, 2).double(), torch.zeros(3), "both float32 or both float64"),
        (torch.zeros(3, 2).double(), torch.zeros(3).double(), "cells: expected values of"),
    ],
)
def test_bad_parameters(weight: Tensor, bias: Tensor, match: str) -> None:
    cells = cell_layout(torch.tensor([0]), torch.tensor([1]), torch.ones(1), 2)
    with pytest.raises(ValueError, match=match):
        reconstruction_loss(weight, bias, cells)


def test_bad_cells() -> None:
    one, value = torch.tensor([0]), torch.ones(1)
    with pytest.raises(ValueError, match="row, feature, value: expected equal"):
        cell_layout(torch.tensor([0, 1]), one, value, 2)
    with pytest.raises(ValueError, match="num_rows: expected an integer of at least 1, got 0"):
        cell_layout(one, one, value, 0)
    with pytest.raises(ValueError, match="num_rows: expected an integer from 1 to 9,007,199,254,7"):
        cell_layout(one, one, value, 10**29)
    with pytest.raises(ValueError, match="row: expected samples from 0 to 1, got 0 to 2"):
        cell_layout(torch.tensor([0, 2]), torch.tensor([0, 0]), torch.ones(2), 2)
    with pytest.raises(ValueError, match="row: expected samples from 0 to 1, got -1 to -1"):
        cell_layout(-1 - one, one, value, 2)
    order = "row: expected non-decreasing samples, got 1 before 0; sort the cells by row"
    with pytest.raises(ValueError, match=order):
        cell_layout(torch.tensor([0, 1, 0]), torch.tensor([0, 1, 1]), torch.ones(3), 2)


def test_bad_inputs_of_the_dense_loss() -> None:
    with pytest.raises(ValueError, match=r"inputs: expected shape \(B, 3\), got \(2, 4\)"):
        dense_reconstruction_loss(torch.zeros(3, 2), torch.zeros(3), torch.zeros(2, 4))
