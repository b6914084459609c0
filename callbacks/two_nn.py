"""How many dimensions the cloud of each layer's states has, seen from nearest neighbours."""

from callbacks.language_model import TextCallback
from toolkit.measures.two_nn import TWO_NN


class TwoNN(TextCallback):
    """The measure ``two_nn`` as a callback."""

    declaration = TWO_NN
