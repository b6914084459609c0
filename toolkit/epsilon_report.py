"""What ``python -m toolkit epsilon`` measures, prints, writes and draws."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Literal, NamedTuple

from toolkit.atomic import write_atomically
from toolkit.console.text_table import aligned
from toolkit.epsilon_twins import SharedMatrix
from toolkit.figures.deviation import deviation_against_dim
from toolkit.functional import (
    EmbeddingDeviation,
    deviation_stderr,
    embedding_deviation,
    log10_model_capacity,
)
from toolkit.lm.weights.embedding import EmbeddingTensor, Matrix, read_embedding
from toolkit.reference import model_capacities
from toolkit.runs.points import num_nonfinite
from toolkit.runs.provenance import matrix_hash

# The paper gives capacities below it only.
_PUBLISHED_BELOW = 0.1


class MeasuredModel(NamedTuple):
    """Embedding deviation of one matrix of a model, and what it was measured on.

    Attributes:
        model: What was read, with its revision.
        matrix: ``input`` or ``output``.
        epsilon: The deviation, mean + 2 std.
        mean: Mean cosine similarity of different rows.
        std: Standard deviation over the pairs.
        epsilon_stderr: Standard error of epsilon, None if not asked for.
        model_class: 1 above 0.2, 2 below 0.1, None between.
        log10_capacity: Decimal logarithm of the full law's capacity, None for class 1, where it
            means nothing.
        tied: Whether the input and output matrix are one, None if unknown.
        dim: Dimension d.
        rows_used: Rows measured, zero rows included.
        rows_stored: Rows of the stored matrix.
        zero_rows: Zero rows among those measured, left out.
        tokenizer_rows: Rows the tokenizer reaches, None without a tokenizer.
        epsilon_stored: Epsilon over all stored rows, None if rows that were not measured hold
            values that are not finite.
        dtype: What the matrix is stored as.
        tensor: Its name.
        file: The file that holds it.
        commit: Commit of a published model, else empty.
        bytes_read: Bytes of weight files that were read.
        matrix_hash: Fingerprint of the stored matrix (`toolkit.runs.provenance.matrix_hash`).
    """

    model: str
    matrix: Matrix
    epsilon: float
    mean: float
    std: float
    epsilon_stderr: float | None
    model_class: int | None
    log10_capacity: float | None
    tied: bool | None
    dim: int
    rows_used: int
    rows_stored: int
    zero_rows: int
    tokenizer_rows: int | None
    epsilon_stored: float | None
    dtype: str
    tensor: str
    file: str
    commit: str
    bytes_read: int
    matrix_hash: str


def measure(
    source: str | Path,
    matrix: Matrix = "input",
    *,
    rows: Literal["tokenizer", "all"] = "tokenizer",
    stderr: bool = False,
    tensor_name: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
) -> MeasuredModel:
    """Measure one embedding matrix of a model.

    Args:
        source: The model; see `toolkit.lm.weights.embedding.read_embedding` for it and the other
            options.
        matrix: ``input`` or ``output``.
        rows: ``tokenizer`` leaves out rows beyond the tokenizer's largest id, if there is a
            tokenizer; ``all`` takes every stored row.
        stderr: Whether to estimate the standard error of epsilon as well.
        tensor_name: Name of the matrix in the file.
        revision: Branch, tag or commit on the Hub.
        allow_pickle: Whether to open pickled files.

    Raises:
        ValueError: If the matrix cannot be read or holds values that are not finite.
    """
    found = read_embedding(
        source, matrix, tensor_name=tensor_name, revision=revision, allow_pickle=allow_pickle
    )
    stored, dim = found.tensor.shape
    reached = stored if found.vocab_size is None else min(found.vocab_size, stored)
    used = stored if rows == "all" else reached
    deviation = _deviation(found, used)
    epsilon, capacity = deviation.epsilon, log10_model_capacity(deviation, dim)
    return MeasuredModel(
        model=found.source,
        matrix=matrix,
        epsilon=epsilon,
        mean=deviation.mean,
        std=deviation.std,
        epsilon_stderr=deviation_stderr(found.tensor[:used]) if stderr else None,
        model_class=deviation.model_class,
        log10_capacity=None if isnan(capacity) else capacity,
        tied=found.tied,
        dim=dim,
        rows_used=used,
        rows_stored=stored,
        zero_rows=deviation.num_dropped,
        tokenizer_rows=None if found.vocab_size is None else reached,
        epsilon_stored=epsilon if used == stored else _epsilon_of_all(found, used),
        dtype=found.dtype,
        tensor=found.name,
        file=found.file,
        commit=found.commit,
        bytes_read=found.bytes_read,
        matrix_hash=matrix_hash(found.tensor),
    )


def _deviation(found: EmbeddingTensor, num_rows: int) -> EmbeddingDeviation:
    try:
        return embedding_deviation(found.tensor[:num_rows])
    except ValueError as error:
        place = (
            found.source if found.source.endswith(found.file) else f"{found.source}/{found.file}"
        )
        reason = str(error).removeprefix("embeddings: ")
        raise ValueError(f"source: {found.name} in {place}: {reason}") from error


def _epsilon_of_all(found: EmbeddingTensor, used: int) -> float | None:
    """Epsilon over all stored rows, None if those beyond the tokenizer are no numbers."""
    return (
        None if num_nonfinite(found.tensor[used:]) else _deviation(found, len(found.tensor)).epsilon
    )


def as_text(
    models: Sequence[MeasuredModel],
    failures: Mapping[str, str],
    shared: Sequence[SharedMatrix] = (),
) -> str:
    """Return a table for people, and what it needs to be read rightly; failures are said apart."""
    del failures
    stderr = models[0].epsilon_stderr is not None
    header = ("model", "mu", "sigma", "epsilon", *(("stderr",) * stderr), "class")
    header = (*header, "log10 capacity", "tied", "V", "d", "dtype", "source")
    notes = [note for model in models for note in _notes(model)]
    notes += [
        f"{' and '.join(one.models)} have the same {one.matrix} matrix: they are no different "
        "checkpoints of it"
        for one in shared
    ]
    if any(map(_is_extrapolated, models)):
        notes.append("* arXiv 2606.02765 gives capacities below epsilon 0.1 only")
    return aligned([header, *map(_cells, models)]) + "".join(f"{note}\n" for note in notes)


def as_json(
    models: Sequence[MeasuredModel],
    failures: Mapping[str, str],
    shared: Sequence[SharedMatrix] = (),
) -> str:
    """Return the same as a JSON object, with what failed and why."""
    content = {
        "models": [model._asdict() for model in models],
        "shared": [one._asdict() for one in shared],
        "failed": [{"model": name, "error": error} for name, error in failures.items()],
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_csv(models: Sequence[MeasuredModel], path: Path) -> None:
    """Write one line a model, in one step; what is unknown stays empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(MeasuredModel._fields)
    writer.writerows(models)
    write_atomically(path, text.getvalue().encode())


