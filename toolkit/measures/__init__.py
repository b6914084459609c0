"""Measures of a loaded language model: from the tensors of `toolkit.lm` to points.

A measure is declared once, in a file of its own; callbacks, `toolkit.measure.measure`, walks and
the documentation's tables are derived from `MEASURES`.
"""

from collections.abc import Mapping
from typing import Any

from toolkit.measures.declaration import Measure, NoOptions, Quantity
from toolkit.measures.deviation import DEVIATION
from toolkit.measures.pga import PGA, default_k
from toolkit.measures.probe import PROBE
from toolkit.measures.spectrum import SPECTRUM
from toolkit.measures.subject import Subject
from toolkit.measures.text_set import TextSet
from toolkit.measures.two_nn import TWO_NN
from toolkit.measures.unembedding import UNEMBEDDING

__all__ = [
    "MEASURES",
    "Measure",
    "NoOptions",
    "Quantity",
    "Subject",
    "TextSet",
    "default_k",
]

MEASURES: Mapping[str, Measure[Any]] = {
    each.name: each for each in (PGA, DEVIATION, PROBE, SPECTRUM, TWO_NN, UNEMBEDDING)
}
