"""Subspace PGA of each layer."""

from callbacks.language_model import TextCallback
from toolkit.measures.pga import PGA


class SubspacePGA(TextCallback):
    """The measure ``pga`` as a callback."""

    declaration = PGA
