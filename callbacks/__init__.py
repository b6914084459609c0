"""Lightning callbacks that measure representation geometry while a model trains."""

from callbacks.base import MeasurementCallback
from callbacks.measurement import Moment, Point
from callbacks.packing_geometry import PackingGeometry
from callbacks.scaling_law import ScalingLaw
from callbacks.schedule import Schedule
from callbacks.superposition_geometry import SuperpositionGeometry

__all__ = [
    "MeasurementCallback",
    "Moment",
    "PackingGeometry",
    "Point",
    "ScalingLaw",
    "Schedule",
    "SuperpositionGeometry",
]
