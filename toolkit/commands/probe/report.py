"""The report of a walk: a table for each model, heat maps, and models side by side."""

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch.utils.tensorboard import SummaryWriter

from toolkit.commands.probe.record import WalkRecord
from toolkit.commands.probe.walk import Walk
from toolkit.console.output_files import write_figure
from toolkit.figures.layers import against_depth, layer_step_heat_map, one_against_another
from toolkit.functional._checks import shown_list
from toolkit.measures import MEASURES
from toolkit.runs.folder import SUMMARY
from toolkit.runs.model_logger import model_folder
from toolkit.runs.points import values_by_layer
from toolkit.runs.summary import collect

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = "figures"
_COMPARISON = "comparison"
_SHOWN = 8


def report(walk: Walk, record: WalkRecord, models: Sequence[str]) -> None:
    """Print and write the report of the models.

    Args:
        walk: The walk with its callbacks.
        record: Its record.
        models: Names of the models, in their order.
    """
    latest = {}
    for model in models:
        walk.restore(record, model)
        duplicates, shared = record.duplicates(model), record.same_matrices(model)
        summary = collect(walk.callbacks)
        if len(models) > 1:
            sys.stdout.write(f"{model}\n")
        summary.print()
        _tell(duplicates)
        _tell_matrices(shared)
        summary.write(walk.folder / model_folder(model) / SUMMARY)
        history = record.history(model)
        latest[model] = history[max(history)] if history else {}
        for name, figure in _heat_maps(walk, history, duplicates, shared).items():
            write_figure(walk.folder / FIGURES / model_folder(model) / f"{name}.png", figure)
    if len(models) > 1:
        _compare(walk.folder, latest)


def _tell(duplicates: Mapping[int, int]) -> None:
    pairs = [f"{step} (those of {first})" for step, first in duplicates.items()]
    if pairs:
        shown = shown_list(pairs, _SHOWN)
        sys.stdout.write(f"weights of an earlier step, no points of a curve: {shown}\n")


def _tell_matrices(shared: Mapping[int, Mapping[str, int]]) -> None:
    steps = [
        f"{step} ({', '.join(f'{name} of {first}' for name, first in matrices.items())})"
        for step, matrices in shared.items()
    ]
    if steps:
        shown = shown_list(steps, _SHOWN)
        sys.stdout.write(f"embedding matrices of an earlier step, other weights differ: {shown}\n")


def _heat_maps(
    walk: Walk,
    history: Mapping[int, Mapping[str, float]],
    duplicates: Collection[int],
    shared: Collection[int],
) -> dict[str, "Figure"]:
    figures = {}
    for callback in walk.watchers:
        for quantity, label in callback.heat_maps.items():
            prefix = f"{callback.prefix}/{quantity}"
            values = {step: values_by_layer(measured, prefix) for step, measured in history.items()}
            if any(values.values()):
                figures[prefix.replace("/", "_")] = layer_step_heat_map(
                    values,
                    label=label,
                    marked=duplicates,
                    partly_marked=shared,
                    complete=callback.layers is None,
                )
    return figures


def _compare(folder: Path, latest: Mapping[str, Mapping[str, float]]) -> None:
    """Draw the models' last steps side by side, replacing earlier figures."""
    figures = _comparisons(latest)
    for path in (folder / _COMPARISON).glob("events.out.tfevents.*"):
        path.unlink()
    if not figures:
        return
    with SummaryWriter(str(folder / _COMPARISON)) as board:
        for tag, figure in figures.items():
            write_figure(folder / FIGURES / f"{tag.replace('/', '_')}.png", figure)
            board.add_figure(tag, figure)


def _comparisons(latest: Mapping[str, Mapping[str, float]]) -> dict[str, "Figure"]:
    """Return the figures that measures declare for several models, by tag."""
    declared = {each.tag(q): q for each in MEASURES.values() for q in each.quantities}
    figures = {}
    for tag, quantity in declared.items():
        values = _by_model(latest, tag)
        if quantity.against_depth and values:
            figures[f"{tag}_against_depth"] = against_depth(values, label=quantity.axis_label)
        others = _by_model(latest, quantity.against) if quantity.against else {}
        if others and values:
            other = declared[quantity.against]
            figures[f"{tag}_against_{other.name}"] = one_against_another(
                others, values, xlabel=other.axis_label, ylabel=quantity.axis_label
            )
    return figures


def _by_model(
    latest: Mapping[str, Mapping[str, float]], tag: str
) -> dict[str, Mapping[str, float]]:
    """Return the values by layer, of the models that have values."""
    values = {model: values_by_layer(of_model, tag) for model, of_model in latest.items()}
    return {model: layers for model, layers in values.items() if layers}
