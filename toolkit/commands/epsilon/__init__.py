"""The command epsilon: embedding deviation from a model's files."""
