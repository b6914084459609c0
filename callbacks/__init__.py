"""Lightning callbacks that measure representation geometry while a model trains."""

from callbacks.base import MeasurementCallback
from callbacks.checkpoint_schedule import CheckpointSchedule
from callbacks.embedding_deviation import EmbeddingDeviation
from callbacks.language_model import LanguageModelCallback, TextCallback
from callbacks.linear_probe import LinearProbe
from callbacks.moment import Moment
from callbacks.packing_geometry import PackingGeometry
from callbacks.scaling_law import ScalingLaw
from callbacks.schedule import Schedule
from callbacks.spectrum import Spectrum
from callbacks.subspace_pga import SubspacePGA
from callbacks.superposition_geometry import SuperpositionGeometry
from callbacks.two_nn import TwoNN
from callbacks.unembedding_overlap import UnembeddingOverlap
from toolkit.measures.text_set import TextSet
from toolkit.runs.points import Point

__all__ = [
    "CheckpointSchedule",
    "EmbeddingDeviation",
    "LanguageModelCallback",
    "LinearProbe",
    "MeasurementCallback",
    "Moment",
    "PackingGeometry",
    "Point",
    "ScalingLaw",
    "Schedule",
    "Spectrum",
    "SubspacePGA",
    "SuperpositionGeometry",
    "TextCallback",
    "TextSet",
    "TwoNN",
    "UnembeddingOverlap",
]
