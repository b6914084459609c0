"""``python -m toolkit epsilon``: deviation and capacity of models, without loading them."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.console.held_stderr import one_line, show_at_once
from toolkit.console.output_files import check_outputs
from toolkit.console.parser import OneLineParser
from toolkit.lm.paths import check_different, model_name

if TYPE_CHECKING:
    from toolkit.commands.epsilon.measured import MeasuredModel
    from toolkit.commands.epsilon.twins import SharedMatrix

_NONE_MEASURED = 2


def main(args: Sequence[str]) -> int:
    """Measure the models that the options name, and print a table.

    A model that fails gives one line on standard error; the others are measured.

    Args:
        args: The options, without the command itself.

    Returns:
        The exit code: 0, 1 if some models failed, 2 if all of several did.

    Raises:
        ValueError: If an option is wrong, or the only model fails.
    """
    options = _parser().parse_args(args)
    check_outputs(csv=options.csv, figure=options.figure)
    check_different("models", options.models)
    options.models = [model_name(name) for name in options.models]
    # Importing torch takes seconds; --help and wrong options must not wait for it.
    from toolkit.commands.epsilon import report  # noqa: PLC0415

    models, failures = _measured(options)
    if models or options.json:
        write = report.as_json if options.json else report.as_text
        sys.stdout.write(write(models, failures, _shared(models, options)))
    if options.csv is not None and models:
        report.write_csv(models, options.csv)
    if options.figure is not None and models:
        report.draw(models, options.figure)
    return 0 if not failures else 1 if models else _NONE_MEASURED


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="python -m toolkit epsilon",
        description="Embedding deviation epsilon = mu + 2 sigma of the cosine similarities between "
        "all rows, and the capacity that the full law of arXiv 2606.02765 gives for it. Of the "
        "weights only the one matrix is read.",
    )
    add = parser.add_argument
    add(
        "models",
        nargs="+",
        metavar="MODEL",
        help="Hub name (also name@revision), folder, .safetensors, .gguf or .ckpt file",
    )
    add("--unembedding", action="store_true", help="measure the output matrix, not the input one")
    add(
        "--rows",
        choices=("tokenizer", "all"),
        default="tokenizer",
        help="rows that the tokenizer reaches, if there is one (default), or all stored rows",
    )
    add("--tensor", metavar="NAME", help="name of the matrix in the file, if it is an unusual one")
    add("--revision", metavar="REV", help="branch, tag or commit on the Hub")
    add(
        "--stderr",
        action="store_true",
        help="add epsilon's standard error; takes 3 to 4 times as long",
    )
    add("--allow-pickle", action="store_true", help="open .bin files, too; no code in them is run")
    add("--json", action="store_true", help="print JSON")
    add("--csv", type=Path, metavar="FILE", help="write the table to a CSV file, too")
    add("--figure", type=Path, metavar="FILE", help="draw epsilon against d, with published models")
    return parser


def _shared(models: Sequence["MeasuredModel"], options: argparse.Namespace) -> list["SharedMatrix"]:
    """Return the models that share a matrix, measured or not."""
    from toolkit.commands.epsilon.twins import shared_matrices  # noqa: PLC0415

    return shared_matrices(
        [(model.model, model.matrix_hash) for model in models],
        "output" if options.unembedding else "input",
        # The name of one tensor does not give the name of the other tensor.
        compare_other=options.tensor is None,
        allow_pickle=options.allow_pickle,
    )


def _measured(options: argparse.Namespace) -> tuple[list["MeasuredModel"], dict[str, str]]:
    """Return the measured models, and by model a line about each failure."""
    from toolkit.commands.epsilon.measured import measure_model  # noqa: PLC0415

    models: list[MeasuredModel] = []
    failures: dict[str, str] = {}
    for name in options.models:
        try:
            model = measure_model(
                name,
                "output" if options.unembedding else "input",
                rows=options.rows,
                stderr=options.stderr,
                tensor_name=options.tensor,
                revision=options.revision,
                allow_pickle=options.allow_pickle,
            )
        except Exception as error:
            if len(options.models) == 1:
                raise
            failures[name] = one_line(error)
            show_at_once(f"error: {name}: {failures[name]}\n")
        else:
            models.append(model)
    return models, failures
