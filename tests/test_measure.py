"""Measuring a loaded model without a Trainer."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from tests.lm.tiny_models import DIM, TEXTS, tiny_tokenizer
from tests.measures.test_measures import LABELLED, tiny_model
from toolkit.functional import embedding_deviation
from toolkit.measure import measure
from toolkit.runs.provenance import weights_hash
from toolkit.runs.table import MeasurementRow


def test_rows_make_a_table() -> None:
    model = tiny_model()
    rows = measure(model, tiny_tokenizer(), LABELLED, step=7, batch_size=3)
    table = pd.DataFrame(rows)
    assert list(table.columns) == list(MeasurementRow._fields)
    assert set(table["metric"]) == {
        "pga",
        "epsilon",
        "capacity",
        "probe",
        "spectrum",
        "two_nn",
        "unembedding",
    }
    assert set(table["step"]) == {7}
    assert set(table["model"]) == {"GPTNeoXForCausalLM"}
    assert set(table["weights_hash"]) == {weights_hash(model.named_parameters())}
    assert set(table["dtype"]) == {"float32"}
    found = table.query("metric == 'epsilon' and quantity == 'value' and layer == 'input'")
    wanted = embedding_deviation(model.get_input_embeddings().weight[: len(tiny_tokenizer())])
    assert found["value"].item() == wanted.epsilon
    assert found["conditions"].item() == {
        "rows": "tokenizer",
        "tokenizer": type(tiny_tokenizer()).__name__,
        "texts": {"num_train": 20, "num_test": 10, "num_removed": 0, "drawn_from": "by hand"},
        "pooling": "last",
        "max_length": 128,
        "skip_first": False,
        "num_sigma": 2.0,
    }


@pytest.mark.parametrize(
    ("arguments", "metrics"),
    [
        ((), {"epsilon", "capacity", "unembedding"}),
        (
            (tiny_tokenizer(), TEXTS),
            {"pga", "epsilon", "capacity", "spectrum", "two_nn", "unembedding"},
        ),
    ],
    ids=["the matrices alone", "texts alone"],
)
def test_what_can_be_measured_is(arguments: tuple[object, ...], metrics: set[str]) -> None:
    rows = measure(tiny_model(), *arguments)  # type: ignore[arg-type]
    assert {row.metric for row in rows} == metrics


def test_options_are_conditions() -> None:
    rows = measure(tiny_model(), tiny_tokenizer(), TEXTS, metrics={"pga": {"k": 2, "num_null": 4}})
    assert {row.metric for row in rows} == {"pga"}
    assert rows[0].conditions["k"] == 2
    assert rows[0].conditions["num_null"] == 4
    assert rows[0].conditions["texts"] == {"num_test": len(TEXTS)}


def test_options_left_out_are_conditions_as_they_were_used(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    used = {row.metric: row.conditions for row in measure(tiny_model(), tokenizer, LABELLED)}
    assert {name: used["pga"][name] for name in ("k", "num_null", "remove", "seed")} == {
        "k": DIM // 8,
        "num_null": 100,
        "remove": 1,
        "seed": 0,
    }
    assert used["probe"]["l2"] == 0.1
    assert used["spectrum"]["fit_range"] == (11, 100)
    tokenizer.save_pretrained(tmp_path)
    tokenizer.name_or_path = str(tmp_path)
    (row, *_) = measure(tiny_model(), tokenizer, metrics=["epsilon"])
    assert row.conditions["tokenizer"] == type(tokenizer).__name__
    tokenizer.name_or_path = "somebody/tokenizer"
    (row, *_) = measure(tiny_model(), tokenizer, metrics=["epsilon"])
    assert row.conditions["tokenizer"] == "somebody/tokenizer"
    alone = measure(tiny_model(), rows="tokenizer")[0].conditions
    assert alone["rows"] == "all"
    assert alone["tokenizer"] is None
    assert "texts" not in alone


def test_the_model_is_left_as_it_was() -> None:
    model = tiny_model()
    model.train()
    model.gpt_neox.layers[0].eval()
    flags = [part.training for part in model.modules()]
    state = torch.random.get_rng_state()
    before = weights_hash(model.named_parameters())
    measure(model, tiny_tokenizer(), LABELLED)
    assert [part.training for part in model.modules()] == flags
    assert torch.equal(torch.random.get_rng_state(), state)
    assert weights_hash(model.named_parameters()) == before


def test_a_layer_is_measured_the_same_whatever_else_is() -> None:
    metrics: dict[str, dict[str, object]] = {"pga": {"num_null": 5}, "probe": {}, "spectrum": {}}

    def values(
        metrics: dict[str, dict[str, object]], layers: list[str] | None
    ) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {metric: {} for metric in metrics}
        rows = measure(tiny_model(), tiny_tokenizer(), LABELLED, metrics=metrics, layers=layers)
        for row in (row for row in rows if row.layer == "layer_02"):
            found[row.metric][row.quantity] = row.value
        return found

    together = values(metrics, None)
    for metric, options in metrics.items():
        (alone,) = values({metric: options}, ["layer_02"]).values()
        assert len(alone) > 2
        assert alone == pytest.approx(together[metric], rel=0, abs=0, nan_ok=True)


def test_unknown_metric() -> None:
    with pytest.raises(ValueError, match="metrics: expected names among pga, epsilon"):
        measure(tiny_model(), metrics=["zeta"])
