"""What is measured on a loaded language model: tensors from `toolkit.lm`, values as points."""

from toolkit.measures.deviation import deviation_points
from toolkit.measures.pga import default_k, pga_points, used_k
from toolkit.measures.probe import probe_points
from toolkit.measures.spectrum import spectrum_points
from toolkit.measures.subject import Subject
from toolkit.measures.text_set import TextSet
from toolkit.measures.unembedding import unembedding_points

__all__ = [
    "Subject",
    "TextSet",
    "default_k",
    "deviation_points",
    "pga_points",
    "probe_points",
    "spectrum_points",
    "unembedding_points",
    "used_k",
]
