"""Is the superposition of the unembedding strong: every row there, overlaps about 1/m."""

from callbacks.language_model import LanguageModelCallback
from toolkit.measures.unembedding import UNEMBEDDING


class UnembeddingOverlap(LanguageModelCallback):
    """The measure ``unembedding`` as a callback."""

    declaration = UNEMBEDDING
