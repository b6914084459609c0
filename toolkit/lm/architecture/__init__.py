"""Architecture of language models: embedding, blocks, final norm and unembedding."""
