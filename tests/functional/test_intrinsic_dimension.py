"""TwoNN against scipy's neighbours, known dimensions and invariances."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial import KDTree
from torch import Tensor

from toolkit.functional import TwoNNResult, intrinsic_dimension, two_nn


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rotation(dim: int, seed: int = 1) -> Tensor:
    found: Tensor = torch.linalg.qr(torch.randn(dim, dim, generator=seeded(seed)).double()).Q
    return found


def cube(num: int, dim: int, width: int = 20, *, seed: int = 0) -> Tensor:
    """Uniform points of a cube, turned into a wider space."""
    return torch.rand(num, dim, generator=seeded(seed)).double() @ rotation(width)[:dim]


def ball(num: int, dim: int, width: int = 20) -> Tensor:
    """Gaussian points, turned into a wider space."""
    return torch.randn(num, dim, generator=seeded()).double() @ rotation(width)[:dim]


def oracle(features: Tensor, discarded_share: float = 0.1) -> float:
    """The paper's recipe, step by step."""
    points = np.unique(features.double().numpy(), axis=0)
    distances, _ = KDTree(points).query(points, k=3)
    ratios = np.sort(distances[:, 2] / distances[:, 1])
    num_fitted = len(ratios) - math.ceil(round(discarded_share * len(ratios), 9))
    x = np.log(ratios)[:num_fitted]
    y = -np.log(1 - np.arange(1, num_fitted + 1) / len(ratios))
    return float(np.linalg.lstsq(x[:, None], y, rcond=None)[0][0])


