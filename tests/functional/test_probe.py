"""Linear probes against scikit-learn, closed forms and invariances."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from tests.ag_news import read_ag_news
from toolkit.functional import LinearProbeResult, fit_linear_probe, probe_accuracy
from toolkit.functional._labels import stratified_split


class Data(NamedTuple):
    features: Tensor
    labels: Tensor
    test_features: Tensor
    test_labels: Tensor


def clusters(
    num_rows: int,
    dim: int,
    num_classes: int,
    *,
    spread: float = 1.0,
    decay: float = 0.0,
    skew: float = 0.0,
) -> Data:
    """Gaussian classes; variances fall as i^-decay in a random basis, shares as (c + 1)^-skew."""
    generator = torch.Generator().manual_seed(num_rows + dim + num_classes)
    total = num_rows + 1000
    shares = torch.arange(1, num_classes + 1) ** -skew
    labels = torch.multinomial(shares, total, replacement=True, generator=generator)
    means = torch.randn(num_classes, dim, generator=generator)
    latent = torch.randn(total, dim, generator=generator) + spread * means[labels]
    basis = torch.linalg.qr(torch.randn(dim, dim, generator=generator)).Q
    features = (latent * torch.arange(1, dim + 1) ** (-decay / 2)) @ basis
    features = features * torch.randn(dim, generator=generator).exp() + 3.0
    return Data(features[:num_rows], labels[:num_rows], features[num_rows:], labels[num_rows:])


def outlier(data: Data) -> Data:
    """One coordinate with a mean 400 times its deviation, as some language models have."""
    shift = torch.zeros(data.features.shape[1])
    shift[1] = 400 * float(data.features[:, 1].std())
    return data._replace(features=data.features + shift, test_features=data.test_features + shift)


def objective(probe: LinearProbeResult, features: Tensor, labels: Tensor) -> float:
    """Mean cross-entropy + l2/2 ||W||^2, in float64."""
    mean, deviation = features.double().mean(0), features.double().std(0, correction=0)
    scores = (features.double() - mean) / deviation @ probe.weight.double().T + probe.bias.double()
    loss = torch.nn.functional.cross_entropy(scores, labels)
    return float(loss + probe.l2 / 2 * probe.weight.double().square().sum())


class Oracle:
    """scikit-learn in float64 with a tight tolerance."""

    def __init__(self, features: Tensor, labels: Tensor, l2: float) -> None:
        self.scaler = StandardScaler().fit(features.double().numpy())
        scaled = self.scaler.transform(features.double().numpy())
        # For two classes scikit-learn fits v = w_1 - w_0, and ||W||^2 = ||v||^2 / 2 at the minimum.
        penalty = l2 / 2 if int(labels.max()) == 1 else l2
        model = LogisticRegression(C=1 / (len(labels) * penalty), tol=1e-9, max_iter=100_000)
        self.model = model.fit(scaled, labels.numpy())
        loss = torch.nn.functional.nll_loss(self.log_probabilities(features), labels)
        self.objective = float(loss + penalty / 2 * np.square(self.model.coef_).sum())

    def log_probabilities(self, features: Tensor) -> Tensor:
        scaled = self.scaler.transform(features.double().numpy())
        return torch.from_numpy(self.model.predict_log_proba(scaled))

    def accuracy(self, features: Tensor, labels: Tensor) -> float:
        return float((self.log_probabilities(features).argmax(1) == labels).double().mean())


PROBLEMS: dict[str, Callable[[], Data]] = {
    "well_conditioned": lambda: clusters(600, 30, 4, spread=0.2),
    "ill_conditioned": lambda: clusters(800, 100, 4, spread=0.2, decay=3.0),
    "separable": lambda: clusters(400, 20, 3, spread=2.0),
    "fewer_rows_than_features": lambda: clusters(150, 400, 4, spread=0.1, decay=1.0),
    "two_classes": lambda: clusters(500, 40, 2, spread=0.2),
    "ten_classes": lambda: clusters(900, 60, 10, spread=0.3, decay=1.0),
    "rare_classes": lambda: clusters(700, 30, 4, spread=0.3, skew=3.0),
    "large_mean": lambda: outlier(clusters(500, 30, 4, spread=0.2)),
}


@pytest.mark.parametrize("l2", [0.1, 0.001])
@pytest.mark.parametrize("name", PROBLEMS)
def test_probe_finds_what_scikit_learn_finds(name: str, l2: float) -> None:
    data = PROBLEMS[name]()
    oracle = Oracle(data.features, data.labels, l2)
    probe = fit_linear_probe(data.features, data.labels, l2=l2)
    excess = objective(probe, data.features, data.labels) - oracle.objective
    assert probe.converged
    # float32 moves the objective by less than a millionth.
    assert -1e-7 < excess < float(probe.gap) + 1e-6
    accuracy = float(probe_accuracy(probe, data.test_features, data.test_labels))
    # One of the 1000 rows may be too close to call.
    assert accuracy == pytest.approx(
        oracle.accuracy(data.test_features, data.test_labels), abs=1.001e-3
    )


@pytest.mark.parametrize("name", ["ill_conditioned", "two_classes"])
def test_float64_agrees_to_many_digits(name: str) -> None:
    data = PROBLEMS[name]()
    features = data.features.double()
    oracle = Oracle(features, data.labels, 0.01)
    probe = fit_linear_probe(features, data.labels, l2=0.01, tol=1e-14)
    assert probe.converged
    assert objective(probe, features, data.labels) == pytest.approx(oracle.objective, abs=1e-12)
    torch.testing.assert_close(probe.mean, torch.from_numpy(oracle.scaler.mean_))
    torch.testing.assert_close(probe.scale, torch.from_numpy(oracle.scaler.scale_))
    # Scores are defined up to a constant per row, weights up to a constant per feature.
    theirs = torch.from_numpy(oracle.model.coef_).diff(dim=0)
    if len(theirs) == 0:
        theirs = torch.from_numpy(oracle.model.coef_)
    torch.testing.assert_close(probe.weight.diff(dim=0), theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-9)], ids=str
)
def test_two_points_have_a_closed_form(dtype: torch.dtype, tolerance: float) -> None:
    """Scores (-a x, a x) at x = -1 and 1: half the objective's slope is l2 a - 1 / (1 + e^2a).

    float32 cannot reach the tolerance asked for: going on must not lead away.
    """
    features, l2 = torch.tensor([[4.0], [10.0]], dtype=dtype), 1 / (1 + math.e**2)
    probe = fit_linear_probe(features, torch.tensor([0, 1]), l2=l2, tol=1e-20, max_iter=100)
    assert probe.weight[:, 0].tolist() == pytest.approx([-1.0, 1.0], abs=tolerance)
    assert probe.bias.tolist() == pytest.approx(2 * [math.log(0.5)], abs=tolerance)
    assert (probe.mean.tolist(), probe.scale.tolist()) == ([7.0], [3.0])


@pytest.mark.parametrize("max_iter", [1, 2, 4, 8])
@pytest.mark.parametrize("name", ["ill_conditioned", "separable", "rare_classes"])
def test_the_gap_bounds_the_excess_of_an_unfinished_fit(name: str, max_iter: int) -> None:
    data = PROBLEMS[name]()
    features = data.features.double()
    minimum = Oracle(features, data.labels, 0.01).objective
    probe = fit_linear_probe(features, data.labels, l2=0.01, tol=1e-12, max_iter=max_iter)
    assert (bool(probe.converged), int(probe.num_iter)) == (False, max_iter)
    assert objective(probe, features, data.labels) - minimum < float(probe.gap)


def test_layers_are_fitted_each_on_its_own() -> None:
    data = [PROBLEMS[name]() for name in ("well_conditioned", "rare_classes", "large_mean")]
    labels = data[0].labels[:400]
    # The middle layer has another spectrum than the labels' own.
    layers = torch.stack([d.features[:400] for d in data])
    batch = fit_linear_probe(layers, labels, l2=[1.0, 0.01])
    for index, layer in enumerate(layers):
        single = fit_linear_probe(layer, labels, l2=[1.0, 0.01])
        assert all(torch.equal(b[index], s) for b, s in zip(batch, single, strict=True))
    assert batch.weight.shape == (3, 4, 30)
    assert (batch.bias.shape, batch.mean.shape, batch.scale.shape) == ((3, 4), (3, 30), (3, 30))
    assert len(set(batch.num_iter.tolist())) > 1
    accuracies = probe_accuracy(batch, layers, labels)
    assert accuracies.shape == (3,)
    for index, layer in enumerate(layers):
        single = LinearProbeResult(*(value[index] for value in batch))
        assert probe_accuracy(single, layer, labels) == accuracies[index]


def test_shift_scale_order_and_names_do_not_matter(generator: torch.Generator) -> None:
    data = clusters(300, 20, 3, spread=0.3)
    features, dim = data.features.double(), 20
    probe = fit_linear_probe(features, data.labels, tol=1e-12)
    moved = features * torch.logspace(-4, 4, dim) + 100 * torch.randn(dim, generator=generator)
    order = torch.randperm(300, generator=generator)
    names = torch.tensor([2, 0, 1])
    other = fit_linear_probe(moved[order], names[data.labels[order]], tol=1e-12)
    torch.testing.assert_close(other.weight[names], probe.weight, rtol=0, atol=1e-5)
    torch.testing.assert_close(other.bias[names], probe.bias, rtol=0, atol=1e-5)


def test_constant_features_change_nothing(generator: torch.Generator) -> None:
    data = clusters(300, 20, 3, spread=0.3)
    constants = torch.tensor([0.0, 0.1, -7e4]).expand(300, 3)
    probe = fit_linear_probe(data.features, data.labels)
    padded = fit_linear_probe(torch.cat([constants, data.features], 1), data.labels)
    assert padded.weight[:, :3].tolist() == torch.zeros(3, 3).tolist()
    assert padded.scale[:3].tolist() == [1.0, 1.0, 1.0]
    torch.testing.assert_close(padded.weight[:, 3:], probe.weight, rtol=0, atol=5e-3)
    # What was constant may vary later: it still has no say.
    noise = 1e6 * torch.randn(1000, 3, generator=generator)
    test = torch.cat([noise, data.test_features], 1)
    assert probe_accuracy(padded, test, data.test_labels) == pytest.approx(
        float(probe_accuracy(probe, data.test_features, data.test_labels)), abs=2e-3
    )
    nothing = fit_linear_probe(torch.ones(10, 2), torch.tensor(7 * [0] + 3 * [1]))
    assert nothing.bias.softmax(0).tolist() == pytest.approx([0.7, 0.3])


def test_test_rows_are_standardised_with_train_statistics() -> None:
    features = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    probe = fit_linear_probe(features, torch.tensor([0, 0, 1, 1]))
    # All of them above the train mean: standardised on their own, half would be class 0.
    assert probe_accuracy(probe, features + 10, torch.ones(4, dtype=torch.int64)) == 1.0


class TestChoiceOfPenalty:
    PENALTIES = (1.0, 0.1, 0.001)

    def test_it_is_the_best_on_held_out_rows(self) -> None:
        for name in ("fewer_rows_than_features", "ten_classes"):
            data = PROBLEMS[name]()
            split = stratified_split(data.labels, 0.25, torch.Generator().manual_seed(5))
            train, held_out = data.features[split.train], data.features[split.held_out]
            accuracies = [
                Oracle(train, data.labels[split.train], l2).accuracy(
                    held_out, data.labels[split.held_out]
                )
                for l2 in self.PENALTIES
            ]
            probe = fit_linear_probe(
                data.features,
                data.labels,
                l2=self.PENALTIES,
                validation_share=0.25,
                generator=torch.Generator().manual_seed(5),
            )
            assert float(probe.l2) == self.PENALTIES[int(np.argmax(accuracies))]

    def test_the_refit_is_the_fit_with_that_penalty(self) -> None:
        data = clusters(300, 20, 3, spread=0.3)
        chosen = fit_linear_probe(data.features, data.labels, l2=self.PENALTIES)
        single = fit_linear_probe(data.features, data.labels, l2=float(chosen.l2))
        assert chosen.converged
        torch.testing.assert_close(chosen.weight, single.weight, rtol=0, atol=5e-3)
        torch.testing.assert_close(chosen.mean, single.mean)

    @pytest.mark.parametrize("penalties", [[0.1, 0.5, 0.2], [0.5, 0.1], (0.2, 0.5)])
    def test_equals_go_to_the_strongest(self, penalties: list[float]) -> None:
        data = clusters(200, 10, 3, spread=9.0)
        assert fit_linear_probe(data.features, data.labels, l2=penalties).l2 == 0.5

    def test_the_split_keeps_shares_and_spares_the_last_row(self) -> None:
        classes = torch.tensor(60 * [0] + 30 * [1] + 2 * [2] + [3])
        split = stratified_split(classes, 0.2, torch.Generator().manual_seed(0))
        assert torch.bincount(classes[split.held_out], minlength=4).tolist() == [12, 6, 1, 0]
        assert torch.cat(split).sort().values.tolist() == list(range(93))
        other = stratified_split(classes, 0.2, torch.Generator().manual_seed(1))
        assert not torch.equal(split.held_out, other.held_out)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_grad_mode_does_not_matter(mode: Callable[[], Any]) -> None:
    data = clusters(200, 10, 3, spread=0.3)
    expected = fit_linear_probe(data.features, data.labels, l2=[0.1, 0.01])
    with mode():
        features = data.features.clone().requires_grad_(mode is torch.enable_grad)
        probe = fit_linear_probe(features, data.labels, l2=[0.1, 0.01])
        probe_accuracy(probe, features, data.labels)
    assert all(torch.equal(a, b) for a, b in zip(expected, probe, strict=True))
    assert not any(value.requires_grad for value in probe)


def test_no_global_randomness_and_no_change_of_inputs() -> None:
    data = clusters(200, 10, 3, spread=0.3)
    before, state = [value.clone() for value in data], torch.get_rng_state()
    first = fit_linear_probe(data.features, data.labels, l2=[0.1, 0.01])
    probe_accuracy(first, data.test_features, data.test_labels)
    torch.manual_seed(7)
    second = fit_linear_probe(data.features, data.labels, l2=[0.1, 0.01])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, data, strict=True))
    torch.set_rng_state(state)
    fit_linear_probe(data.features, data.labels, l2=[0.1, 0.01])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("dtype", "lifted"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.int32, torch.float64),
    ],
    ids=str,
)
def test_precision_is_lifted(dtype: torch.dtype, lifted: torch.dtype) -> None:
    data = clusters(200, 10, 3, spread=0.3)
    features = (4 * data.features).to(dtype)
    probe = fit_linear_probe(features, data.labels.to(torch.uint8))
    expected = fit_linear_probe(features.to(lifted), data.labels)
    assert probe.weight.dtype == lifted
    assert all(torch.equal(a, b) for a, b in zip(probe, expected, strict=True))
    assert probe_accuracy(probe, features, data.labels) == probe_accuracy(
        probe, features.double(), data.labels
    )


FEATURES, LABELS = torch.eye(4), torch.tensor([0, 1, 1, 0])


@pytest.mark.parametrize(
    ("features", "labels", "options", "message"),
    [
        (torch.tensor([[math.nan], [1]]), LABELS[:2], {}, "features: .* got 1 non-finite of 2"),
        (torch.tensor([[math.inf], [1]]), LABELS[:2], {}, "features: expected finite"),
        (torch.tensor([[3e38], [3e38]]), LABELS[:2], {}, "features: expected sums within"),
        (torch.ones(4), LABELS, {}, "features: expected 2 or 3 dimensions"),
        (torch.ones(0, 3), LABELS[:0], {}, "features: expected at least one value"),
        (FEATURES, LABELS.float(), {}, "labels: expected integers, got dtype torch.float32"),
        (FEATURES, LABELS.bool(), {}, "labels: expected integers, got dtype torch.bool"),
        (FEATURES, LABELS[:3], {}, r"labels: expected shape \(4,\)"),
        (FEATURES, 0 * LABELS + 2, {}, "labels: expected at least 2 classes, got only class 2"),
        (FEATURES, LABELS + 1, {}, r"labels: expected 0..1 for 2 classes, got 1..2;"),
        (FEATURES, LABELS - 1, {}, r"labels: expected 0..1 for 2 classes, got -1..0;"),
        (FEATURES, 2 * LABELS, {}, r"labels: expected 0..1 for 2 classes, got 0..2;"),
        (FEATURES, torch.arange(4), {"l2": [1.0, 2.0]}, "labels: expected a class of 2 rows"),
        (FEATURES, LABELS, {"l2": 0.0}, "l2: expected one or several positive finite numbers"),
        (FEATURES, LABELS, {"l2": [0.1, math.inf]}, "l2: expected one or several positive"),
        (FEATURES, LABELS, {"l2": []}, "l2: expected one or several positive finite numbers"),
        (FEATURES, LABELS, {"tol": 0.0}, "tol: expected a positive finite number, got 0.0"),
        (FEATURES, LABELS, {"max_iter": 0}, "max_iter: expected an integer of at least 1"),
        (
            FEATURES,
            LABELS,
            {"l2": [1.0, 2.0], "validation_share": 1.0},
            "validation_share: expected",
        ),
    ],
)
def test_bad_input_of_the_fit(
    features: Tensor, labels: Tensor, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        fit_linear_probe(features, labels, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (FEATURES / 0, LABELS, "features: expected finite values, got 16 non-finite"),
        (FEATURES[None], LABELS, "features: expected 2 dimensions"),
        (FEATURES[:, :3], LABELS, r"features: expected shape \(4, 4\) as in the probe"),
        (FEATURES, LABELS + 1, r"labels: expected classes 0..1 of the probe, got 1..2"),
        (FEATURES, LABELS - 1, r"labels: expected classes 0..1 of the probe, got -1..0"),
        (FEATURES, LABELS[:3], r"labels: expected shape \(4,\)"),
        (FEATURES, LABELS.float(), "labels: expected integers"),
    ],
)
def test_bad_input_of_the_accuracy(features: Tensor, labels: Tensor, message: str) -> None:
    probe = fit_linear_probe(FEATURES, LABELS)
    with pytest.raises(ValueError, match=message):
        probe_accuracy(probe, features, labels)


def test_only_tensors_are_taken() -> None:
    probe, rows = fit_linear_probe(FEATURES, LABELS), cast("Tensor", FEATURES.tolist())
    for features, labels, name in ((rows, LABELS, "features"), (FEATURES, rows, "labels")):
        with pytest.raises(TypeError, match=name):
            fit_linear_probe(features, labels)
        with pytest.raises(TypeError, match=name):
            probe_accuracy(probe, features, labels)


@pytest.mark.slow
def test_ag_news_words_give_away_what_scikit_learn_reads_from_them() -> None:
    texts, labels = read_ag_news()
    counts = CountVectorizer(max_features=1000).fit_transform(texts).toarray()
    features, classes = torch.from_numpy(counts).float(), torch.tensor(labels)
    train, test = slice(4000), slice(4000, None)
    for l2, reached in ((0.01, 0.784), (0.1, 0.829)):
        probe = fit_linear_probe(features[train], classes[train], l2=l2)
        accuracy = float(probe_accuracy(probe, features[test], classes[test]))
        oracle = Oracle(features[train], classes[train], l2)
        assert accuracy == pytest.approx(oracle.accuracy(features[test], classes[test]), abs=1e-3)
        assert accuracy == pytest.approx(reached, abs=2e-3)
        excess = objective(probe, features[train], classes[train]) - oracle.objective
        assert abs(excess) < 1e-5
