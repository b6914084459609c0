"""How many directions each layer's states use, and how evenly."""

from callbacks.language_model import TextCallback
from toolkit.measures.spectrum import SPECTRUM


class Spectrum(TextCallback):
    """The measure ``spectrum`` as a callback."""

    declaration = SPECTRUM
