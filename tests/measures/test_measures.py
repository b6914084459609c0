"""Each measure against the pure functions, on tensors taken from the model by hand."""

import inspect
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from tests.lm import tiny_models
from tests.lm.tiny_models import DIM, NUM_BLOCKS, NUM_ROWS, TEXTS, VOCABULARY
from tests.lm.tiny_models import tiny_tokenizer as tokenizer
from toolkit.data.labelled_texts import LabelledTexts
from toolkit.functional import (
    alpha_req,
    condition_number,
    cosine_moments,
    embedding_deviation,
    fit_linear_probe,
    log10_capacity,
    mean_cosine,
    participation_ratio,
    probe_accuracy,
    rankme,
    readout_basis,
    subspace_pga,
    two_nn,
)
from toolkit.lm.reading.hidden_states import hidden_states
from toolkit.measure import measure
from toolkit.measures import MEASURES, Measure, Subject
from toolkit.runs.points import Point

deviation_points = MEASURES["epsilon"]
pga_points = MEASURES["pga"]
probe_points = MEASURES["probe"]
spectrum_points = MEASURES["spectrum"]
two_nn_points = MEASURES["two_nn"]
unembedding_points = MEASURES["unembedding"]
LAYERS = ["layer_00", "layer_01", "layer_02", "layer_03", "final"]
NUM_TOKENS = len(VOCABULARY)
LABELLED = LabelledTexts(
    train_texts=[f"{text} {word}" for text in TEXTS for word in ("cat", "river")],
    train_labels=torch.tensor([0, 1] * len(TEXTS)),
    test_texts=list(TEXTS),
    test_labels=torch.tensor([0, 1, 0, 1, 0, 1, 0, 1, 0, 0]),
    classes=("cat", "river"),
    source="by hand",
    num_removed=0,
)


def tiny_model(name: str = "gpt_neox") -> Any:
    """Its type would forbid to look inside."""
    return tiny_models.tiny_model(name)


def subject(model: PreTrainedModel | None = None, **options: Any) -> Subject:
    return Subject(model or tiny_model(), tokenizer(), LABELLED, **options)


def by_name(points: list[Point]) -> dict[tuple[str, str], float]:
    named = {(point.quantity, point.layer): point.value for point in points}
    assert len(named) == len(points)
    return named


def test_pga_is_the_pure_function_on_the_layers() -> None:
    model = tiny_model()
    values = by_name(pga_points(subject(model), k=3, num_null=7, remove=[1, 2], seed=5))
    assert [layer for name, layer in values if name == "z"] == LAYERS
    states = hidden_states(model, tokenizer(), TEXTS)
    basis = readout_basis(model.get_output_embeddings().weight[:NUM_TOKENS], 3)
    generator = torch.Generator().manual_seed(5)
    wanted = subspace_pga(states["layer_02"], basis, num_null=7, remove=[1, 2], generator=generator)
    for index, suffix in enumerate(("", "_ccr2")):
        for name in ("z", "rho", "null_mean", "null_std", "p_value", "variance_share"):
            found = values[f"{name}{suffix}", "layer_02"]
            assert found == pytest.approx(float(getattr(wanted, name)[index]), rel=1e-6)
    assert values["pc1_alignment", "layer_02"] == pytest.approx(float(wanted.pc1_alignment[0]))
    assert values["num_distinct", "layer_02"] == len(TEXTS)
    assert values["num_nonfinite", "layer_02"] == 0


def test_the_readout_of_projected_layers_is_wider() -> None:
    model = tiny_model("opt_projected")
    values = by_name(pga_points(subject(model), k=3, num_null=5))
    states = hidden_states(model, tokenizer(), TEXTS)
    matrix = model.get_output_embeddings().weight[:NUM_TOKENS]
    inside = matrix @ model.model.decoder.project_out.weight
    for layer, rows in {"layer_03": inside, "final": matrix}.items():
        generator = torch.Generator().manual_seed(0)
        basis = readout_basis(rows, 3)
        wanted = subspace_pga(states[layer], basis, num_null=5, generator=generator)
        assert values["z", layer] == pytest.approx(float(wanted.z), rel=1e-4)
    assert states["layer_03"].shape[1] != states["final"].shape[1]


