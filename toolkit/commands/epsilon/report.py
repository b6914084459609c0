"""The output of ``python -m toolkit epsilon``: text, JSON, CSV and figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from toolkit.commands.epsilon.measured import MeasuredModel
from toolkit.commands.epsilon.twins import SharedMatrix
from toolkit.console import output_files
from toolkit.console.text_table import aligned
from toolkit.figures.deviation import deviation_against_dim
from toolkit.reference import model_capacities

# The paper gives capacities only below this deviation.
_PUBLISHED_BELOW = 0.1


def as_text(
    models: Sequence[MeasuredModel],
    failures: Mapping[str, str],
    shared: Sequence[SharedMatrix] = (),
) -> str:
    """Return the table with its footnotes; failures go to standard error."""
    del failures
    stderr = models[0].epsilon_stderr is not None
    header = ("model", "mu", "sigma", "epsilon", *(("stderr",) * stderr), "class")
    header = (*header, "log10 capacity", "tied", "V", "d", "dtype", "source")
    notes = [note for model in models for note in _notes(model)]
    notes += [
        f"{' and '.join(one.models)} have the same {one.matrix} matrix: they are no different "
        "checkpoints of it"
        for one in shared
    ]
    if any(map(_is_extrapolated, models)):
        notes.append("* arXiv 2606.02765 gives capacities below epsilon 0.1 only")
    return aligned([header, *map(_cells, models)]) + "".join(f"{note}\n" for note in notes)


def as_json(
    models: Sequence[MeasuredModel],
    failures: Mapping[str, str],
    shared: Sequence[SharedMatrix] = (),
) -> str:
    """Return the table as JSON, with the failed models and the reasons."""
    content = {
        "models": [model._asdict() for model in models],
        "shared": [one._asdict() for one in shared],
        "failed": [{"model": name, "error": error} for name, error in failures.items()],
    }
    return output_files.json_text(content)


def write_csv(models: Sequence[MeasuredModel], path: Path) -> None:
    """Write a line for each model, in one step; unknown values stay empty."""
    output_files.write_csv(path, MeasuredModel._fields, models)


def draw(models: Sequence[MeasuredModel], path: Path) -> None:
    """Draw epsilon against d beside the published models, in one step."""
    figure = deviation_against_dim(
        [(model.model.rsplit("/", 1)[-1], model.dim, model.epsilon) for model in models],
        published=[(model.dim, model.epsilon) for model in model_capacities()],
    )
    output_files.write_figure(path, figure)


def _cells(model: MeasuredModel) -> tuple[str, ...]:
    capacity = "indeterminate"
    if model.log10_capacity is not None:
        capacity = f"{model.log10_capacity:.2f}" + "*" * _is_extrapolated(model)
    rows = f"{model.rows_used}/{model.rows_stored}"
    return (
        model.model,
        f"{model.mean:.5f}",
        f"{model.std:.5f}",
        f"{model.epsilon:.5f}",
        *(() if model.epsilon_stderr is None else (f"{model.epsilon_stderr:.1g}",)),
        str(model.model_class or "-"),
        capacity,
        {True: "yes", False: "no", None: "?"}[model.tied],
        str(model.rows_stored) if model.rows_used == model.rows_stored else rows,
        str(model.dim),
        model.dtype,
        f"{model.tensor} in {model.file}" + f" at {model.commit[:8]}" * bool(model.commit),
    )


def _notes(model: MeasuredModel) -> list[str]:
    notes = []
    if model.rows_used != model.rows_stored:
        stored = "unknown: some of the others' values are not finite"
        if model.epsilon_stored is not None:
            stored = f"{model.epsilon_stored:.5f}"
        notes.append(
            f"{model.model}: the tokenizer reaches {model.rows_used} of {model.rows_stored} rows; "
            f"epsilon over all of them is {stored}"
        )
    if model.tokenizer_rows is None:
        notes.append(f"{model.model}: no tokenizer found, every stored row is measured")
    if model.zero_rows:
        notes.append(f"{model.model}: {model.zero_rows} zero rows are left out")
    return notes


def _is_extrapolated(model: MeasuredModel) -> bool:
    return model.log10_capacity is not None and model.epsilon >= _PUBLISHED_BELOW
