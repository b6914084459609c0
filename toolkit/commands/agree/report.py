"""The output of ``python -m toolkit agree``: text, JSON, CSV and figure."""

from collections.abc import Sequence
from pathlib import Path

from toolkit.commands.agree.compare import Agreement, Conditions
from toolkit.commands.agree.states import ModelStates
from toolkit.console import output_files
from toolkit.console.text_table import aligned
from toolkit.figures.agreement import agreement_by_space


def as_text(
    models: Sequence[ModelStates], rows: Sequence[Agreement], conditions: Conditions
) -> str:
    """Return the table as text, with the settings of the comparison."""
    del models
    header = ("models", "depth", "layers", "full", "readout", "random", "std", "z", "texts")
    table = aligned([(*header, "distinct"), *map(_cells, rows)])
    vector = {"last": "last token", "mean": "mean over tokens"}[conditions.pooling]
    given = (
        f"texts: {conditions.texts}; {vector} of at most {conditions.max_length}; "
        f"{conditions.dtype}; CCR-{conditions.remove}; k = {conditions.k}; "
        f"{conditions.num_random} random pairs of subspaces; seed {conditions.seed}\n"
    )
    return table + given + "".join(map(_note, rows))


def as_json(
    models: Sequence[ModelStates], rows: Sequence[Agreement], conditions: Conditions
) -> str:
    """Return the table as JSON, undefined numbers as null."""
    content = {
        "conditions": conditions._asdict(),
        "models": [
            {
                "model": model.name,
                "commit": model.commit,
                "layers": model.layers,
                "widths": {name: states.shape[1] for name, states in model.states.items()},
            }
            for model in models
        ],
        "agreement": [row._asdict() for row in rows],
    }
    return output_files.json_text(content)


def write_csv(
    models: Sequence[ModelStates], rows: Sequence[Agreement], conditions: Conditions, path: Path
) -> None:
    """Write a line for each pair and depth, in one step; undefined numbers stay empty."""
    commits = {model.name: model.commit for model in models}
    header = [*Agreement._fields, "commit_a", "commit_b", *Conditions._fields]
    cells = ([*r, commits[r.model_a], commits[r.model_b], *conditions] for r in rows)
    output_files.write_csv(path, header, cells)


def draw(rows: Sequence[Agreement], path: Path) -> None:
    """Draw the three agreements of each pair and depth, in one step."""
    figure = agreement_by_space(
        [
            (
                f"{_short(row)} at {row.depth}",
                row.full,
                row.readout,
                row.random_mean,
                row.random_std,
            )
            for row in rows
        ]
    )
    output_files.write_figure(path, figure)


def _cells(row: Agreement) -> tuple[str, ...]:
    return (
        f"{row.model_a}, {row.model_b}",
        row.depth,
        row.layer_a if row.layer_a == row.layer_b else f"{row.layer_a}, {row.layer_b}",
        f"{row.full:.4f}",
        f"{row.readout:.4f}",
        f"{row.random_mean:.4f}",
        f"{row.random_std:.4f}",
        f"{row.z:.1f}",
        str(row.num_texts),
        f"{row.num_distinct_a}, {row.num_distinct_b}",
    )


def _note(row: Agreement) -> str:
    dropped = f"{row.num_dropped} texts have nothing left after the removal" * bool(row.num_dropped)
    said = row.reason or dropped
    return f"{row.model_a}, {row.model_b} at {row.depth}: {said}\n" if said else ""


def _short(row: Agreement) -> str:
    names = row.model_a, row.model_b
    short = [name.rstrip("/").rsplit("/", 1)[-1] for name in names]
    return " and ".join(names if short[0] == short[1] else short)
