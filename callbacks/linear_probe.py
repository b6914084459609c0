"""Accuracy of a linear probe on each layer."""

from callbacks.language_model import TextCallback
from toolkit.measures.probe import PROBE


class LinearProbe(TextCallback):
    """The measure ``probe`` as a callback."""

    declaration = PROBE
