"""Representational capacity: how many almost orthogonal directions a space holds.

The laws of arXiv 2606.02765 relate k directions in d dimensions to the deviation epsilon:

- ``full``: epsilon^2 = C ln(k^a / d)^b / d^c
- ``ratio``: epsilon^2 = C ln(k / d) / d
- ``jl`` (Johnson-Lindenstrauss): epsilon^2 = C ln(k) / d
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from torch import Tensor

from toolkit.functional._checks import (
    enough,
    instance,
    integer_at_least,
    is_integer,
    number_at_least,
    one_length,
    one_of,
    positive,
    real_tensor,
    shown,
)
from toolkit.functional.deviation import EmbeddingDeviationResult

Law = Literal["full", "ratio", "jl"]
Array = NDArray[np.float64]

# Fits to optimised packings, for jl to random vectors; 8 is the constant proved for jl.
PUBLISHED = MappingProxyType(
    {
        "full": {"C": 0.45809143, "a": 1.0668005, "b": 1.44738666, "c": 0.97197234},
        "ratio": {"C": 1.293},
        "jl": {"C": 3.029},
    }
)


_LARGEST_EXPONENT = 700.0  # of e, in float64


class PackingLawResult(NamedTuple):
    """Least squares fit of a law.

    Attributes:
        constants: Constants by name, as `log10_capacity` and `deviation_for` take them.
        r2: Share of the variance of epsilon explained; NaN if all epsilons are equal, and for no
            more points than constants, which meet the law anyway.
        mape: Mean absolute error relative to epsilon, as a fraction.
        nrmse: Root mean squared error relative to the range of epsilon; NaN without a range.
        num_points: Number of points used.
        num_dropped: Number of points left out because a value was non-finite or not positive
            or because the law predicts 0 there (k <= d; for ``jl`` k <= 1).
    """

    constants: dict[str, float]
    r2: float
    mape: float
    nrmse: float
    num_points: int
    num_dropped: int


def log10_capacity(dim: int, epsilon: float, *, law: Law = "full", **constants: float) -> float:
    """Decimal logarithm of the number of directions that fit at deviation ``epsilon``.

    Args:
        dim: Dimension d.
        epsilon: Deviation, a bound on the cosines: above 0 and below 1.
        law: ``full``, ``ratio`` or ``jl``.
        **constants: Constants that replace the published ones, ``C`` and for ``full`` also
            ``a``, ``b`` and ``c``.

    Raises:
        ValueError: If ``dim`` is below 1, ``epsilon`` is not above 0 and below 1, ``law`` is
            unknown, a constant is unknown or not finite and positive, or the logarithm is beyond
            float64.

    Example:
        >>> round(10 ** log10_capacity(4096, 0.0645, law="jl", C=8.0), 1)
        8.4
    """
    log_dim = math.log(integer_at_least("dim", dim, 1, most=math.inf))
    check_epsilon(epsilon)
    values = _constants(law, constants)
    scaled = 2 * math.log(epsilon) + values.get("c", 1) * log_dim - math.log(values["C"])
    exponent = scaled / values.get("b", 1)
    if exponent > _LARGEST_EXPONENT:
        raise ValueError(
            f"dim: expected a capacity whose logarithm float64 can hold, got e^(e^{exponent:.4g}) "
            "times d; choose a smaller dim or epsilon"
        )
    log_ratio = math.exp(exponent)
    log_base = 0 if law == "jl" else log_dim
    return _held("dim", (log_ratio + log_base) / values.get("a", 1) / math.log(10))


def check_epsilon(epsilon: float) -> None:
    """Raise a ValueError unless ``epsilon`` is above 0 and below 1, as a bound on cosines is."""
    positive("epsilon", epsilon)
    if epsilon >= 1:
        raise ValueError(
            f"epsilon: expected a bound on |cos|, which is below 1, got {shown(epsilon)}"
        )


def log10_model_capacity(deviation: EmbeddingDeviationResult, dim: int) -> float:
    """Decimal logarithm of a model's capacity under the full law, where it means something.

    Args:
        deviation: Of the model's embedding matrix.
        dim: Dimension d of its rows.

    Returns:
        NaN for class 1, whose rows share a direction, and where epsilon is not above 0 and below 1.
    """
    instance("deviation", deviation, EmbeddingDeviationResult)
    integer_at_least("dim", dim, 1, most=math.inf)
    if deviation.model_class == 1 or not 0 < deviation.epsilon < 1:
        return math.nan
    return log10_capacity(dim, deviation.epsilon)


def deviation_for(
    dim: int, num_vectors: int | float, *, law: Law = "full", **constants: float
) -> float:
    """Deviation epsilon at which ``num_vectors`` directions fit, the inverse of the capacity.

    Args:
        dim: Dimension d.
        num_vectors: Number of directions k, at least 1. For k <= d the deviation is 0, except
            under ``jl``, which does not account for orthogonal bases. A result of 1 or more says
            that the law does not reach so many: no cosine is larger.
        law: ``full``, ``ratio`` or ``jl``.
        **constants: Constants that replace the published ones.

    Raises:
        ValueError: If ``dim`` or ``num_vectors`` is below 1, ``law`` is unknown, a constant is
            unknown or not finite and positive, or the deviation is beyond float64.

    Example:
        >>> round(deviation_for(4096, 3.99e7), 4)
        0.0645
    """
    log_dim = math.log(integer_at_least("dim", dim, 1, most=math.inf))
    # Whole numbers may be too large for a float.
    check = integer_at_least if is_integer(num_vectors) else number_at_least
    check("num_vectors", num_vectors, 1, most=math.inf)
    values = _constants(law, constants)
    if law != "jl" and num_vectors <= dim:
        return 0.0
    log_vectors = np.array([math.log(num_vectors)])
    with np.errstate(over="ignore"):
        return _held(
            "num_vectors", float(deviations(log_vectors, np.array([log_dim]), law, values)[0])
        )


def fit_packing_law(
    num_vectors: Tensor, dims: Tensor, epsilons: Tensor, *, law: Law
) -> PackingLawResult:
    """Fit the constants of a law by least squares in epsilon.

    Args:
        num_vectors: Numbers of directions k, shape (n,).
        dims: Dimensions d, shape (n,).
        epsilons: Deviations (largest absolute cosines), shape (n,).
        law: ``full``, ``ratio`` or ``jl``.

    Raises:
        TypeError: If an argument is no tensor.
        ValueError: If the shapes differ, ``law`` is unknown, fewer points than constants are
            usable, ``full`` has only one dimension to fit, or the fit does not converge.
    """
    names = list(_constants(law, {}))
    log_vectors, log_dims, observed = usable_points(num_vectors, dims, epsilons, law=law)
    enough(
        "epsilons",
        len(observed),
        len(names),
        f"usable points for law {law!r}",
        given=f"{len(observed)} of {len(epsilons)}",
        advice="fit more points",
    )
    if law == "full" and np.ptp(log_dims) == 0:
        raise ValueError("dims: expected at least 2 different dimensions for law 'full', got 1")

    def predict(parameters: Array) -> Array:
        values = dict(zip(names, [math.exp(parameters[0]), *parameters[1:]], strict=True))
        return deviations(log_vectors, log_dims, law, values)

    start = [0.0] + [1.0] * (len(names) - 1)
    fit = least_squares(
        lambda parameters: predict(parameters) - observed,
        start,
        jac="3-point",
        x_scale="jac",
        ftol=1e-15,
        xtol=1e-15,
        gtol=1e-15,
        max_nfev=10_000,
    )
    if not fit.success:
        raise ValueError(f"epsilons: expected points near law {law!r}, got no converged fit")
    constants = dict(zip(names, [math.exp(fit.x[0]), *map(float, fit.x[1:])], strict=True))
    num_dropped = len(epsilons) - len(observed)
    return _quality(constants, observed, predict(fit.x), num_dropped=num_dropped)


def deviations(
    log_vectors: Array, log_dims: Array, law: Law, constants: Mapping[str, float | Array]
) -> Array:
    """The law itself, for k above d; constants may be arrays that broadcast against the points."""
    base = 0 if law == "jl" else log_dims
    # A fit may try an exponent for which k^a is below d.
    log_ratio = np.maximum(constants.get("a", 1) * log_vectors - base, 0)
    squares = constants["C"] * log_ratio ** constants.get("b", 1)
    return np.asarray(np.sqrt(squares * np.exp(-constants.get("c", 1) * log_dims)))


def _constants(law: str, given: dict[str, float]) -> dict[str, float]:
    """Published constants of the law, replaced by the given constants."""
    one_of("law", law, *get_args(Law))
    published = PUBLISHED[law]
    for name, value in given.items():
        if name not in published:
            raise ValueError(f"{name}: law {law!r} has the constants {', '.join(published)}")
        positive(name, value)
    return published | given


def _held(name: str, result: float) -> float:
    """Return the result of a law, unless constants far from the published ones overflow it."""
    if not math.isfinite(result):
        raise ValueError(
            f"{name}: expected a result that float64 can hold, got {result}; choose other constants"
        )
    return result


def usable_points(
    num_vectors: Tensor, dims: Tensor, epsilons: Tensor, *, law: Law
) -> tuple[Array, Array, Array]:
    """Return ln k, ln d and epsilon of the points that the law can describe."""
    given = {"num_vectors": num_vectors, "dims": dims, "epsilons": epsilons}
    checked = [real_tensor(name, column, dims=(1,)) for name, column in given.items()]
    one_length("epsilons", checked)
    points = np.stack([column.double().cpu().numpy() for column in checked])
    minimum = 1 if law == "jl" else points[1]
    usable = np.isfinite(points).all(0) & (points > 0).all(0) & (points[0] > minimum)
    return np.log(points[0, usable]), np.log(points[1, usable]), points[2, usable]


def _quality(
    constants: dict[str, float], observed: Array, predicted: Array, num_dropped: int
) -> PackingLawResult:
    residual = predicted - observed
    spread = float(np.ptp(observed))
    variance = float(np.sum((observed - observed.mean()) ** 2))
    is_tested = len(observed) > len(constants)
    return PackingLawResult(
        constants,
        r2=1 - float(residual @ residual) / variance if spread and is_tested else math.nan,
        mape=float(np.mean(np.abs(residual) / observed)),
        nrmse=math.sqrt(float(np.mean(residual**2))) / spread if spread else math.nan,
        num_points=len(observed),
        num_dropped=num_dropped,
    )
