"""Streams of batches for resumable runs: each batch is a function of its position."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Batch = TypeVar("Batch")


class BatchStream(Generic[Batch]):
    """An endless stream of batches in epochs of ``length``, with its position as state.

    Batches are a function of their position, so that a resumed run continues the stream exactly.
    Lightning requires ``state_dict`` and ``load_state_dict`` of a resumable loader.

    Args:
        draw: Returns the batch at a position.
        length: Batches in one epoch.
    """

    def __init__(self, draw: Callable[[int], Batch], length: int) -> None:
        self._draw = draw
        self._length = length
        self._position = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        end = (self._position // self._length + 1) * self._length
        while self._position < end:
            batch = self._draw(self._position)
            # After the draw: a draw that fails hands out no batch.
            self._position += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Return the number of batches that were handed out."""
        return {"position": self._position}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue after the batches that were handed out."""
        self._position = state_dict["position"]


class FixedBatches(Generic[Batch]):
    """The same ``length`` batches in every pass.

    Args:
        draw: Returns the batch at a position.
        length: Batches in one pass.
    """

    def __init__(self, draw: Callable[[int], Batch], length: int) -> None:
        self._draw = draw
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        return (self._draw(position) for position in range(self._length))
