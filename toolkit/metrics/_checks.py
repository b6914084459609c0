"""Input check of the metrics that accumulate rows."""

from torch import Tensor

from toolkit.functional._checks import dense_tensor, finite_real


def feature_rows(name: str, rows: Tensor, num_features: int) -> Tensor:
    """Return ``rows`` detached if they are a finite real matrix of the right width.

    No rows at all are right, too: a batch may have been filtered to nothing.
    """
    dense = dense_tensor(name, rows)
    if dense.shape == (0, num_features):
        return dense
    checked = finite_real(name, dense)
    if checked.shape[1] != num_features:
        raise ValueError(
            f"{name}: expected {num_features} columns (num_features), got {checked.shape[1]}"
        )
    return checked
