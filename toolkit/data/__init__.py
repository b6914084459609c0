"""Data of the toolkit: LightningDataModules, and labelled texts for probes."""

from toolkit.data.active_cells import ActiveCells
from toolkit.data.ag_news import load_ag_news
from toolkit.data.docstring_topics import load_docstring_topics
from toolkit.data.frequencies import (
    ExponentialFrequencies,
    Frequencies,
    LinearFrequencies,
    PowerFrequencies,
    UniformFrequencies,
)
from toolkit.data.labelled_texts import LabelledTexts
from toolkit.data.sparse_features import SparseFeatures
from toolkit.data.text_corpus import TextCorpus
from toolkit.data.text_sources import load_texts

__all__ = [
    "ActiveCells",
    "ExponentialFrequencies",
    "Frequencies",
    "LabelledTexts",
    "LinearFrequencies",
    "PowerFrequencies",
    "SparseFeatures",
    "TextCorpus",
    "UniformFrequencies",
    "load_ag_news",
    "load_docstring_topics",
    "load_texts",
]
