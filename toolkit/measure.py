"""Measure a loaded language model, without a Trainer."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from toolkit.data.labelled_texts import LabelledTexts
from toolkit.functional._checks import integer_at_least, names, shown
from toolkit.measures import MEASURES, Subject
from toolkit.measures.declaration import Need
from toolkit.measures.subject import Rows
from toolkit.runs.identity import WeightsIdentity
from toolkit.runs.points import measurement_rows
from toolkit.runs.provenance import dtype_names, versions, weights_hash
from toolkit.runs.table import MeasurementRow
from toolkit.threads import suited_to

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


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
        metrics: Names among `toolkit.measures.MEASURES` (``pga``, ``epsilon``, ...), or for each
            its options; by default all that the arguments allow.
        layers: Names of the layers, by default all.
        rows: Rows of the matrices to measure: only the tokenizer's tokens, or all.
        pooling: The ``last`` token's vector, or the ``mean`` over the tokens.
        max_length: Largest number of tokens of a text; the rest is cut off.
        skip_first: Leave out each text's first token.
        batch_size: Texts in one forward pass; changes no result.
        paths: Module paths of an unknown family (`toolkit.lm.architecture.families`).
        step: Optimiser updates behind the weights.

    Raises:
        ValueError: If a metric is unknown or its input is missing, or an option is invalid.
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
        **WeightsIdentity(
            str(model.config.name_or_path or type(model).__name__), step=step
        ).columns(),
        "dtype": dtype_names(tensors.values()),
        "weights_hash": weights_hash(tensors.items()),
        "versions": versions("transformers"),
    }
    measured = []
    for metric, options in chosen.items():
        declared = MEASURES[metric]
        declared.check_subject(subject, options)
        with suited_to(model):
            points = declared.points(subject, options)
        used = declared.conditions(subject, options)
        named = [point._replace(metric=point.metric or metric) for point in points]
        conditions = {**subject.conditions(), **encoding, **used}
        measured += measurement_rows(named, {**common, "conditions": conditions})
    return measured


def _chosen(
    metrics: Mapping[str, Mapping[str, Any]] | Sequence[str] | None,
    tokenizer: "PreTrainedTokenizerBase | None",
    texts: LabelledTexts | Sequence[str] | None,
) -> dict[str, Any]:
    """Return the options, checked, of each metric to measure."""
    if metrics is None:
        available = _available(tokenizer, texts)
        metrics = [name for name, declared in MEASURES.items() if declared.needs <= available]
    wanted = (
        metrics if isinstance(metrics, Mapping) else {key: {} for key in names("metrics", metrics)}
    )
    return {name: _checked_options(name, options) for name, options in wanted.items()}


def _available(
    tokenizer: "PreTrainedTokenizerBase | None", texts: LabelledTexts | Sequence[str] | None
) -> set[Need]:
    """Return the needs of measures that these arguments satisfy."""
    if tokenizer is None or texts is None:
        return {"matrices"}
    labels: set[Need] = {"labels"} if isinstance(texts, LabelledTexts) else set()
    return {"matrices", "texts", *labels}


def _checked_options(metric: object, options: object) -> Any:  # noqa: ANN401
    """Return the options of a metric, or raise a ValueError that names the fault."""
    if not isinstance(metric, str) or metric not in MEASURES:
        raise ValueError(
            f"metrics: expected names among {', '.join(MEASURES)}, got {shown(metric)}"
        )
    known = sorted(MEASURES[metric].option_names)
    if not isinstance(options, Mapping) or not set(options) <= set(known):
        raise ValueError(
            f"metrics: expected options of {metric} among {', '.join(known) or 'none'}, "
            f"got {shown(options)}"
        )
    return MEASURES[metric].options(**options)
