"""The interface of a module that counts losses in the pass that measures its texts."""

from typing import Protocol, runtime_checkable

from toolkit.lm.reading.token_losses import LossMeter
from toolkit.measures.text_set import TextSet


@runtime_checkable
class CountsTextLosses(Protocol):
    """Counts the losses of a walk's texts in the pass that reads them."""

    def meter_for(self, texts: TextSet) -> LossMeter | None:
        """Return the counter for a pass over these texts, None if their losses do not count."""