def draw(models: Sequence[MeasuredModel], path: Path) -> None:
    """Draw epsilon against d beside the published models, in one step."""
    figure = deviation_against_dim(
        [(model.model.rsplit("/", 1)[-1], model.dim, model.epsilon) for model in models],
        published=[(model.dim, model.epsilon) for model in model_capacities()],
    )
    data = io.BytesIO()
    figure.savefig(data, format=path.suffix.removeprefix("."))
    write_atomically(path, data.getvalue())


def _cells(model: MeasuredModel) -> tuple[str, ...]:
    capacity = "indeterminate"
    if model.log10_capacity is not None:
        capacity = f"{model.log10_capacity:.2f}" + "*" * _is_extrapolated(model)
    rows = f"{model.rows_used}/{model.rows_stored}"
    return (
        model.model,
        f"{model.mean:.5f}",
        f"{model.std:.5f}",
        f"{model.epsilon:.5f}",
        *(() if model.epsilon_stderr is None else (f"{model.epsilon_stderr:.1g}",)),
        str(model.model_class or "-"),
        capacity,
        {True: "yes", False: "no", None: "?"}[model.tied],
        str(model.rows_stored) if model.rows_used == model.rows_stored else rows,
        str(model.dim),
        model.dtype,
        f"{model.tensor} in {model.file}" + f" at {model.commit[:8]}" * bool(model.commit),
    )


def _notes(model: MeasuredModel) -> list[str]:
    notes = []
    if model.rows_used != model.rows_stored:
        stored = "unknown: some of the others' values are not finite"
        if model.epsilon_stored is not None:
            stored = f"{model.epsilon_stored:.5f}"
        notes.append(
            f"{model.model}: the tokenizer reaches {model.rows_used} of {model.rows_stored} rows; "
            f"epsilon over all of them is {stored}"
        )
    if model.tokenizer_rows is None:
        notes.append(f"{model.model}: no tokenizer found, every stored row is measured")
    if model.zero_rows:
        notes.append(f"{model.model}: {model.zero_rows} zero rows are left out")
    return notes


def _is_extrapolated(model: MeasuredModel) -> bool:
    return model.log10_capacity is not None and model.epsilon >= _PUBLISHED_BELOW
