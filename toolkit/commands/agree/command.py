"""``python -m toolkit agree``: do models place the same texts alike?"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.console.output_files import check_outputs
from toolkit.console.parser import OneLineParser
from toolkit.lm.paths import check_different, model_name

if TYPE_CHECKING:
    from toolkit.commands.agree.compare import Conditions
    from toolkit.commands.agree.states import ModelStates
    from toolkit.measures import TextSet

_DTYPES = ("float32", "bfloat16", "float16")
_MINIMA = {"num_texts": 4, "k": 1, "num_random": 2, "remove": 0, "max_length": 1, "seed": 0}


def main(args: Sequence[str]) -> int:
    """Compare the models that the options name, pair by pair, and print a table.

    Args:
        args: The options, without the command itself.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: If an option is wrong, or a model or the texts cannot be read.
    """
    options = _parser().parse_args(args)
    _check(options)
    # Importing torch takes seconds; --help and wrong options must not wait for it.
    from toolkit.commands.agree import report  # noqa: PLC0415
    from toolkit.commands.agree.compare import compare  # noqa: PLC0415

    models, conditions = _read(options)
    rows = compare(models, conditions)
    write = report.as_json if options.json else report.as_text
    sys.stdout.write(write(models, rows, conditions))
    if options.csv is not None:
        report.write_csv(models, rows, conditions, options.csv)
    if options.figure is not None:
        report.draw(rows, options.figure)
    return 0


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="python -m toolkit agree",
        description="Agreement between language models of any widths and tokenizers: Spearman "
        "correlation of the cosine distances of all pairs of the same texts, in full space, inside "
        "each model's own readout subspace, and inside random ones (arXiv 2605.17084).",
        epilog="Models are checked by their small files first, and then loaded one at a time.",
    )
    add = parser.add_argument
    add("models", nargs="+", metavar="MODEL", help="folder, or Hub name (also name@revision)")
    add(
        "--texts",
        default="ag_news",
        metavar="SOURCE",
        help="ag_news (default), docstrings (no download), or the path of a CSV or Parquet file",
    )
    add("--num_texts", type=int, default=1000, metavar="N", help="number of texts (default 1000)")
    add(
        "--layers",
        nargs="+",
        default=["0.5", "final"],
        metavar="DEPTH",
        help="shares of each model's depth, 0 embedding to 1 = final, or names such as layer_03 "
        "(default 0.5 final)",
    )
    add("--k", type=int, metavar="K", help="readout dimension (default min(100, smallest d // 8))")
    add(
        "--num_random",
        type=int,
        default=100,
        metavar="N",
        help="random subspaces, up to 1,000,000 (default 100)",
    )
    add("--remove", type=int, default=1, metavar="R", help="components to remove (default 1)")
    add("--pooling", choices=("last", "mean"), default="last", help="token (default last)")
    add("--max_length", type=int, default=128, metavar="N", help="tokens of a text (default 128)")
    add("--seed", type=int, default=0, metavar="N", help="of texts and random subspaces")
    add("--dtype", choices=_DTYPES, default="float32", help="of the weights (default float32)")
    add("--allow-pickle", action="store_true", help="open .bin files, too; no code in them is run")
    add("--json", action="store_true", help="print JSON")
    add("--csv", type=Path, metavar="FILE", help="write the table to a CSV file, too")
    add("--figure", type=Path, metavar="FILE", help="draw the three agreements of each pair")
    return parser


def _check(options: argparse.Namespace) -> None:
    names: list[str] = options.models
    if len(names) < 2:
        raise ValueError(f"models: expected two or more, got {names[0]} alone")
    check_different("models", names)
    options.models = [model_name(name) for name in names]
    for name, minimum in _MINIMA.items():
        value = getattr(options, name)
        if value is not None and value < minimum:
            raise ValueError(f"{name}: expected an integer of at least {minimum}, got {value}")
    check_outputs(csv=options.csv, figure=options.figure)


def _read(options: argparse.Namespace) -> "tuple[list[ModelStates], Conditions]":
    """Return all models' states and the conditions; cheap checks come first."""
    import torch  # noqa: PLC0415

    from toolkit.commands.agree import states as reading  # noqa: PLC0415
    from toolkit.commands.agree.compare import Conditions  # noqa: PLC0415
    from toolkit.functional._checks import fewer_than, number_of_draws  # noqa: PLC0415

    number_of_draws("num_random", options.num_random, _MINIMA["num_random"])
    text_set = _text_set(options)
    drawn = text_set.load()
    models = reading.candidates(
        options.models,
        drawn.test_texts,
        max_length=options.max_length,
        allow_pickle=options.allow_pickle,
    )
    k = reading.subspace_dimension(models, options.k)
    layers = [reading.chosen_layers(options.layers, model) for model in models]
    limit = min(options.num_texts, *(model.outline.dim for model in models))
    fewer_than("remove", options.remove, limit, limit=f"{limit} components")
    settings = {
        "k": k,
        "dtype": getattr(torch, options.dtype),
        "encoding": {**text_set.encoding(), "progress": True},
    }
    states = [
        reading.read_states(model, drawn.test_texts, names, **settings)
        for model, names in zip(models, layers, strict=True)
    ]
    given = {name: getattr(options, name) for name in Conditions._fields}
    return states, Conditions(**{**given, "texts": drawn.source, "k": k})


def _text_set(options: argparse.Namespace) -> "TextSet":
    from toolkit.measures import TextSet  # noqa: PLC0415

    return TextSet(
        source=options.texts,
        # No probe is trained, and this is the smallest possible draw.
        num_train=_MINIMA["num_texts"],
        num_test=options.num_texts,
        seed=options.seed,
        max_length=options.max_length,
        pooling=options.pooling,
    )
