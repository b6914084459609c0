"""Input check of the metrics that accumulate rows."""

from torch import Tensor

from toolkit.functional._checks import finite_real


def feature_rows(name: str, rows: Tensor, num_features: int) -> Tensor:
    """Return ``rows`` detached if they are a finite real matrix of the right width.

    No rows at all are right, too: a batch may have been filtered to nothing.
    """
    if isinstance(rows, Tensor) and rows.shape == (0, num_features):
        return rows.detach()
    checked = finite_real(name, rows)
    if checked.shape[1] != num_features:
        raise ValueError(
            f"{name}: expected {num_features} columns (num_features), got {checked.shape[1]}"
        )
    return checked
