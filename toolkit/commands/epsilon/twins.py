"""Models that share an embedding matrix, and so are not different checkpoints of it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from toolkit.lm.weights.embedding import Matrix, read_embedding
from toolkit.runs.provenance import matrix_hash

# Rows of the other matrix that are compared first: different matrices differ here already.
_SAMPLED_ROWS = 64

_Models = tuple[str, ...]


class SharedMatrix(NamedTuple):
    """Models with an identical matrix.

    Attributes:
        matrix: ``input``, ``output``, or ``input and output``.
        models: Names of the models, in the order of the command line.
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
    """Return the models that share a matrix; models that share both have one entry.

    The first rows of the other matrix are read, and the rest only if these are equal.

    Args:
        hashes: Each model, as for `toolkit.lm.weights.embedding.read_embedding`, with the
            fingerprint of its measured matrix.
        matrix: Name of the measured matrix.
        compare_other: Whether to compare the other matrix, too.
        allow_pickle: Whether to open pickled files.
    """
    other: Matrix = "output" if matrix == "input" else "input"

    def fingerprint(model: str, num_rows: int | None) -> str | None:
        try:
            found = read_embedding(model, other, allow_pickle=allow_pickle, num_rows=num_rows)
        except ValueError:
            # A model without the other matrix does not share it.
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
    """Return the groups of several models with equal digests."""
    groups: dict[str, list[str]] = {}
    for model, digest in zip(models, digests, strict=True):
        if digest is not None:
            groups.setdefault(digest, []).append(model)
    return [tuple(group) for group in groups.values() if len(group) > 1]
