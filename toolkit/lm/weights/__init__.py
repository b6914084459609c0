"""Weight files: which tensors they hold, read without loading the model."""
