"""Read texts with a language model: token ids, hidden states, losses."""
