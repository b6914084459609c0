"""What ``python -m toolkit agree`` computes, prints, writes and draws."""

import csv
import io
import json
import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toolkit.agreement_models import ModelStates
from toolkit.atomic import write_atomically
from toolkit.figures_agreement import agreement_by_space
from toolkit.functional import PairwiseAgreement, pairwise_agreement
from toolkit.functional.pga import MIN_NULL_STD
from toolkit.lm._progress import with_progress
from toolkit.text_table import aligned


class Agreement(NamedTuple):
    """Agreement of two models at one depth: Spearman correlations of pairwise cosine distances.

    Attributes:
        model_a: The first model.
        model_b: The second model.
        depth: Depth as it was asked for.
        layer_a: The first model's layer there.
        layer_b: The second model's layer there.
        full: In full space; NaN where a model's distances are all equal.
        readout: Each model inside its own readout subspace.
        random_mean: Mean over pairs of random subspaces of the same dimension.
        random_std: Standard deviation over them (n - 1).
        z: (readout - random_mean) / random_std; NaN where they do not spread.
        num_texts: Number of texts compared.
        num_dropped: Number of texts of which a model keeps nothing after the removal.
        num_distinct_a: Number of distinct vectors among the first model's.
        num_distinct_b: Number of distinct vectors among the second model's.
        num_nonfinite: Number of values of both models' states and unembeddings that are NaN or
            infinite.
        reason: Why there are no numbers; empty where there are.
    """

    model_a: str
    model_b: str
    depth: str
    layer_a: str
    layer_b: str
    full: float
    readout: float
    random_mean: float
    random_std: float
    z: float
    num_texts: int
    num_dropped: int
    num_distinct_a: int
    num_distinct_b: int
    num_nonfinite: int
    reason: str


class Conditions(NamedTuple):
    """What the numbers depend on.

    Attributes:
        texts: Where the texts come from.
        pooling: How a text's tokens become one vector.
        max_length: Tokens of a text that count.
        dtype: What the weights were loaded as.
        k: Dimension of the subspaces.
        num_random: Number of pairs of random subspaces.
        remove: Number of principal components removed.
        seed: Seed of the texts and of the random subspaces.
    """

    texts: str
    pooling: str
    max_length: int
    dtype: str
    k: int
    num_random: int
    remove: int
    seed: int


def compare(models: Sequence[ModelStates], conditions: Conditions) -> list[Agreement]:
    """Compare every pair of models at every depth (arXiv 2605.17084).

    Each comparison draws its own random subspaces from the same seed: what else is compared
    changes nothing. What cannot be compared has a reason instead of numbers.

    Args:
        models: Two models or more, with the same texts and depths.
        conditions: Of them ``num_random``, ``remove`` and ``seed`` are used.
    """
    wanted = [(a, b, depth) for a, b in combinations(models, 2) for depth in models[0].layers]
    return [_compared(*one, conditions) for one in with_progress(wanted, description="pairs")]


def as_text(
    models: Sequence[ModelStates], rows: Sequence[Agreement], conditions: Conditions
) -> str:
    """Return a table for people, and what the numbers depend on."""
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
    """Return the same as a JSON object, null where a number means nothing."""
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
        "agreement": [dict(zip(row._fields, _known(row), strict=True)) for row in rows],
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_csv(
    models: Sequence[ModelStates], rows: Sequence[Agreement], conditions: Conditions, path: Path
) -> None:
    """Write one line for each pair and depth, in one step; what means nothing stays empty."""
    commits = {model.name: model.commit for model in models}
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*Agreement._fields, "commit_a", "commit_b", *Conditions._fields])
    for row in rows:
        writer.writerow([*_known(row), commits[row.model_a], commits[row.model_b], *conditions])
    write_atomically(path, text.getvalue().encode())


def draw(rows: Sequence[Agreement], path: Path) -> None:
    """Draw the three agreements of each pair and depth, in one step."""
    data = io.BytesIO()
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
    figure.savefig(data, format=path.suffix.removeprefix("."))
    write_atomically(path, data.getvalue())


def _compared(a: ModelStates, b: ModelStates, depth: str, conditions: Conditions) -> Agreement:
    layers = a.layers[depth], b.layers[depth]
    bad = a.num_nonfinite[layers[0]] + b.num_nonfinite[layers[1]]
    found, reason = _UNKNOWN, f"{bad} values are not finite"
    if not bad:
        found, reason = _agreement(a, b, layers, conditions)
    mean, std = found.random_mean, found.random_std
    return Agreement(
        *(a.name, b.name, depth, *layers),
        full=found.full,
        readout=found.readout,
        random_mean=mean,
        random_std=std,
        z=(found.readout - mean) / std if std >= MIN_NULL_STD else math.nan,
        num_texts=found.num_points,
        num_dropped=found.num_dropped,
        num_distinct_a=_num_distinct(a.states[layers[0]]),
        num_distinct_b=_num_distinct(b.states[layers[1]]),
        num_nonfinite=bad,
        reason=reason,
    )


def _agreement(
    a: ModelStates, b: ModelStates, layers: tuple[str, str], conditions: Conditions
) -> tuple[PairwiseAgreement, str]:
    """The agreement at these layers, and why there is none."""
    try:
        found = pairwise_agreement(
            *(a.states[layers[0]], b.states[layers[1]]),
            *(a.bases[layers[0]], b.bases[layers[1]]),
            num_random=conditions.num_random,
            remove=conditions.remove,
            generator=torch.Generator().manual_seed(conditions.seed),
        )
    except ValueError as error:
        # States without distances, such as one vector for all texts, cost only their own row.
        return _UNKNOWN, str(error)
    if math.isnan(found.full):
        # What the subspaces rank then is rounding.
        return _UNKNOWN, "all distances of a model are equal"
    return found, ""


def _num_distinct(states: Tensor) -> int:
    return len(torch.unique(states, dim=0))


def _known(row: Agreement) -> list[Any]:
    """The values, None instead of NaN."""
    return [None if isinstance(value, float) and math.isnan(value) else value for value in row]


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


_UNKNOWN = PairwiseAgreement(*(math.nan,) * 4, torch.empty(0), num_points=0, num_dropped=0)
