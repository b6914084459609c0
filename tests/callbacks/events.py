"""Read TensorBoard's files back."""

from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def scalars(folder: str | Path) -> dict[str, list[tuple[int, float]]]:
    """Return step and value of every point, by tag."""
    events = _load(folder)
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def images(folder: str | Path) -> dict[str, list[int]]:
    """Return the steps of every figure, by tag."""
    events = _load(folder)
    return {tag: [event.step for event in events.Images(tag)] for tag in events.Tags()["images"]}


def _load(folder: str | Path) -> Any:
    # 0 keeps every event instead of a sample.
    return EventAccumulator(str(folder), {"scalars": 0, "images": 0}).Reload()
