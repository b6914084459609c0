"""Spectral metrics of each layer's states."""

from callbacks.language_model import TextCallback
from toolkit.measures.spectrum import SPECTRUM


class Spectrum(TextCallback):
    """The measure ``spectrum`` as a callback."""

    declaration = SPECTRUM
