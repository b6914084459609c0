"""A question to the capacity laws."""

from typing import NamedTuple


class Question(NamedTuple):
    """A question to each law.

    Attributes:
        dim: Dimension d.
        epsilon: Deviation, 0 for orthogonal rows; None if the deviation is asked for.
        num_vectors: Number of directions k; None if the capacity is asked for.
        rounding: Largest rounding error of epsilon.
        stderr: Standard error of a measured epsilon.
        model: Name of the published model, empty without a model.
        published: Published capacity of that model, None if it is called indeterminate.
    """

    dim: int
    epsilon: float | None = None
    num_vectors: float | None = None
    rounding: float = 0.0
    stderr: float = 0.0
    model: str = ""
    published: float | None = None
