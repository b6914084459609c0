"""Predictions of arXiv 2505.10465 for the toy model's loss in weak and strong superposition."""

import torch
from jaxtyping import Float64
from torch import Tensor

from toolkit.functional._checks import (
    as_many,
    finite,
    finite_float,
    integers_at_least,
    number_at_least,
)

_MEAN_SQUARED_VALUE = 4 / 3  # of U(0, 2)


def weak_superposition_loss(probabilities: Tensor, widths: list[int]) -> Tensor:
    """Loss of a model that represents its m most frequent features and no other.

    Each absent feature costs its mean square: L(m) = 4/3 sum over i > m of p_i, for features
    sorted by falling frequency and values from U(0, 2), exact at finite n (arXiv 2505.10465,
    weak superposition).

    Args:
        probabilities: Chance p_i that a feature is active, shape (n,), in any order.
        widths: Numbers m of represented features; 0 stands for doing nothing.

    Returns:
        Loss summed over features, one for each width, float64.

    Raises:
        TypeError: If ``probabilities`` is no tensor.
        ValueError: If it is no vector of numbers in [0, 1], or a width is no integer of at
            least 0.

    Example:
        >>> weak_superposition_loss(torch.tensor([0.25, 0.75]), [0, 1, 2])
        tensor([1.3333, 0.3333, 0.0000], dtype=torch.float64)
    """
    chances = finite_float("probabilities", probabilities, dims=(1,)).double()
    if bool((chances < 0).any() or (chances > 1).any()):
        raise ValueError(
            "probabilities: expected numbers between 0 and 1, "
            f"got {float(chances.min()):g} to {float(chances.max()):g}"
        )
    return _MEAN_SQUARED_VALUE * _tail_sums(chances, integers_at_least("widths", widths, 0))


def strong_superposition_exponent(frequency_exponent: float | None) -> float:
    """Exponent alpha_m of L ~ m^-alpha_m when all features are represented.

    max(1, 2 (alpha - 1)) for frequencies p_i ~ i^-alpha: 1 for even frequencies, larger for skewed
    (arXiv 2505.10465, strong superposition).

    Args:
        frequency_exponent: alpha; None for frequencies that are no power law, which count as
            even.

    Raises:
        ValueError: If alpha is negative.
    """
    if frequency_exponent is None:
        return 1.0
    number_at_least("frequency_exponent", frequency_exponent, 0)
    return max(1.0, 2 * (frequency_exponent - 1))


def slope_guide(x: Tensor, y: Tensor, exponent: float) -> Tensor:
    """Values at ``x`` of the line C x^-exponent through the geometric mean of the points.

    A theory that predicts a slope and no height is drawn this way beside measured points.

    Args:
        x: Positive vector, shape (n,).
        y: Positive vector, shape (n,).
        exponent: Minus the slope in log-log coordinates.

    Returns:
        Shape (n,), float64.

    Raises:
        TypeError: If ``x`` or ``y`` is no tensor.
        ValueError: If they are no vectors of the same length of positive finite numbers, or a
            value of the line is beyond float64.
    """
    finite("exponent", exponent)
    log_x, log_y = _log_positive("x", x), _log_positive("y", y)
    as_many("y", log_y, "x", log_x)
    line = (log_y.mean() - exponent * (log_x - log_x.mean())).exp()
    if not bool(torch.isfinite(line).all()):
        raise ValueError(
            f"exponent: expected a line whose values float64 can hold, got {exponent}; draw a "
            "flatter one"
        )
    return line


def _tail_sums(chances: Float64[Tensor, " n"], widths: list[int]) -> Float64[Tensor, " widths"]:
    """Sums of all but the largest m numbers; smallest first, so that small tails stay exact."""
    sums = torch.cat([chances.new_zeros(1), chances.sort().values.cumsum(0)])
    return sums[[max(len(chances) - width, 0) for width in widths]]


def _log_positive(name: str, values: Tensor) -> Float64[Tensor, " n"]:
    numbers = finite_float(name, values, dims=(1,)).double()
    if bool((numbers <= 0).any()):
        raise ValueError(f"{name}: expected positive numbers, got {float(numbers.min()):g}")
    return numbers.log()
