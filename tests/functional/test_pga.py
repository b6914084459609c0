"""Subspace PGA against a float64 oracle, its invariances, its null law and its refusals."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from scipy.stats import kstest, spearmanr
from torch import Tensor

from toolkit.functional import SubspacePGAResult, haar_bases, readout_basis, subspace_pga
from toolkit.functional.subspace import gaussian_frame

SINGLE_FIELDS = set(SubspacePGAResult._fields) - {"reason"}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=generator(seed))


def basis_of(dim: int, k: int, seed: int = 1) -> Tensor:
    return haar_bases(dim, k, 1, generator=generator(seed))[0]


def ccr(hidden: Tensor, remove: int) -> np.ndarray:
    """Mean-centred points without their first principal components, in float64."""
    points = hidden.double().numpy()
    points = points - points.mean(0)
    left, values, right = np.linalg.svd(points, full_matrices=False)
    residual: np.ndarray = (left[:, remove:] * values[remove:]) @ right[remove:]
    return residual


def oracle_rho(residual: np.ndarray, basis: Tensor) -> float:
    columns = basis.double().numpy()
    return float(
        spearmanr(pdist(residual, "cosine"), pdist(residual @ columns, "cosine")).statistic
    )


def shaped(kind: str, num: int, dim: int) -> Tensor:
    """Hidden states of several kinds."""
    hidden = gaussian(num, dim)
    if kind == "decaying":
        return hidden * torch.arange(1, dim + 1) ** -1.0
    if kind == "one outlier direction":
        return hidden + 300 * gaussian(num, 1, seed=2) * gaussian(1, dim, seed=3) + 1000
    if kind == "clusters":
        return gaussian(5, dim, seed=2)[torch.arange(num) % 5] + 0.1 * hidden
    if kind == "row lengths":
        return hidden * (2 * gaussian(num, 1, seed=2)).exp()
    return hidden


KINDS = ("gaussian", "decaying", "one outlier direction", "clusters", "row lengths")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dim", "k"), [(16, 5), (90, 8)], ids=["d < N", "d > N"])
@pytest.mark.parametrize("remove", [0, 1, 3])
def test_rho_matches_scipy(kind: str, dim: int, k: int, remove: int) -> None:
    hidden, basis = shaped(kind, 60, dim), basis_of(dim, k)
    result = subspace_pga(hidden, basis, num_null=2, remove=remove)
    expected = oracle_rho(ccr(hidden, remove), basis)
    assert float(result.rho) == pytest.approx(expected, abs=2e-5)
    assert result.num_points == result.num_distinct == 60
    assert result.num_dropped == 0


@pytest.mark.parametrize("kind", ["gaussian", "decaying", "row lengths"])
@pytest.mark.parametrize(("dim", "k"), [(100, 20), (600, 50)], ids=["d < N", "d > N"])
def test_rho_of_many_points_is_as_exact_as_promised(kind: str, dim: int, k: int) -> None:
    hidden, basis = shaped(kind, 400, dim), basis_of(dim, k)
    result = subspace_pga(hidden, basis, num_null=2)
    expected = oracle_rho(ccr(hidden, 1), basis)
    assert float(result.rho) == pytest.approx(expected, abs=5e-8)
    bucketed = subspace_pga(hidden, basis, num_null=2, exact=False)
    assert float(bucketed.rho) == pytest.approx(expected, abs=2e-7)
    torch.testing.assert_close(bucketed.null, result.null, rtol=0, atol=2e-7)


def null_bases(residual: np.ndarray, k: int, num: int, seed: int) -> list[Tensor]:
    """The null subspaces in the coordinates of ``residual``, from the documented draws."""
    num_points, dim = residual.shape
    bases, draws = torch.zeros(num, dim, k, dtype=torch.float64), generator(seed)
    for basis in bases:
        gaussian, whitening = gaussian_frame(dim, k, draws, rows=min(num_points, dim))
        basis[: len(gaussian)] = gaussian @ whitening
    if num_points > dim:
        return list(bases)
    # There the draws are coordinates in any orthonormal basis that the Gram-Schmidt vectors of
    # the rows begin; dependent rows have none.
    frame = torch.linalg.qr(torch.from_numpy(residual).T, mode="complete")
    signs = torch.where(frame.R.diagonal() < 0, -1.0, 1.0).double()
    frame.Q[:, :num_points] *= signs
    return list(frame.Q @ bases)


@pytest.mark.parametrize(("dim", "k"), [(16, 5), (70, 6)], ids=["d < N", "d > N"])
def test_each_null_value_is_the_rho_of_a_haar_basis(dim: int, k: int) -> None:
    hidden = gaussian(30, dim)
    result = subspace_pga(hidden, basis_of(dim, k), num_null=6, generator=generator(7))
    residual = ccr(hidden, 1)
    expected = [oracle_rho(residual, basis) for basis in null_bases(residual, k, 6, 7)]
    # One swap of neighbours among 435 pairs moves rho by up to 6e-5.
    np.testing.assert_allclose(result.null.numpy(), expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("strength", [1e3, 1e4, 1e5, 1e6])
@pytest.mark.parametrize(("dim", "k"), [(16, 5), (90, 8)], ids=["d < N", "d > N"])
def test_similarities_that_float32_cannot_tell_apart(
    dim: int, k: int, strength: float, inside: bool, exact: bool
) -> None:
    """One direction left in makes all of them 1 or -1; rho was off by .001 to .1."""
    basis = basis_of(dim, k)
    direction = basis[:, 0] if inside else torch.eye(dim)[2]
    hidden = gaussian(60, dim).double() + strength * gaussian(60, 1, seed=4) * direction
    result = subspace_pga(hidden, basis, num_null=3, remove=0, generator=generator(7), exact=exact)
    residual = ccr(hidden, 0)
    assert float(result.rho) == pytest.approx(oracle_rho(residual, basis), abs=2e-6)
    expected = [oracle_rho(residual, basis) for basis in null_bases(residual, k, 3, 7)]
    np.testing.assert_allclose(result.null.numpy(), expected, rtol=0, atol=2e-6)


def test_one_direction_inside_alone_has_no_rho() -> None:
    """The subspace sees a line, up to what float32 makes of it."""
    hidden = torch.cat([gaussian(40, 1), torch.zeros(40, 2), gaussian(40, 5, seed=2)], 1)
    turn = torch.linalg.qr(gaussian(3, 3, seed=3).double()).Q
    basis = torch.eye(8, dtype=torch.float64)[:, :3] @ turn
    result = subspace_pga(hidden, basis, num_null=3, remove=0)
    assert math.isnan(result.rho)
    assert result.reason == "all pairs are equally far apart, or on one line"


@pytest.mark.parametrize(("dim", "k"), [(12, 3), (50, 3)], ids=["d < N", "d > N"])
def test_null_values_follow_the_law_of_plain_qr_draws(dim: int, k: int) -> None:
    hidden = gaussian(25, dim) * torch.arange(1, dim + 1) ** -0.5
    null = subspace_pga(hidden, basis_of(dim, k), num_null=300, generator=generator(3)).null
    residual, rng = ccr(hidden, 1), np.random.default_rng(5)
    drawn = np.linalg.qr(rng.standard_normal((300, dim, k)))[0]
    expected = [oracle_rho(residual, torch.from_numpy(basis)) for basis in drawn]
    assert kstest(null.numpy(), expected).pvalue > 0.01


def test_summary_of_the_null() -> None:
    result = subspace_pga(gaussian(40, 12), basis_of(12, 4), num_null=50)
    null = result.null
    assert null.shape == (50,)
    assert float(result.null_mean) == pytest.approx(float(null.mean()))
    assert float(result.null_std) == pytest.approx(float(null.std()))
    assert float(result.z) == pytest.approx(float((result.rho - null.mean()) / null.std()))
    assert float(result.p_value) == (1 + int((null >= result.rho).sum())) / 51
    assert result.reason == ""


def test_shares_match_their_definitions() -> None:
    hidden, basis = gaussian(40, 12) * torch.arange(1, 13), basis_of(12, 4)
    result = subspace_pga(hidden, basis, num_null=2, remove=2)
    residual, columns = ccr(hidden, 2), basis.double().numpy()
    share = np.square(residual @ columns).sum() / np.square(residual).sum()
    assert float(result.variance_share) == pytest.approx(share, abs=1e-6)
    first = np.linalg.svd(ccr(hidden, 0))[2][0]
    assert float(result.pc1_alignment) == pytest.approx(
        float(np.square(first @ columns).sum()), abs=1e-6
    )


@pytest.mark.parametrize("dim", [10, 60], ids=["d < N", "d > N"])
def test_invariances(dim: int) -> None:
    hidden, unembedding = gaussian(30, dim), gaussian(500, dim, seed=5)
    rotation = torch.linalg.qr(gaussian(dim, dim, seed=6).double()).Q
    permutation = torch.randperm(30, generator=generator(8))

    def rho(states: Tensor, matrix: Tensor) -> float:
        basis = readout_basis(matrix, 4)
        return float(subspace_pga(states, basis, num_null=2).rho)

    expected = rho(hidden, unembedding)
    rotated = rho(hidden.double() @ rotation, unembedding.double() @ rotation)
    assert rotated == pytest.approx(expected, abs=2e-4)
    assert rho(hidden[permutation], unembedding) == pytest.approx(expected, abs=2e-4)
    assert rho(1000 * hidden + 5, 0.01 * unembedding) == pytest.approx(expected, abs=2e-4)


def test_null_law_is_unmoved_by_a_rotation() -> None:
    hidden, basis = gaussian(30, 10), basis_of(10, 3)
    rotation = torch.linalg.qr(gaussian(10, 10, seed=6)).Q
    straight = subspace_pga(hidden, basis, num_null=300, generator=generator(1))
    rotated = subspace_pga(
        hidden @ rotation, rotation.T @ basis, num_null=300, generator=generator(2)
    )
    assert float(rotated.rho) == pytest.approx(float(straight.rho), abs=2e-4)
    assert kstest(straight.null.numpy(), rotated.null.numpy()).pvalue > 0.01


@pytest.mark.slow
def test_z_of_independent_isotropic_readouts_is_standard() -> None:
    scores = []
    for seed in range(200):
        hidden = gaussian(24, 12, seed=2 * seed) * torch.arange(1, 13) ** -0.5
        basis = readout_basis(gaussian(50, 12, seed=2 * seed + 1), 3)
        null = generator(10_000 + seed)
        scores.append(subspace_pga(hidden, basis, num_null=30, generator=null).z)
    z = torch.stack(scores)
    assert abs(float(z.mean())) < 0.3
    assert abs(float(z.std()) - 1) < 0.2


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "bucketed"])
def test_z_tells_inside_from_outside(exact: bool) -> None:
    frame = basis_of(48, 48)
    basis, complement = frame[:, :12], frame[:, 12:]
    inside = gaussian(60, 12) @ basis.T + 0.1 * gaussian(60, 48, seed=2)
    outside = gaussian(60, 36) @ complement.T + 0.1 * gaussian(60, 48, seed=2)
    high = subspace_pga(inside, basis, num_null=40, exact=exact)
    low = subspace_pga(outside, basis, num_null=40, exact=exact)
    assert float(high.z) > 5
    assert float(high.variance_share) > 0.9
    assert float(high.p_value) == 1 / 41
    assert float(low.z) < -5
    assert float(low.variance_share) < 0.1
    assert float(low.p_value) == 1


@pytest.mark.parametrize("dim", [10, 60], ids=["d < N", "d > N"])
def test_buckets_move_rho_and_null_little(dim: int) -> None:
    hidden, basis = gaussian(50, dim), basis_of(dim, 4)
    hidden[10:20] = hidden[0]
    exact = subspace_pga(hidden, basis, num_null=5)
    bucketed = subspace_pga(hidden, basis, num_null=5, exact=False)
    assert float(bucketed.rho) == pytest.approx(float(exact.rho), abs=2e-4)
    torch.testing.assert_close(bucketed.null, exact.null, rtol=0, atol=2e-4)


@pytest.mark.parametrize("dim", [10, 60], ids=["d < N", "d > N"])
def test_equal_rows_tie_exactly(dim: int) -> None:
    distinct, basis = gaussian(6, dim), basis_of(dim, 3)
    distinct[:, 0] = 0
    hidden = distinct[torch.arange(30) % 6]
    hidden[:10, 0] = -0.0
    result = subspace_pga(hidden, basis, num_null=5)
    assert result.num_points == 30
    assert result.num_distinct == 6
    # The oracle on the distinct points, expanded afterwards, ties exactly too.
    residual = ccr(hidden, 1)
    units = residual[:6] / np.linalg.norm(residual[:6], axis=1, keepdims=True)
    inside = residual[:6] @ basis.double().numpy()
    inside /= np.linalg.norm(inside, axis=1, keepdims=True)
    rows, columns = np.triu_indices(30, 1)
    rows, columns = np.minimum(rows % 6, columns % 6), np.maximum(rows % 6, columns % 6)
    pairs = [np.where(rows == columns, 1, (u @ u.T)[rows, columns]) for u in (units, inside)]
    assert float(result.rho) == pytest.approx(spearmanr(*pairs).statistic, abs=1e-12)


def test_a_one_dimensional_subspace_knows_two_similarities() -> None:
    hidden, basis = gaussian(40, 12), basis_of(12, 1)
    residual = ccr(hidden, 1)
    units = residual / np.linalg.norm(residual, axis=1, keepdims=True)
    side = np.sign(residual @ basis.double().numpy())
    upper = np.triu_indices(40, 1)
    expected = spearmanr((units @ units.T)[upper], (side @ side.T)[upper]).statistic
    assert float(subspace_pga(hidden, basis, num_null=2).rho) == pytest.approx(expected, abs=1e-12)


def test_points_that_the_removal_erases_are_dropped() -> None:
    hidden = torch.zeros(8, 5)
    hidden[:6, :3] = gaussian(6, 3)
    hidden[:6] -= hidden[:6].mean(0)
    hidden[:, 3] = torch.tensor([0.0, 0, 0, 0, 0, 0, 9, -9])
    result = subspace_pga(hidden, torch.eye(5)[:, :2], num_null=5)
    assert result.num_points == 6
    assert result.num_dropped == 2
    expected = oracle_rho(hidden[:6].double().numpy(), torch.eye(5)[:, :2])
    assert float(result.rho) == pytest.approx(expected, abs=1e-6)


SIMPLEX = torch.eye(6) - 1 / 6
DEGENERATE = {
    "constant": (torch.ones(6, 4), 1, "0 points have a direction left"),
    "k = d": (gaussian(20, 4), 4, "the whole space"),
    "equally far apart": (SIMPLEX, 2, "equally far apart"),
    "on one line": (torch.arange(6.0)[:, None] * torch.ones(1, 4), 2, "on one line"),
    "two distinct points": (gaussian(2, 4)[[0, 1, 0, 1, 0]], 2, "on one line"),
    "outside the subspace": (
        torch.cat([torch.zeros(9, 2), gaussian(9, 3)], 1),
        2,
        "no variance inside the subspace",
    ),
    "no spread": (gaussian(3, 40), 39, "the null has no spread"),
}


@pytest.mark.parametrize(("hidden", "k", "reason"), DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_input_has_no_z_but_a_reason(hidden: Tensor, k: int, reason: str) -> None:
    result = subspace_pga(hidden, torch.eye(hidden.shape[1])[:, :k], num_null=10, remove=0)
    assert math.isnan(result.z)
    assert isinstance(result.reason, str)
    assert reason in result.reason


def assert_same(result: SubspacePGAResult, expected: SubspacePGAResult, *index: int) -> None:
    """Compare one entry of a batched result with a single one."""
    for name in SINGLE_FIELDS:
        entry = getattr(result, name)[index]
        torch.testing.assert_close(
            entry, getattr(expected, name), rtol=0, atol=1e-9, equal_nan=True
        )
    reason: Any = result.reason
    for position in index:
        reason = reason[position]
    assert reason == expected.reason


def test_layers_and_removals_in_one_call_equal_single_calls() -> None:
    hidden, basis = gaussian(3, 20, 8), basis_of(8, 3)
    hidden[1] = 1
    removals = [0, 2, 1]
    both = subspace_pga(hidden, basis, num_null=4, remove=removals, generator=generator(5))
    assert both.z.shape == (3, 3)
    assert both.null.shape == (3, 3, 4)
    layers = subspace_pga(hidden, basis, num_null=4, remove=2, generator=generator(5))
    removed = subspace_pga(hidden[2], basis, num_null=4, remove=removals, generator=generator(5))
    for layer in range(3):
        for number, removal in enumerate(removals):
            single = subspace_pga(
                hidden[layer], basis, num_null=4, remove=removal, generator=generator(5)
            )
            assert_same(both, single, layer, number)
            if removal == 2:
                assert_same(layers, single, layer)
            if layer == 2:
                assert_same(removed, single, number)


def test_the_generator_alone_decides() -> None:
    hidden, basis = gaussian(20, 8), basis_of(8, 3)
    state = torch.get_rng_state()
    default = subspace_pga(hidden, basis, num_null=4)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(default.null, subspace_pga(hidden, basis, num_null=4).null)
    seeded = subspace_pga(hidden, basis, num_null=4, generator=generator(0))
    assert torch.equal(default.null, seeded.null)
    moving = generator(0)
    first = subspace_pga(hidden, basis, num_null=4, generator=moving).null
    second = subspace_pga(hidden, basis, num_null=4, generator=moving).null
    assert not torch.equal(first, second)


def test_more_nulls_extend_the_sample() -> None:
    hidden, basis = gaussian(20, 8), basis_of(8, 3)
    short = subspace_pga(hidden, basis, num_null=4).null
    assert torch.equal(subspace_pga(hidden, basis, num_null=9).null[:4], short)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_other_dtypes_measure_their_own_values(dtype: torch.dtype) -> None:
    hidden = (8 * gaussian(30, 12)).to(dtype)
    basis = basis_of(12, 4) if dtype == torch.int64 else basis_of(12, 4).to(dtype)
    result = subspace_pga(hidden, basis, num_null=2)
    assert float(result.rho) == pytest.approx(oracle_rho(ccr(hidden, 1), basis), abs=2e-4)
    assert result.z.dtype == torch.float64


def test_inputs_are_left_alone() -> None:
    for hidden in (gaussian(20, 8), gaussian(20, 8).double()):
        basis = basis_of(8, 3).to(hidden.dtype)
        before = hidden.clone(), basis.clone()
        subspace_pga(hidden, basis, num_null=2)
        assert torch.equal(hidden, before[0])
        assert torch.equal(basis, before[1])


GOOD = {"hidden": gaussian(9, 6), "basis": torch.eye(6)[:, :2]}
BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "hidden no tensor": ({"hidden": [[1.0]]}, TypeError, "hidden"),
    "hidden vector": ({"hidden": gaussian(9)}, ValueError, "hidden: expected 2 or 3 dimensions"),
    "hidden nan": (
        {"hidden": torch.full((9, 6), math.nan)},
        ValueError,
        "hidden: expected finite values, got 54 non-finite of 54",
    ),
    "two points": ({"hidden": gaussian(2, 6)}, ValueError, "hidden: expected at least 3 points"),
    "basis no tensor": ({"basis": None}, TypeError, "basis"),
    "basis inf": (
        {"basis": torch.full((6, 2), math.inf)},
        ValueError,
        "basis: expected finite values, got 12",
    ),
    "k > d": ({"basis": torch.ones(6, 7)}, ValueError, "basis: expected at most d = 6 .* k = 7"),
    "other width": ({"basis": torch.eye(5)}, ValueError, "basis: expected 6 rows, the width"),
    "not orthonormal": (
        {"basis": 2 * torch.eye(6)[:, :2]},
        ValueError,
        "basis: expected orthonormal columns, got .* differs from I by 3.0e",
    ),
    "one null": ({"num_null": 1}, ValueError, "num_null: expected an integer of at least 2"),
    "remove too many": ({"remove": 6}, ValueError, r"remove: .* min\(N, d\) = 6 components, got 6"),
    "one of several": ({"remove": [1, 7]}, ValueError, "remove: .* got 7; remove fewer"),
    "negative": ({"remove": -1}, ValueError, "remove: expected an integer of at least 0"),
    "no removal": ({"remove": []}, ValueError, "remove: expected one or more integers"),
    "a bool": ({"remove": True}, ValueError, "remove: expected an integer of at least 0, got True"),
}


@pytest.mark.parametrize(("changes", "error", "message"), BAD.values(), ids=BAD)
def test_bad_input(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        subspace_pga(**(GOOD | changes))
