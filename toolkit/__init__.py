"""Train toy superposition models and measure the representation geometry of language models."""

__version__ = "0.1.0"
