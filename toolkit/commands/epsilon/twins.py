"""Which models share an embedding matrix, so that they are no different checkpoints of it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from toolkit.lm.weights.embedding import Matrix, read_embedding
from toolkit.runs.provenance import matrix_hash

# Of the matrix that is not measured: two that differ as a whole do so here, but for a coincidence.
_SAMPLED_ROWS = 64

_Models = tuple[str, ...]


class SharedMatrix(NamedTuple):
    """Models that hold the very same matrix.

    Attributes:
        matrix: ``input``, ``output``, or ``input and output``.
        models: What was read, in the order of the command line.
    """

    matrix: str
    models: _Models


def shared_matrices(
    hashes: Sequence[tuple[str, str]],
    matrix: Matrix,
    *,
    compare_other: bool = True,
    allow_pickle: bool = False,
) -> list[SharedMatrix]:
    """Return the models that share a matrix; those that share both stand in one entry.

    Of the other matrix the first rows are read, and more only where these are equal.

    Args:
        hashes: Each model, as `toolkit.lm.weights.embedding.read_embedding` knows it, and the
            fingerprint of its matrix that was measured.
        matrix: Which matrix that is.
        compare_other: Whether to compare the other matrix, too.
        allow_pickle: Whether to open pickled files.
    """
    other: Matrix = "output" if matrix == "input" else "input"

    def fingerprint(model: str, num_rows: int | None) -> str | None:
        try:
            found = read_embedding(model, other, allow_pickle=allow_pickle, num_rows=num_rows)
        except ValueError:
            # A model without the other matrix shares none; what was asked for is not at stake.
            return None
        return matrix_hash(found.tensor)

    measured = _equal([model for model, _ in hashes], [digest for _, digest in hashes])
    others = _same_others([model for model, _ in hashes], fingerprint) if compare_other else []
    both = [models for models in measured if models in others]
    found = [SharedMatrix("input and output", models) for models in both]
    for name, groups in ((matrix, measured), (other, others)):
        found += [SharedMatrix(name, models) for models in groups if models not in both]
    return found


def _same_others(
    models: Sequence[str], fingerprint: Callable[[str, int | None], str | None]
) -> list[_Models]:
    if len(models) < 2:
        return []
    similar = _equal(models, [fingerprint(model, _SAMPLED_ROWS) for model in models])
    return [
        equal
        for group in similar
        for equal in _equal(group, [fingerprint(model, None) for model in group])
    ]


def _equal(models: Sequence[str], digests: Sequence[str | None]) -> list[_Models]:
    """Return the models with equal digests together, where there are several."""
    groups: dict[str, list[str]] = {}
    for model, digest in zip(models, digests, strict=True):
        if digest is not None:
            groups.setdefault(digest, []).append(model)
    return [tuple(group) for group in groups.values() if len(group) > 1]
