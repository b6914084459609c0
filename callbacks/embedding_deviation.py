"""Deviation of the embedding matrices' rows from orthogonality."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from callbacks.language_model import LanguageModelCallback
from callbacks.moment import Moment
from toolkit.measures.declaration import NUM_NONFINITE
from toolkit.measures.deviation import DEVIATION

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class EmbeddingDeviation(LanguageModelCallback):
    """The measure ``epsilon`` as a callback.

    The figure is a histogram of the cosine similarity; for a large vocabulary it uses evenly
    spaced rows.
    """

    declaration = DEVIATION

    @override
    def figures(self, moment: Moment, values: Mapping[str, float]) -> Mapping[str, "Figure"]:
        from toolkit.figures.deviation import matrix_histograms  # noqa: PLC0415

        finite = {
            name: matrix
            for name, matrix in self.subject(moment).matrices.items()
            if values.get(self.tag(NUM_NONFINITE.name, name)) == 0
        }
        if not finite:
            return {}
        epsilons = {name: values[self.tag("value", name)] for name in finite}
        return {"cosine_histogram": matrix_histograms(finite, step=moment.step, epsilons=epsilons)}
