"""The two closed-form gradients against finite differences in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.autograd.gradcheck import GradcheckError

from tests.functional.test_packing import random_rows
from tests.functional.test_reconstruction import ROUTES, batch, parameters
from toolkit.functional import (
    _gram,
    cell_layout,
    gram_penalty,
    packing,
    reconstruction,
    reconstruction_loss,
)
from toolkit.functional.reconstruction import CellLayoutResult

BATCHES = ["sparse", "skewed", "empty", "full", "one_certain", "one_cell"]


def agrees(function: Callable[..., Tensor], given: tuple[Tensor, ...]) -> bool:
    """Compare with central differences, whose own error allows no smaller tolerances."""
    return gradcheck(function, given, eps=1e-6, atol=1e-7, rtol=1e-6)


def leaves(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.detach().requires_grad_() for tensor in tensors)


def small_cells(kind: str) -> CellLayoutResult:
    inputs = batch(kind, num_rows=12, num_features=9)
    row, feature = inputs.nonzero(as_tuple=True)
    return cell_layout(row, feature, inputs[row, feature], len(inputs))


@pytest.mark.parametrize("exponent", [2, 3, 8, 20, 51, 2.5, 33.3])
@pytest.mark.parametrize(("num", "dim"), [(2, 2), (7, 3), (4, 9), (5, 1)])
def test_gram_penalty(num: int, dim: int, exponent: float, generator: torch.Generator) -> None:
    (rows,) = leaves(random_rows(num, dim, generator))
    assert agrees(lambda vectors: 3 * gram_penalty(vectors, exponent), (rows,))


@pytest.mark.parametrize("scale", [1e-300, 0.3, 1.7, 1e300])
def test_gram_penalty_of_any_scale(scale: float, generator: torch.Generator) -> None:
    (rows,) = leaves(random_rows(6, 3, generator))
    assert agrees(lambda vectors: gram_penalty(vectors, 7, scale=scale), (rows,))


def test_gram_penalty_across_tiles(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkit.functional._gram._CPU_TILE", 3)
    (rows,) = leaves(random_rows(8, 3, generator))
    assert agrees(lambda vectors: gram_penalty(vectors, 6), (rows,))


@pytest.mark.parametrize("gram", ROUTES)
@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("m", [1, 11])
def test_reconstruction_loss(
    gram: bool, kind: str, trained: bool, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconstruction, "_prefers_gram", lambda *_: gram)
    weight, bias = leaves(*parameters(m, trained=trained, num_features=9))
    cells = small_cells(kind)
    assert agrees(lambda w, b: 3 * reconstruction_loss(w, b, cells), (weight, bias))


@pytest.mark.parametrize("wanted", [(True, False), (False, True)], ids=["weight", "bias"])
def test_reconstruction_loss_of_one_leaf(wanted: tuple[bool, bool]) -> None:
    cells = small_cells("skewed")
    pair = parameters(4, trained=False, num_features=9)
    given = tuple(t.requires_grad_(flag) for t, flag in zip(pair, wanted, strict=True))
    assert agrees(lambda w, b: reconstruction_loss(w, b, cells), given)


def test_a_wrong_gradient_of_the_penalty_is_noticed(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = _gram.penalty_and_gradient

    def along_the_vectors_too(
        units: Tensor, exponent: float, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        penalty, largest, gradient = right(units, exponent, scale)
        return penalty, largest, gradient + 1e-4 * units

    monkeypatch.setattr(packing, "penalty_and_gradient", along_the_vectors_too)
    (rows,) = leaves(random_rows(7, 3, generator))
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        agrees(lambda vectors: gram_penalty(vectors, 8), (rows,))


@pytest.mark.parametrize("leaf", [0, 1], ids=["weight", "bias"])
def test_a_wrong_gradient_of_the_loss_is_noticed(
    leaf: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = reconstruction._loss_and_gradients

    def off_by_a_little(
        weight: Tensor, bias: Tensor, cells: CellLayoutResult, *, with_gradients: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        loss, gradients = right(weight, bias, cells, with_gradients=with_gradients)
        if gradients is not None:
            gradients[leaf].mul_(1.0001)
        return loss, gradients

    monkeypatch.setattr(reconstruction, "_loss_and_gradients", off_by_a_little)
    given = leaves(*parameters(4, trained=False, num_features=9))
    cells = small_cells("skewed")
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        agrees(lambda w, b: reconstruction_loss(w, b, cells), given)
