"""LightningModules of the toolkit."""

from toolkit.models.language_model import LanguageModel
from toolkit.models.superposition_autoencoder import SuperpositionAutoencoder
from toolkit.models.vector_packing import VectorPacking

__all__ = ["LanguageModel", "SuperpositionAutoencoder", "VectorPacking"]
