"""Row norms and overlaps of the unembedding."""

from callbacks.language_model import LanguageModelCallback
from toolkit.measures.unembedding import UNEMBEDDING


class UnembeddingOverlap(LanguageModelCallback):
    """The measure ``unembedding`` as a callback."""

    declaration = UNEMBEDDING
