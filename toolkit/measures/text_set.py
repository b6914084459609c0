"""The texts that a model is measured on, and how each text becomes a vector."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from toolkit.data.labelled_texts import LabelledTexts
from toolkit.data.text_sources import load_texts
from toolkit.functional._checks import flag, integer_at_least, one_of, valid_seed, valid_text


@dataclass(frozen=True, kw_only=True)
class TextSet:
    """Labelled texts, and how each of them becomes one vector of hidden states.

    Args:
        source: ``"ag_news"``, ``"docstrings"`` (Python's own, always there), or the path of a CSV
            file, Parquet file or folder saved by ``datasets``.
        num_train: Texts that linear probes are trained on.
        num_test: Texts that all other quantities are measured on.
        seed: Seed of the draw.
        max_length: Tokens of a text that count; the rest is cut off.
        pooling: The ``last`` token's vector, or the ``mean`` over the tokens.
        skip_first: Leave out each text's first token, whose vector is often an outlier.
        batch_size: Texts in one forward pass; changes no result.

    Raises:
        ValueError: If a number is no integer or out of range, or ``pooling`` is unknown.
    """

    source: str = "ag_news"
    num_train: int = 4000
    num_test: int = 1000
    seed: int = 0
    max_length: int = 128
    pooling: Literal["last", "mean"] = "last"
    skip_first: bool = False
    batch_size: int = 32

    def __post_init__(self) -> None:
        valid_text("source", self.source)
        for name in ("num_train", "num_test", "max_length", "batch_size"):
            integer_at_least(name, getattr(self, name), 1)
        valid_seed("seed", self.seed)
        one_of("pooling", self.pooling, "last", "mean")
        flag("skip_first", self.skip_first)

    def load(self) -> LabelledTexts:
        """Return the texts, read once in a process.

        Raises:
            ValueError: If the texts cannot be loaded; the message says what to do.
        """
        return _loaded(self.source, self.num_train, self.num_test, self.seed)

    def encoding(self) -> dict[str, Any]:
        """Return how a text becomes a vector: options of `toolkit.lm.reading.hidden_states`."""
        names = ("max_length", "pooling", "skip_first", "batch_size")
        return {name: getattr(self, name) for name in names}


@cache
def _loaded(source: str, num_train: int, num_test: int, seed: int) -> LabelledTexts:
    return load_texts(source, num_train=num_train, num_test=num_test, seed=seed)
