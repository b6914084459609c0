"""LightningModules of the toolkit."""

from toolkit.models.superposition_autoencoder import SuperpositionAutoencoder

__all__ = ["SuperpositionAutoencoder"]
