"""Lightning callbacks that measure representation geometry while a model trains."""

from callbacks.base import MeasurementCallback
from callbacks.measurement import Moment
from callbacks.packing_geometry import PackingGeometry
from callbacks.scaling_law import ScalingLaw
from callbacks.schedule import Schedule
from callbacks.superposition_geometry import SuperpositionGeometry
from toolkit.points import Point

__all__ = [
    "MeasurementCallback",
    "Moment",
    "PackingGeometry",
    "Point",
    "ScalingLaw",
    "Schedule",
    "SuperpositionGeometry",
]