def test_options_change_the_basis() -> None:
    plain, centered, folded = (
        by_name(pga_points(subject(), k=3, num_null=5, **options))
        for options in ({}, {"center_unembedding": True}, {"fold_norm": True})
    )
    assert len({v["rho", "layer_01"] for v in (plain, centered, folded)}) == 3


def test_the_folded_gain_does_not_reach_what_the_norm_has_seen() -> None:
    seen = subject()
    for layer, equal in (("layer_01", False), ("final", True)):
        bases = [seen.readout(layer, 3, centered=False, fold_norm=fold) for fold in (False, True)]
        assert torch.equal(bases[0].basis, bases[1].basis) == equal


def test_the_default_k() -> None:
    values = by_name(pga_points(subject(), num_null=5))
    assert values == by_name(pga_points(subject(), k=DIM // 8, num_null=5))


def test_the_default_k_is_that_of_the_unembedding_at_each_layer() -> None:
    found = subject(tiny_model("opt_projected"))
    width = found.matrices["output"].shape[1]
    assert found.states("test")["layer_01"].shape[1] // 8 != width // 8
    wanted = by_name(pga_points(found, k=max(1, width // 8), num_null=5))
    assert by_name(pga_points(found, num_null=5)) == wanted


def test_deviation_counts_the_rows_of_the_tokenizer() -> None:
    model = tiny_model()
    for rows, number in (("tokenizer", NUM_TOKENS), ("all", NUM_ROWS)):
        points = deviation_points(subject(model, rows=rows))
        values = by_name(points)
        for name, module in (
            ("input", model.get_input_embeddings()),
            ("output", model.get_output_embeddings()),
        ):
            wanted = embedding_deviation(module.weight[:number])
            assert values["value", name] == pytest.approx(wanted.epsilon, rel=1e-9)
            assert values["mean", name] == pytest.approx(wanted.mean, rel=1e-9)
            assert values["std", name] == pytest.approx(wanted.std, rel=1e-9)
        assert values["tied", ""] == 0
        assert {p.num_points for p in points if p.layer == "input"} == {number}


def test_tied_matrices_are_measured_once() -> None:
    values = by_name(deviation_points(subject(tiny_model("gpt2"))))
    assert values["tied", ""] == 1
    assert {layer for _, layer in values} == {"", "input"}


def test_capacity_is_that_of_the_law_and_nothing_in_class_1() -> None:
    model = tiny_model()
    weight = model.get_input_embeddings().weight
    with torch.no_grad():
        # 16 orthogonal rows: epsilon is a positive number below 0.1 once they are tilted a little.
        weight[:NUM_TOKENS] = torch.eye(NUM_TOKENS, DIM) + 0.01
        weight[DIM:NUM_TOKENS] = 0
        model.get_output_embeddings().weight.fill_(1.0)
    points = deviation_points(subject(model))
    values = by_name(points)
    assert values["class", "input"] == 2
    assert values["num_dropped", "input"] == NUM_TOKENS - DIM
    assert values["log10", "input"] == log10_capacity(DIM, values["value", "input"])
    assert values["class", "output"] == 1
    assert math.isnan(values["log10", "output"])
    assert {p.metric for p in points if p.quantity == "log10"} == {"capacity"}


def test_probe_is_the_pure_function_on_the_layers() -> None:
    model = tiny_model()
    values = by_name(probe_points(subject(model), l2=0.01))
    train = hidden_states(model, tokenizer(), LABELLED.train_texts)["layer_01"]
    test = hidden_states(model, tokenizer(), TEXTS)["layer_01"]
    probe = fit_linear_probe(train, LABELLED.train_labels, l2=0.01)
    accuracy = float(probe_accuracy(probe, test, LABELLED.test_labels))
    assert values["accuracy", "layer_01"] == accuracy
    assert values["stderr", "layer_01"] == pytest.approx(math.sqrt(accuracy * (1 - accuracy) / 10))
    assert values["train_accuracy", "layer_00"] == 1
    assert values["converged", "layer_01"] == 1
    assert values["num_iter", "layer_01"] == float(probe.num_iter)
    assert values["l2", "layer_01"] == 0.01
    assert values["chance", ""] == 0.6


def test_spectrum_is_the_pure_functions_on_the_layers() -> None:
    model = tiny_model()
    values = by_name(spectrum_points(subject(model), fit_range=(1, 9)))
    states = hidden_states(model, tokenizer(), TEXTS)["layer_02"]
    fit = alpha_req(states, fit_range=(1, 9))
    wanted = {
        "rankme": float(rankme(states)),
        "alpha_req": fit.alpha,
        "alpha_req_r2": fit.r2,
        "mean_cosine": float(mean_cosine(states).value),
        "condition_number": float(condition_number(states)),
        "participation_ratio": float(participation_ratio(states)),
        "num_distinct": len(TEXTS),
        "num_nonfinite": 0,
    }
    for name, value in wanted.items():
        assert values[name, "layer_02"] == pytest.approx(value, rel=1e-9), name


def test_the_last_token_alone_enters_layer_00() -> None:
    values = by_name(spectrum_points(subject(), fit_range=(1, 9)))
    assert values["num_distinct", "layer_00"] == len({text.split()[-1] for text in TEXTS})


def test_two_nn_is_the_pure_function_on_the_layers() -> None:
    model = tiny_model()
    values = by_name(two_nn_points(subject(model), discarded_share=0.2))
    wanted = two_nn(hidden_states(model, tokenizer(), TEXTS)["layer_02"], discarded_share=0.2)
    assert math.isfinite(wanted.dimension)
    for name in ("dimension", "num_distinct", "num_fitted", "num_dropped"):
        assert values[name, "layer_02"] == getattr(wanted, name)


def test_too_few_last_tokens_leave_two_nn_unknown_with_a_reason() -> None:
    found = subject()
    num = len({text.split()[-1] for text in TEXTS})
    points = [p for p in two_nn_points(found, discarded_share=0.5) if p.layer == "layer_00"]
    dimension, *counts = [p for p in points if p.quantity != "num_nonfinite"]
    assert math.isnan(dimension.value)
    assert dimension.num_points == num // 2 < 5
    assert dimension.reason == (
        f"{num // 2} ratios of {num} distinct points in the fit, 5 are needed"
    )
    assert [(p.value, p.reason) for p in counts] == [
        (num, ""),
        (num // 2, ""),
        (len(TEXTS) - num, ""),
    ]


def test_unembedding_against_all_pairs() -> None:
    model = tiny_model()
    values = by_name(unembedding_points(subject(model)))
    rows = model.get_output_embeddings().weight[:NUM_TOKENS].detach().double()
    norms = rows.norm(dim=1)
    moments = cosine_moments(rows)
    overlap = moments.mean**2 + moments.std**2
    assert values["overlap_times_m", "output"] == pytest.approx(DIM * overlap, rel=1e-6)
    assert values["norm_mean", "output"] == pytest.approx(float(norms.mean()), rel=1e-6)
    assert values["norm_min", "output"] == pytest.approx(float(norms.min()), rel=1e-6)
    for percent in (5, 50, 95):
        expected = np.percentile(norms.numpy(), percent)
        found = values[f"norm_p{percent:02d}", "output"]
        assert found == pytest.approx(expected, rel=1e-6)


def test_orthogonal_rows_do_not_overlap() -> None:
    model = tiny_model()
    with torch.no_grad():
        model.get_output_embeddings().weight[:NUM_TOKENS] = 3 * torch.eye(NUM_TOKENS, DIM)
    values = by_name(unembedding_points(subject(model)))
    assert values["overlap_times_m", "output"] == pytest.approx(0, abs=1e-9)
    assert values["num_dropped", "output"] == NUM_TOKENS - DIM
    assert values["norm_p95", "output"] == 3


@pytest.mark.parametrize("measured", [pga_points, probe_points, spectrum_points, two_nn_points])
def test_layers_that_are_not_finite_are_counted(measured: Any) -> None:
    model = tiny_model()
    with torch.no_grad():
        model.gpt_neox.layers[1].mlp.dense_4h_to_h.bias[3] = math.nan
    points = measured(subject(model))
    values = by_name(points)
    bad = {p.layer: p.value for p in points if p.quantity == "num_nonfinite"}
    for point in points:
        if point.quantity != "num_nonfinite" and bad.get(point.layer):
            assert point.reason == f"{bad[point.layer]} values are not finite"
    assert values["num_nonfinite", "layer_01"] == 0
    # One coordinate after the second block, everything after a norm has seen it.
    assert values["num_nonfinite", "layer_02"] >= len(TEXTS)
    assert values["num_nonfinite", "final"] >= len(TEXTS) * DIM
    others = {key: value for key, value in values.items() if key[0] != "num_nonfinite"}
    assert all(math.isnan(v) for (_, layer), v in others.items() if layer in {"layer_02", "final"})
    first = {name for name, layer in values if layer == "layer_01"}
    assert first == {name for name, layer in values if layer == "layer_02"}
    # With ten texts alpha-ReQ has nothing to fit; all else is known.
    unknown = {name for name in first if math.isnan(values[name, "layer_01"])}
    assert unknown <= {"alpha_req", "alpha_req_r2"}


@pytest.mark.parametrize("rank", [0, 1, 3, 7])
def test_a_readout_of_rank_below_k_leaves_pga_unknown_with_a_reason(rank: int) -> None:
    model = tiny_model()
    matrix = model.get_output_embeddings().weight
    with torch.no_grad():
        left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
        values[rank:] = 0
        matrix.copy_(left @ torch.diag(values) @ right)
    points = pga_points(subject(model), k=8, num_null=5, remove=[0, 1])
    expected = f"the matrix that reads the layer out has rank {rank}, below k = 8"
    assert len(points) == 5 * (2 * 6 + 2 + 1)
    for point in points:
        if point.quantity == "num_nonfinite":
            assert (point.value, point.reason) == (0, "")
        else:
            assert math.isnan(point.value)
            assert point.reason == expected
    if rank:
        found = by_name(pga_points(subject(model), k=rank, num_null=5))
        assert all(math.isfinite(value) for value in found.values())


def test_the_table_says_why_z_is_unknown() -> None:
    model = tiny_model()
    rows = measure(model, tokenizer(), LABELLED, metrics={"pga": {"k": DIM, "num_null": 5}})
    whole = "the subspace is the whole space (k = d)"
    for row in rows:
        unknown = math.isnan(row.value)
        assert row.conditions.get("reason", "") == (whole if unknown else "")
        assert unknown == (row.quantity == "z")
        assert row.conditions["k"] == DIM


@pytest.mark.parametrize("measured", [deviation_points, unembedding_points])
def test_matrices_that_are_not_finite_are_counted(measured: Any) -> None:
    model = tiny_model()
    with torch.no_grad():
        model.get_output_embeddings().weight[2, :3] = math.inf
        # A row that no token has does not count.
        model.get_output_embeddings().weight[NUM_ROWS - 1, 0] = math.nan
    points = measured(subject(model))
    values = by_name(points)
    assert values["num_nonfinite", "output"] == 3
    others = [p for p in points if p.layer == "output" and p.quantity != "num_nonfinite"]
    assert len(others) >= 6
    assert all(math.isnan(point.value) for point in others)
    assert {point.reason for point in others} == {"3 values are not finite"}


def test_a_readout_that_is_not_finite_leaves_pga_unknown() -> None:
    model = tiny_model()
    with torch.no_grad():
        model.get_output_embeddings().weight[2, 0] = math.inf
    values = by_name(pga_points(subject(model)))
    assert all(math.isnan(value) for (name, _), value in values.items() if name == "z")
    assert {value for (name, _), value in values.items() if name == "num_nonfinite"} == {1}


def test_a_folded_gain_that_is_not_finite_leaves_pga_unknown() -> None:
    model = tiny_model()
    with torch.no_grad():
        model.gpt_neox.final_layer_norm.weight[3] = math.nan
    values = by_name(pga_points(subject(model), num_null=5, fold_norm=True))
    assert math.isnan(values["z", "layer_01"])
    assert values["num_nonfinite", "layer_01"] == NUM_TOKENS
    plain = by_name(pga_points(subject(model), num_null=5))
    assert math.isfinite(plain["z", "layer_01"])
    assert plain["num_nonfinite", "layer_01"] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_close(dtype: torch.dtype) -> None:
    exact = by_name(spectrum_points(subject(tiny_model()), fit_range=(1, 9)))
    half = by_name(spectrum_points(subject(tiny_model().to(dtype)), fit_range=(1, 9)))
    rounding = 0.02 if dtype == torch.float16 else 0.1
    for layer in LAYERS:
        assert half["rankme", layer] == pytest.approx(exact["rankme", layer], rel=rounding)
    epsilon = by_name(deviation_points(subject(tiny_model().to(dtype))))["value", "input"]
    wanted = embedding_deviation(tiny_model().to(dtype).get_input_embeddings().weight[:NUM_TOKENS])
    assert epsilon == wanted.epsilon


def test_each_text_is_read_once_whatever_is_measured() -> None:
    model = tiny_model()
    passes = []
    model.get_input_embeddings().register_forward_hook(lambda *_: passes.append(1))
    seen = subject(model, encoding={"batch_size": 4})
    pga_points(seen)
    spectrum_points(seen)
    # Two more let a text be read alone and in a batch, for each pair of lengths.
    assert len(passes) == 2 + math.ceil(len(TEXTS) / 4)
    probe_points(seen.select(["layer_02"]))
    assert len(passes) == 4 + math.ceil(len(TEXTS) / 4) + math.ceil(2 * len(TEXTS) / 4)


def test_a_selection_sees_its_layers_alone() -> None:
    points = spectrum_points(subject().select(["final", "layer_01"]), fit_range=(1, 9))
    assert {point.layer for point in points} == {"layer_01", "final"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: subject(layers=["layer_07"]), "layers: expected names from layer_00 to final"),
        (lambda: subject().select(["last"]), "layers: expected names from layer_00 to final"),
        (lambda: subject(rows="some"), "rows: expected 'tokenizer' or 'all', got 'some'"),
        (
            lambda: pga_points(Subject(tiny_model(), tokenizer())),
            "texts: expected texts to measure on, got none",
        ),
        (
            lambda: pga_points(Subject(tiny_model(), None, TEXTS)),
            "tokenizer: expected one to read texts with, got none",
        ),
        (
            lambda: probe_points(Subject(tiny_model(), tokenizer(), TEXTS)),
            "texts: expected labelled texts, got texts alone",
        ),
        (lambda: pga_points(subject(), k=DIM + 1), "k: expected at most"),
        (lambda: spectrum_points(subject(), fit_range=(5, 5)), "fit_range: expected"),
        (lambda: two_nn_points(subject(), discarded_share=1), "discarded_share: expected a share"),
    ],
    ids=[
        "layer",
        "selection",
        "rows",
        "no texts",
        "no tokenizer",
        "no labels",
        "k",
        "range",
        "share",
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_without_a_tokenizer_all_rows_count() -> None:
    seen = Subject(tiny_model(), None)
    assert seen.rows == "all"
    assert {len(matrix) for matrix in seen.matrices.values()} == {NUM_ROWS}


@pytest.mark.parametrize("declared", MEASURES.values(), ids=lambda declared: declared.name)
def test_what_is_declared_is_what_is_measured(declared: Measure[Any]) -> None:
    points = declared(subject())
    places = {"layer": LAYERS, "matrix": ["input", "output"], "": [""]}
    if declared.name == "unembedding":
        places["matrix"] = ["output"]
    wanted = {
        (quantity.metric, quantity.name, place)
        for quantity in declared.quantities
        for place in places[quantity.place]
    }
    found = {(p.metric, p.quantity, p.layer) for p in points if p.quantity != "num_nonfinite"}
    assert found == wanted
    assert {p.layer for p in points if p.quantity == "num_nonfinite"} == {
        place for _, _, place in wanted if place
    }


@pytest.mark.parametrize("declared", MEASURES.values(), ids=lambda declared: declared.name)
def test_each_option_and_quantity_is_documented(declared: Measure[Any]) -> None:
    documented = inspect.getdoc(declared.options) or ""
    assert all(
        re.search(rf"^    {name}: \w", documented, re.MULTILINE) for name in declared.option_names
    )
    for quantity in declared.quantities:
        assert quantity.label
        assert quantity.meaning
        assert "\n" not in quantity.meaning


def test_number_of_layers() -> None:
    assert len(LAYERS) == NUM_BLOCKS + 2
    assert subject().layers == LAYERS
