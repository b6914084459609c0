"""How far the geometry of each layer is organised along the readout subspace."""

from callbacks.language_model import TextCallback
from toolkit.measures.pga import PGA


class SubspacePGA(TextCallback):
    """The measure ``pga`` as a callback."""

    declaration = PGA