@pytest.mark.parametrize("discarded_share", [0.1, 0.4])
@pytest.mark.parametrize("shape", [(300, 3), (50, 40), (11, 2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_oracle_agrees(
    shape: tuple[int, int], discarded_share: float, dtype: torch.dtype
) -> None:
    features = (torch.randn(*shape, generator=seeded()) + 3).to(dtype)
    found = two_nn(features, discarded_share=discarded_share).dimension
    assert found == pytest.approx(oracle(features, discarded_share), rel=1e-9)


def test_the_oracle_agrees_on_groups_far_apart() -> None:
    """Products of such points lose the digits of the small distances."""
    centers = torch.randn(30, 8, generator=seeded()).double() * 1e6
    features = centers.repeat(10, 1) + torch.randn(300, 8, generator=seeded(1)).double() * 1e-3
    assert two_nn(features).dimension == pytest.approx(oracle(features), rel=1e-9)


def test_points_that_products_cannot_tell_apart_are_compared_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = []
    nearest_of_all = intrinsic_dimension._nearest_of_all

    def counted(points: Tensor, place: int, chunk_size: int) -> Tensor:
        places.append(place)
        return nearest_of_all(points, place, chunk_size)

    monkeypatch.setattr(intrinsic_dimension, "_nearest_of_all", counted)
    noise = torch.randn(40, 6, generator=seeded()).double()
    close = torch.cat([noise * 1e-9 + 1, noise[:5] - 1])
    assert two_nn(close, chunk_size=7).dimension == pytest.approx(oracle(close), rel=1e-9)
    assert len(places) == 40
    places.clear()
    two_nn(noise)
    assert not places


@pytest.mark.parametrize("dim", [1, 2, 4, 8])
@pytest.mark.parametrize("made", [cube, ball], ids=["cube", "Gaussian"])
def test_known_dimensions(made: Any, dim: int) -> None:
    # Borders lower the estimate, the more the higher the dimension.
    low = 0.8 if dim == 8 else 0.9
    assert low * dim < two_nn(made(2000, dim)).dimension < 1.07 * dim


def test_a_curve_in_many_dimensions_has_one() -> None:
    angles = torch.rand(1500, generator=seeded()).double() * 2 * math.pi
    waves = torch.arange(1, 6)[:, None] * angles
    assert two_nn(torch.cat([waves.sin(), waves.cos()]).T).dimension == pytest.approx(1, rel=0.06)


def test_ratios_at_the_quantiles_of_the_law_give_its_dimension() -> None:
    """P(ratio <= mu) = 1 - mu^-d."""
    shares = torch.arange(1, 400).double() / 400
    log_ratios = torch.cat([-torch.log1p(-shares) / 3, torch.tensor([50.0]).double()])
    shuffled = log_ratios[torch.randperm(400, generator=seeded())]
    for num_fitted in (5, 360, 399):
        slope = intrinsic_dimension._slope(shuffled, num_fitted)
        assert slope == pytest.approx(3, rel=1e-12)


def test_what_leaves_all_ratios_leaves_the_dimension() -> None:
    features = cube(300, 3)
    wanted = two_nn(features)
    order = torch.randperm(300, generator=seeded())
    for changed in (
        features @ rotation(20, seed=5),
        features + 7,
        features * 2.0**40,
        features * 1e-150,
        features * 1e200,
        features[order],
        torch.cat([features, torch.zeros(300, 4)], 1),
    ):
        found = two_nn(changed)
        assert found.dimension == pytest.approx(wanted.dimension, rel=1e-9)
        assert found[1:] == wanted[1:]


@pytest.mark.parametrize("chunk_size", [1, 7, 299, 300, 10_000])
def test_the_size_of_a_block_does_not_matter(chunk_size: int) -> None:
    features = cube(300, 3)
    found = two_nn(features, chunk_size=chunk_size)
    assert found.dimension == pytest.approx(two_nn(features).dimension, rel=1e-12)


def test_equal_rows_are_one_point() -> None:
    features = cube(100, 3)
    repeated = torch.cat([features, features[:30], features[:10]])
    assert two_nn(repeated) == two_nn(features)._replace(num_dropped=40)
    assert two_nn(features)[1:] == (100, 90, 0, "")
    signed = torch.tensor([[0.0, 1.0], [-0.0, 1.0]])
    assert two_nn(signed).num_dropped == 1


@pytest.mark.parametrize(
    ("num", "share", "wanted"),
    [(10, 0.1, 9), (10, 0.9, 1), (7, 0.1, 6), (9, 1e-6, 8), (100, 0.43, 57)],
)
def test_the_number_of_fitted_ratios(num: int, share: float, wanted: int) -> None:
    assert two_nn(cube(num, 3), discarded_share=share).num_fitted == wanted


@pytest.mark.parametrize("num", [1, 2, 5])
def test_too_few_distinct_points_have_no_dimension(num: int) -> None:
    found = two_nn(cube(num, 2).repeat(3, 1))
    assert math.isnan(found.dimension)
    fitted = int(num * 0.9)
    assert found[1:] == (
        num,
        fitted,
        2 * num,
        f"{fitted} ratios of {num} distinct points in the fit, 5 are needed",
    )
    assert math.isfinite(two_nn(cube(6, 2)).dimension)


@pytest.mark.parametrize("turned", [torch.eye(12), rotation(12)], ids=["exact", "rounded"])
def test_points_at_one_distance_have_no_dimension(turned: Tensor) -> None:
    found = two_nn(turned)
    assert math.isnan(found.dimension)
    assert found.reason == "the two nearest neighbours of each point are equally far"


def test_distances_whose_squares_vanish_are_distances() -> None:
    """A column of ones keeps the other from being scaled."""
    values = torch.rand(64, 1, generator=seeded()).double()
    for scale in (1e-161, 10**-160.5, 1e-200, 1e-300):
        tiny = torch.cat([torch.ones(64, 1).double(), values * scale], 1)
        assert two_nn(tiny).dimension == pytest.approx(two_nn(values).dimension, rel=1e-9)


def test_the_input_is_not_changed() -> None:
    features = cube(50, 3)
    before = features.clone()
    two_nn(features.requires_grad_())
    assert torch.equal(features, before)


def test_the_result_has_names() -> None:
    found = two_nn(cube(50, 3))
    assert isinstance(found, TwoNNResult)
    assert found._fields == ("dimension", "num_distinct", "num_fitted", "num_dropped", "reason")
    assert isinstance(found.dimension, float)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.ones(3),), "features: expected 2 dimensions"),
        ((torch.ones(0, 3),), "features: expected at least one value"),
        ((torch.tensor([[math.nan, 1.0]]),), "features: expected finite values, got 1 non-finite"),
        ((torch.ones(3, 2), 0.0), "discarded_share: expected a share above 0 and below 1, got 0"),
        ((torch.ones(3, 2), 1.0), "discarded_share: expected a share above 0 and below 1, got 1"),
        ((torch.ones(3, 2), 0.1, 0), "chunk_size: expected an integer of at least 1, got 0"),
    ],
)
def test_bad_input(arguments: tuple[Any, ...], message: str) -> None:
    names = ("features", "discarded_share", "chunk_size")
    with pytest.raises(ValueError, match=f"^{message}"):
        two_nn(**dict(zip(names, arguments, strict=False)))


@pytest.mark.slow
def test_four_thousand_points_of_four_thousand_dimensions() -> None:
    features = ball(4000, 6, width=4096).float()
    assert two_nn(features).dimension == pytest.approx(6, rel=0.1)
