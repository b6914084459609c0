"""Pure functions: tensors in, tensors or named tuples out."""
