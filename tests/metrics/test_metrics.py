"""Every metric against its function: batches, ranks, reset, pickle, bad input."""

import math
import pickle
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric

from toolkit import functional, metrics

DIM = 12


class Case(NamedTuple):
    metric: Callable[..., Metric]
    function: Callable[..., Any]
    options: Mapping[str, Any] = MappingProxyType({})

    def build(self, **kwargs: Any) -> Metric:
        return self.metric(DIM, **self.options, **kwargs)

    def expected(self, rows: Tensor) -> Any:
        return self.function(rows, **self.options)


CASES = {
    "cosine_moments": Case(metrics.CosineMoments, functional.cosine_moments),
    "mean_cosine": Case(metrics.MeanCosine, functional.mean_cosine),
    "embedding_deviation": Case(metrics.EmbeddingDeviation, functional.embedding_deviation),
    "three_sigma": Case(
        metrics.EmbeddingDeviation, functional.embedding_deviation, {"num_sigma": 3.0}
    ),
    "rankme": Case(metrics.RankMe, functional.rankme),
    "rankme_of_variances": Case(
        metrics.RankMe, functional.rankme, {"centered": True, "eigenvalues": True}
    ),
    "participation_ratio": Case(metrics.ParticipationRatio, functional.participation_ratio),
    "condition_number": Case(metrics.ConditionNumber, functional.condition_number),
    "uncentered_condition": Case(
        metrics.ConditionNumber, functional.condition_number, {"centered": False}
    ),
    "alpha_req": Case(metrics.AlphaReQ, functional.alpha_req, {"fit_range": (2, 10)}),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def rows(num: int = 40) -> Tensor:
    gen = torch.Generator().manual_seed(0)
    scales = torch.arange(1, DIM + 1) ** -0.5
    features = torch.randn(num, DIM, generator=gen) * scales + 0.3
    features[3] = 0
    return features


def assert_same(got: Any, expected: Any) -> None:
    parts = (got, expected) if isinstance(got, tuple) else ((got,), (expected,))
    for left, right in zip(*parts, strict=True):
        if isinstance(left, str | None):
            assert left == right
        else:
            torch.testing.assert_close(torch.as_tensor(left), torch.as_tensor(right))


@each_case
@pytest.mark.parametrize("sizes", [[40], [1, 39], [13, 13, 14]], ids=str)
def test_batches_give_what_the_whole_gives(case: Case, sizes: list[int]) -> None:
    features = rows()
    before = features.clone()
    metric = case.build()
    for batch in torch.split(features, sizes):
        metric.update(batch)
    assert_same(metric.compute(), case.expected(features))
    assert torch.equal(features, before)


@each_case
@pytest.mark.parametrize("kind", ["empty", "zeros", "one zero", "one row"])
def test_batches_of_nothing_are_right_at_any_place(
    case: Case, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    extra = {"empty": rows()[:0], "zeros": torch.zeros(5, DIM), "one zero": torch.zeros(1, DIM)}
    extra["one row"] = rows()[7:8]
    batches = list(torch.split(rows(), 11))
    for place in range(len(batches) + 1):
        metric = case.build()
        given = [*batches[:place], extra[kind], *batches[place:]]
        for batch in given:
            metric.update(batch)
        assert_same(metric.compute(), case.expected(torch.cat(given)))
    assert "On entry to" not in "".join(capfd.readouterr())


@each_case
@pytest.mark.parametrize("scale", [2.0**-660, 2.0**-50, 2.0**50, 2.0**990])
def test_scale_changes_nothing_or_is_refused(case: Case, scale: float) -> None:
    metric = case.build()
    metric.update(scale * rows().double())
    if isinstance(metric, metrics.CosineMoments | metrics.MeanCosine) or 1e-60 < scale < 1e60:
        assert_same(metric.compute(), case.expected(rows().double()))
    else:
        with pytest.raises(ValueError, match="features: expected values whose squares float64"):
            metric.compute()


@each_case
def test_fewer_rows_than_dimensions(case: Case) -> None:
    features = rows(9)
    metric = case.build()
    metric.update(features)
    assert_same(metric.compute(), case.expected(features))


@each_case
def test_forward_measures_the_batch_and_accumulates(case: Case) -> None:
    features = rows()
    metric = case.build()
    assert_same(metric(features[:15]), case.expected(features[:15]))
    metric(features[15:])
    assert_same(metric.compute(), case.expected(features))


@each_case
def test_reset_forgets(case: Case) -> None:
    metric = case.build()
    metric.update(rows() + 1)
    metric.reset()
    metric.update(rows())
    assert_same(metric.compute(), case.expected(rows()))


@each_case
def test_pickle_keeps_the_sums(case: Case) -> None:
    metric = case.build()
    metric.update(rows()[:20])
    loaded = pickle.loads(pickle.dumps(metric))
    loaded.update(rows()[20:])
    assert_same(loaded.compute(), case.expected(rows()))


@each_case
def test_merging_adds_up(case: Case) -> None:
    first, second = case.build(), case.build()
    first.update(rows()[:10])
    second.update(rows()[10:])
    first.merge_state(second)
    assert_same(first.compute(), case.expected(rows()))


@each_case
def test_ranks_add_up(case: Case) -> None:
    def gather(state: Tensor, group: Any) -> list[Tensor]:
        return [state, state]

    metric = case.build(dist_sync_fn=gather, distributed_available_fn=lambda: True)
    metric.update(rows())
    assert_same(metric.compute(), case.expected(torch.cat([rows(), rows()])))


@each_case
def test_states_do_not_grow_and_stay_float64(case: Case) -> None:
    metric = case.build()
    metric.update(rows())
    shapes = [torch.as_tensor(state).shape for state in metric.metric_state.values()]
    metric.update(rows())
    metric.half()
    states = [torch.as_tensor(state) for state in metric.metric_state.values()]
    assert [state.shape for state in states] == shapes
    assert sum(state.numel() for state in states) <= DIM * DIM + DIM + 4
    assert {state.dtype for state in states} == {torch.int64, torch.float64}


@each_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_lifted(case: Case, dtype: torch.dtype) -> None:
    metric = case.build()
    metric.update(rows().to(dtype))
    assert_same(metric.compute(), case.expected(rows().to(dtype)))


@each_case
@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.full((3, DIM), math.nan), "expected finite values, got 36 non-finite of 36"),
        (torch.ones(3, 5), r"expected 12 columns \(num_features\), got 5"),
        (torch.ones(DIM), "expected 2 dimensions"),
    ],
    ids=["nan", "width", "vector"],
)
def test_bad_rows_are_refused(case: Case, features: Tensor, message: str) -> None:
    metric = case.build()
    with pytest.raises(ValueError, match=message):
        metric.update(features)


@each_case
def test_bad_widths_are_refused(case: Case) -> None:
    with pytest.raises(ValueError, match="num_features: expected an integer of at least 1"):
        case.metric(0)


@each_case
def test_too_few_rows_are_refused(case: Case) -> None:
    metric = case.build()
    metric.update(rows()[3:4])
    if case.metric is metrics.MeanCosine:
        assert math.isnan(metric.compute().value)
        return
    with pytest.raises(ValueError, match="expected at least"):
        metric.compute()


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="num_sigma: expected a finite number of at least 0"):
        metrics.EmbeddingDeviation(DIM, num_sigma=-1.0)
    with pytest.raises(ValueError, match="fit_range: expected two integers, 1 <= first < last"):
        metrics.AlphaReQ(DIM, fit_range=(4, 4))
