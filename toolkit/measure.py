"""Measure a loaded language model, without a Trainer."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

from toolkit.data.labelled_texts import LabelledTexts
from toolkit.functional._checks import integer_at_least, names, shown
from toolkit.measures import (
    Subject,
    deviation_points,
    pga_points,
    probe_points,
    spectrum_points,
    unembedding_points,
    used_k,
)
from toolkit.measures.subject import Rows
from toolkit.runs.points import Point, measurement_rows
from toolkit.runs.provenance import dtype_names, versions, weights_hash
from toolkit.runs.table import MeasurementRow
from toolkit.threads import suited_to

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MEASURES: dict[str, Callable[..., list[Point]]] = {
    "pga": pga_points,
    "epsilon": deviation_points,
    "probe": probe_points,
    "spectrum": spectrum_points,
    "unembedding": unembedding_points,
}


def measure(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    texts: LabelledTexts | Sequence[str] | None = None,
    *,
    metrics: Mapping[str, Mapping[str, Any]] | Sequence[str] | None = None,
    layers: Sequence[str] | None = None,
    rows: Rows = "tokenizer",
    pooling: Literal["last", "mean"] = "last",
    max_length: int = 128,
    skip_first: bool = False,
    batch_size: int = 32,
    paths: Mapping[str, str] | None = None,
    step: int = 0,
) -> list[MeasurementRow]:
    """Measure a loaded language model on texts, each text in one forward pass.

    The callbacks measure with the same functions. ``pandas.DataFrame(measure(...))`` is a table
    with the columns of ``measurements.csv``.

    Args:
        model: A causal language model.
        tokenizer: Its tokenizer; without one only the embedding matrices can be measured.
        texts: Labelled texts, or texts alone, for which there is no probe.
        metrics: Which of ``pga``, ``epsilon``, ``probe``, ``spectrum`` and ``unembedding``, or
            for each its options (those of `toolkit.measures`); by default all that the
            arguments allow.
        layers: Names of the layers, by default all.
        rows: Which rows of the matrices count: those that the tokenizer really has, or all.
        pooling: The ``last`` token's vector, or the ``mean`` over the tokens.
        max_length: Tokens of a text that count; the rest is cut off.
        skip_first: Leave out each text's first token.
        batch_size: Texts in one forward pass; changes no result.
        paths: Module paths of an unknown family (`toolkit.lm.architecture.families`).
        step: Optimiser updates behind the weights.

    Raises:
        ValueError: If a metric is unknown or needs what is not there, or an option is refused.
    """
    integer_at_least("step", step, 0)
    encoding = {"pooling": pooling, "max_length": max_length, "skip_first": skip_first}
    subject = Subject(
        model,
        tokenizer,
        texts,
        layers=layers,
        rows=rows,
        paths=paths,
        encoding={**encoding, "batch_size": batch_size},
    )
    chosen = _chosen(metrics, tokenizer, texts)
    tensors = dict(model.named_parameters())
    common = {
        "run": "",
        "model": str(model.config.name_or_path or type(model).__name__),
        "revision": "",
        "commit": "",
        "step": step,
        "dtype": dtype_names(tensors.values()),
        "weights_hash": weights_hash(tensors.items()),
        "versions": versions("transformers"),
    }
    measured = []
    for metric, options in chosen.items():
        with suited_to(model):
            points = MEASURES[metric](subject, **options)
        conditions = {**subject.conditions(), **encoding, **_used(metric, options, subject)}
        named = [point._replace(metric=point.metric or metric) for point in points]
        measured += measurement_rows(named, {**common, "conditions": conditions})
    return measured


def _used(metric: str, options: Mapping[str, Any], subject: Subject) -> dict[str, Any]:
    """Return all options of a metric, those left out as they were used."""
    parameters = signature(MEASURES[metric]).parameters.values()
    used = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY} | dict(options)
    if metric == "pga":
        used["k"] = used_k(subject, used["k"])
    return used


def _chosen(
    metrics: Mapping[str, Mapping[str, Any]] | Sequence[str] | None,
    tokenizer: "PreTrainedTokenizerBase | None",
    texts: LabelledTexts | Sequence[str] | None,
) -> dict[str, Mapping[str, Any]]:
    """Return the options of each metric that is wanted."""
    if metrics is None:
        without_texts = {"epsilon", "unembedding"}
        without_labels = {*without_texts, "pga", "spectrum"}
        possible = set(MEASURES) if isinstance(texts, LabelledTexts) else without_labels
        possible = without_texts if tokenizer is None or texts is None else possible
        metrics = [name for name in MEASURES if name in possible]
    wanted = (
        metrics if isinstance(metrics, Mapping) else {key: {} for key in names("metrics", metrics)}
    )
    for name, options in wanted.items():
        if not isinstance(name, str) or name not in MEASURES:
            raise ValueError(
                f"metrics: expected names among {', '.join(MEASURES)}, got {shown(name)}"
            )
        _check_options(name, options)
    return dict(wanted)


def _check_options(metric: str, options: object) -> None:
    """Raise a ValueError that begins with metrics unless the metric has these options."""
    parameters = signature(MEASURES[metric]).parameters.values()
    known = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    if not isinstance(options, Mapping) or not set(options) <= known:
        raise ValueError(
            f"metrics: expected options of {metric} among {', '.join(sorted(known)) or 'none'}, "
            f"got {shown(options)}"
        )
