"""Warnings about values that are not finite."""

from collections.abc import Mapping

from lightning.pytorch.utilities import rank_zero_warn

from callbacks.moment import Moment
from toolkit.functional._checks import shown_list
from toolkit.runs.nonfinite import WarnsOfNonfinite, has_been_warned
from toolkit.runs.points import values_by_layer

_SHOWN = 4


def nonfinite_sentence(values: Mapping[str, float], tag: str) -> str:
    """Return a sentence with the number of non-finite values and their layers; empty without any.

    Args:
        values: Measured values by tag.
        tag: Tag of the counts, without a layer.
    """
    # Some measurements have a single count for all layers.
    counts = {"": values.get(tag, 0.0), **values_by_layer(values, tag)}
    counts = {layer: count for layer, count in counts.items() if count > 0}
    return _counted(counts) if counts else ""


def warn_of_nonfinite(
    callback: WarnsOfNonfinite, prefix: str, sentence: str, moment: Moment
) -> None:
    """Warn once in a run, unless a warning about the loss came before.

    Args:
        callback: The callback of the measurement.
        prefix: First part of its tags.
        sentence: The result of `nonfinite_sentence`.
        moment: The moment of the measurement.
    """
    callbacks = moment.trainer.callbacks  # type: ignore[attr-defined]
    if sentence and not has_been_warned(callbacks):
        callback.has_warned = True
        rank_zero_warn(f"{prefix}: {sentence} at step {moment.step}; what depends on them is NaN")


def _counted(counts: Mapping[str, float]) -> str:
    total = sum(counts.values())
    names = [layer for layer in counts if layer]
    where = f" in {shown_list(names, _SHOWN, count_rest=True)}" if names else ""
    return f"{total:,.0f} {'value' if total == 1 else 'values'}{where} not finite"
