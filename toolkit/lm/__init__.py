"""Language models: their families, hidden states, weight files and checkpoints."""
