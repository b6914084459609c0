"""The embedding deviation of a model, measured from its files."""

from math import isnan
from pathlib import Path
from typing import Literal, NamedTuple

from toolkit.functional import (
    EmbeddingDeviationResult,
    deviation_stderr,
    embedding_deviation,
    log10_model_capacity,
)
from toolkit.lm.weights.embedding import EmbeddingTensor, Matrix, read_embedding
from toolkit.runs.points import num_nonfinite
from toolkit.runs.provenance import matrix_hash


class MeasuredModel(NamedTuple):
    """Embedding deviation of a model's matrix, with the origin of the matrix.

    Attributes:
        model: Name of the model, with its revision.
        matrix: ``input`` or ``output``.
        epsilon: The deviation, mean + 2 std.
        mean: Mean cosine similarity of different rows.
        std: Standard deviation over the pairs.
        epsilon_stderr: Standard error of epsilon, None if it was not computed.
        model_class: 1 above 0.2, 2 below 0.1, None between.
        log10_capacity: Decimal logarithm of the full law's capacity, None for class 1, where it
            means nothing.
        tied: Whether input and output matrix are the same, None if unknown.
        dim: Dimension d.
        rows_used: Rows measured, zero rows included.
        rows_stored: Rows of the stored matrix.
        zero_rows: Measured rows that are zero and left out.
        tokenizer_rows: Rows the tokenizer reaches, None without a tokenizer.
        epsilon_stored: Epsilon over all stored rows, None if rows that were not measured hold
            values that are not finite.
        dtype: Type of the stored matrix.
        tensor: Name of the matrix in the file.
        file: The file of the matrix.
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


def measure_model(
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


def _deviation(found: EmbeddingTensor, num_rows: int) -> EmbeddingDeviationResult:
    try:
        return embedding_deviation(found.tensor[:num_rows])
    except ValueError as error:
        place = (
            found.source if found.source.endswith(found.file) else f"{found.source}/{found.file}"
        )
        reason = str(error).removeprefix("embeddings: ")
        raise ValueError(f"source: {found.name} in {place}: {reason}") from error


def _epsilon_of_all(found: EmbeddingTensor, used: int) -> float | None:
    """Return epsilon over all stored rows, None if rows beyond the tokenizer are not finite."""
    return (
        None if num_nonfinite(found.tensor[used:]) else _deviation(found, len(found.tensor)).epsilon
    )
