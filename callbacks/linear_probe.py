"""How much of the texts' labels each layer gives away to a linear classifier."""

from callbacks.language_model import TextCallback
from toolkit.measures.probe import PROBE


class LinearProbe(TextCallback):
    """The measure ``probe`` as a callback."""

    declaration = PROBE
