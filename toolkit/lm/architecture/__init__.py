"""Where a language model keeps its embedding, blocks, final norm and unembedding."""
