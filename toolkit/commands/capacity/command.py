"""``python -m toolkit capacity``: how many directions fit, by the laws of arXiv 2606.02765."""

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.commands.capacity.question import Question
from toolkit.console.output_files import check_outputs
from toolkit.console.parser import OneLineParser

if TYPE_CHECKING:
    from toolkit.commands.capacity.laws import CapacityLaw
    from toolkit.functional.capacity import Law
    from toolkit.reference import PackingPoint

_LAWS: tuple["Law", ...] = ("full", "ratio", "jl")
# The published table gives epsilon to five decimals.
_TABLE_ROUNDING = 5e-6
_PARTS_OF_A_RANGE = 3
# More questions take long, and probably come from a mistyped step.
_MOST_QUESTIONS = 1000
_LARGEST_DIM = 10**9
# Power of ten; a larger number takes minutes to write, a smaller number is 0 as a float.
_LARGEST_POWER = 300
# Root of a variance's rounding error: a smaller deviation is that of orthogonal rows, 0.
_ORTHOGONAL = 1e-7
_LONGEST_SHOWN = 60


def main(args: Sequence[str]) -> int:
    """Print the answers to the questions of the options.

    Args:
        args: The options, without the command itself.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: If the options contain no question, or the packings cannot be fitted.
    """
    options = _parser().parse_args(args)
    questions = list(_questions(options))
    if not questions and options.fit is None:
        raise ValueError(
            "epsilon: expected --epsilon, --num_vectors, --embeddings, --model or --fit, got none"
        )
    if options.figure is not None and options.fit is None:
        raise ValueError("figure: expected --fit with it, got a figure of nothing; add --fit PATH")
    check_outputs(figure=options.figure)
    # Importing torch takes seconds; --help and wrong options must not wait for it.
    from toolkit.commands.capacity import report  # noqa: PLC0415

    points: list[PackingPoint] = []
    skipped: list[str] = []
    if options.fit is None:
        laws = _published_laws(options)
    else:
        from toolkit.commands.capacity.packings import read_packings  # noqa: PLC0415

        points = read_packings(options.fit)
        laws, skipped = _fitted_laws(options, points)
        if options.figure is not None:
            report.check_drawable(points)
    write = report.as_json if options.json else report.as_text
    sys.stdout.write(write(questions, laws, skipped))
    if options.figure is not None:
        report.draw_fits(laws, points, options.figure)
    return 0


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="python -m toolkit capacity",
        description="How many almost orthogonal directions fit into d dimensions at a deviation "
        "epsilon, and the inverse, by the laws of arXiv 2606.02765.",
        epilog="Numbers may be ranges, FIRST:LAST:STEP, of together up to "
        f"{_MOST_QUESTIONS} questions. Intervals hold 95 %% of bootstrapped fits; epsilon counts "
        "as rounded to the digits given.",
    )
    add = parser.add_argument
    add("--dim", nargs="+", metavar="D", help="dimension d")
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--epsilon", nargs="+", metavar="E", help="deviation: how many fit?")
    asked.add_argument("--num_vectors", nargs="+", metavar="K", help="number: at which deviation?")
    asked.add_argument(
        "--embeddings", type=Path, metavar="FILE", help=".npy or .pt with one matrix, rows = tokens"
    )
    asked.add_argument("--model", nargs="+", metavar="NAME", help="models of the published table")
    add("--law", nargs="+", choices=_LAWS, help="laws to ask, by default all")
    add("--fit", type=Path, metavar="PATH", help="fit the laws to a folder of runs or a CSV file")
    add("--figure", type=Path, metavar="FILE", help="draw measured against fitted")
    add("--json", action="store_true", help="print JSON")
    return parser


def _questions(options: argparse.Namespace) -> Iterator[Question]:
    if options.model is not None:
        yield from map(_about_model, options.model)
        return
    if options.embeddings is not None:
        yield _about_matrix(options.embeddings)
        return
    dims, epsilons, counts = _asked(options)
    for dim in dims:
        for epsilon in epsilons:
            half_unit = float(Decimal(1).scaleb(_last_digit(epsilon)) / 2)
            yield Question(dim, epsilon=float(epsilon), rounding=half_unit)
        for count in counts:
            yield Question(dim, num_vectors=float(count))


def _asked(options: argparse.Namespace) -> tuple[list[int], list[Decimal], list[Decimal]]:
    """Return dimensions, deviations and numbers of directions; too many are refused."""
    dims = [_dimension(number) for number in _numbers("dim", options.dim)]
    epsilons = _numbers("epsilon", options.epsilon)
    counts = _numbers("num_vectors", options.num_vectors)
    if bool(dims) != bool(epsilons or counts):
        raise ValueError("dim: expected together with --epsilon or --num_vectors; give both")
    if epsilons and not 0 < min(epsilons) <= max(epsilons) < 1:
        raise ValueError(
            "epsilon: expected bounds on |cos|, above 0 and below 1, got "
            f"{min(epsilons) if min(epsilons) <= 0 else max(epsilons)}"
        )
    num_questions = len(dims) * len(epsilons or counts)
    if num_questions > _MOST_QUESTIONS:
        raise ValueError(
            f"dim: expected at most {_MOST_QUESTIONS:,} questions at a time, got {len(dims):,} "
            f"dimensions with {len(epsilons or counts):,} numbers each; ask fewer"
        )
    return dims, epsilons, counts


