"""TwoNN intrinsic dimension, layer by layer."""

from dataclasses import dataclass

from torch import Tensor

from toolkit.functional import two_nn
from toolkit.functional._checks import inner_share
from toolkit.measures.declaration import Measure, Quantity
from toolkit.measures.places import Value, Values, layer_points
from toolkit.measures.subject import Subject
from toolkit.runs.points import Point

_QUANTITIES = (
    Quantity(
        name="dimension",
        label="TwoNN dimension",
        meaning="intrinsic dimension by TwoNN, from the distances to the two nearest neighbours "
        "of each text; where it is high, more texts give a higher one",
        heat_map=True,
        headline=True,
    ),
    Quantity(
        name="num_distinct", label="distinct texts", meaning="number of different vectors of texts"
    ),
    Quantity(
        name="num_fitted",
        label="fitted ratios",
        meaning="number of texts in the fit of `dimension`",
    ),
    Quantity(
        name="num_dropped",
        label="equal texts",
        meaning="texts left out because their vector is that of an earlier one",
    ),
)


@dataclass(frozen=True, kw_only=True)
class TwoNNOptions:
    """Options of TwoNN.

    Args:
        discarded_share: Share of the ratios that the fit leaves out, the largest; rounded up.

    Raises:
        ValueError: If it is not above 0 and below 1.
    """

    discarded_share: float = 0.1

    def __post_init__(self) -> None:
        inner_share("discarded_share", self.discarded_share)


def _two_nn_points(subject: Subject, options: TwoNNOptions) -> list[Point]:
    def values(_: str, hidden: Tensor) -> Values:
        result = two_nn(hidden, discarded_share=options.discarded_share)
        return {
            "dimension": Value(result.dimension, result.num_fitted, result.reason),
            "num_distinct": result.num_distinct,
            "num_fitted": result.num_fitted,
            "num_dropped": result.num_dropped,
        }

    return layer_points(subject, _QUANTITIES, values)


TWO_NN = Measure(
    name="two_nn",
    summary="the TwoNN intrinsic dimension of each layer's states of the test texts",
    source="arXiv 1803.06992",
    needs=frozenset({"texts"}),
    options=TwoNNOptions,
    quantities=_QUANTITIES,
    points=_two_nn_points,
)