def _about_model(name: str) -> Question:
    from toolkit.reference import model_capacities  # noqa: PLC0415

    models = {model.model: model for model in model_capacities()}
    if name not in models:
        close = difflib.get_close_matches(name, models, n=3, cutoff=0.4) or list(models)
        raise ValueError(
            f"model: expected a published model, got {name!r}; near: {', '.join(close)}"
        )
    _, dim, epsilon, capacity = models[name]
    return Question(dim, epsilon=epsilon, rounding=_TABLE_ROUNDING, model=name, published=capacity)


def _about_matrix(path: Path) -> Question:
    from toolkit.commands.capacity.matrix_file import read_matrix  # noqa: PLC0415
    from toolkit.functional import deviation_stderr, embedding_deviation  # noqa: PLC0415

    matrix = read_matrix(path)
    try:
        epsilon, stderr = embedding_deviation(matrix).epsilon, deviation_stderr(matrix)
    except ValueError as error:
        reason = str(error).removeprefix("embeddings: ")
        raise ValueError(f"embeddings: {path}: {reason}") from error
    if abs(epsilon) <= _ORTHOGONAL:
        return Question(matrix.shape[1], epsilon=0.0)
    if epsilon < 0:
        raise ValueError(
            f"embeddings: {path}: expected an epsilon of at least 0, got {epsilon:.6g}: the rows "
            "point away from each other, which the laws do not know"
        )
    return Question(matrix.shape[1], epsilon=epsilon, stderr=stderr)


def _published_laws(options: argparse.Namespace) -> list["CapacityLaw"]:
    from toolkit.commands.capacity.laws import proven_law, published_law  # noqa: PLC0415

    laws = [published_law(law) for law in options.law or _LAWS]
    return laws if options.law else [*laws, proven_law()]


def _fitted_laws(
    options: argparse.Namespace, points: "Sequence[PackingPoint]"
) -> tuple[list["CapacityLaw"], list[str]]:
    """Return the laws that can be fitted, and the reasons why others cannot."""
    from toolkit.commands.capacity.laws import fitted_law  # noqa: PLC0415

    laws, skipped = [], []
    for law in options.law or _LAWS:
        try:
            laws.append(fitted_law(points, law))
        except ValueError as error:
            if options.law:
                raise
            skipped.append(str(error))
    if not laws:
        raise ValueError(skipped[-1])
    return laws, skipped


def _numbers(name: str, texts: Sequence[str] | None) -> list[Decimal]:
    """Return numbers and ranges FIRST:LAST:STEP as exact decimals."""
    numbers = []
    for text in texts or ():
        parts = [_decimal(name, part, text) for part in text.split(":")]
        if len(parts) == 1:
            numbers += parts
        elif len(parts) == _PARTS_OF_A_RANGE and parts[2] > 0 and parts[0] <= parts[1]:
            numbers += _range(name, text, *parts)
        else:
            raise _no_number(name, text)
    return numbers


def _decimal(name: str, part: str, text: str) -> Decimal:
    try:
        number = Decimal(part)
    except InvalidOperation:
        raise _no_number(name, text) from None
    if not number.is_finite():
        raise _no_number(name, text)
    powers = (number.adjusted(), _last_digit(number))
    if not -_LARGEST_POWER <= min(powers) <= max(powers) <= _LARGEST_POWER:
        raise ValueError(
            f"{name}: expected numbers from 1e-{_LARGEST_POWER} to 1e{_LARGEST_POWER}, "
            f"got {_short(text)}"
        )
    return number


def _range(name: str, text: str, first: Decimal, last: Decimal, step: Decimal) -> list[Decimal]:
    if first < last < first + step:
        raise ValueError(
            f"{name}: expected a STEP that fits between FIRST and LAST, got {_short(text)}; "
            f"for {first} alone give no range"
        )
    steps = (last - first) / step
    if steps >= _MOST_QUESTIONS:
        raise ValueError(
            f"{name}: expected at most {_MOST_QUESTIONS:,} numbers in a range, got about "
            f"{steps:.3g} from {_short(text)}; take larger steps"
        )
    return [first + step * i for i in range(int(steps) + 1)]


def _no_number(name: str, text: str) -> ValueError:
    return ValueError(
        f"{name}: expected a number or FIRST:LAST:STEP with FIRST up to LAST and STEP above 0, "
        f"got {_short(text)}"
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}...")


def _dimension(number: Decimal) -> int:
    if number > _LARGEST_DIM:
        raise ValueError(f"dim: expected at most {_LARGEST_DIM:,}, got {number:.6g}")
    if number != int(number):
        raise ValueError(f"dim: expected an integer, got {number}")
    return int(number)


def _last_digit(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0
