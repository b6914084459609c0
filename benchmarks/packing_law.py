"""Refit the capacity laws on our packings beside the published packings of the same pairs.

The constants depend on the window of k/d, so both sides are fitted to the same pairs: only the
packings differ. Ours is the median over seeds.

    python benchmarks/packing_law.py --runs packing_runs.jsonl
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import median

from toolkit.commands.capacity.laws import CapacityLaw, fitted_law
from toolkit.functional import percentile_interval
from toolkit.functional.capacity import PUBLISHED, Law
from toolkit.reference import PackingPoint, model_capacities, optimised_packing


def our_packings(path: Path, recipe: str) -> list[PackingPoint]:
    """Return the median over seeds for each pair."""
    groups = defaultdict(list)
    for line in path.read_text().splitlines():
        run = json.loads(line)
        if run["recipe"] == recipe:
            groups[run["num_vectors"], run["dim"]].append(run["max_abs_cosine"])
    return [PackingPoint(k, d, median(values)) for (k, d), values in sorted(groups.items())]


def describe(name: str, fitted: CapacityLaw) -> str:
    """Return the constants with their intervals, and the fit's quality."""
    constants = []
    for constant, value in fitted.constants.items():
        low, high = percentile_interval(fitted.resamples[constant].tolist())
        constants.append(f"{constant} = {value:.4f} ({low:.4f} to {high:.4f})")
    quality = fitted.fit
    error = f", MAPE {quality.mape:.2%}" if quality else ""
    return f"  {name:20s} {', '.join(constants)}{error}"


def compare(law: Law, ours: list[PackingPoint], published: list[PackingPoint]) -> None:
    """Print both fits and the published models' capacities by each."""
    mine, theirs = fitted_law(ours, law), fitted_law(published, law)
    print(f"{law} law, {len(ours)} pairs")
    print(describe("ours", mine))
    print(describe("published, same pairs", theirs))
    print(f"  {'published, all':20s} {dict(PUBLISHED[law])}")
    print(
        "  model                     d  epsilon   published    refit pub.   ours         ours/refit"
    )
    moves = []
    for model in model_capacities():
        if model.capacity is None:
            continue
        mine_log = mine.log10_capacity(model.dim, model.epsilon).value
        theirs_log = theirs.log10_capacity(model.dim, model.epsilon).value
        moves.append(mine_log - theirs_log)
        print(
            f"  {model.model:22s} {model.dim:5d}  {model.epsilon:.5f}  {model.capacity:.2e}     "
            f"{10**theirs_log:.2e}     {10**mine_log:.2e}     {10 ** moves[-1]:.2g}"
        )
    print(
        f"  capacities move by a factor of {10 ** min(moves):.2g} to {10 ** max(moves):.2g}, "
        f"median {10 ** median(moves):.2g}"
    )


def main() -> None:
    """Compare each law that the pairs can fix."""
    parser = argparse.ArgumentParser(description="laws refitted on our packings")
    parser.add_argument("--runs", type=Path, default=Path("packing_runs.jsonl"))
    parser.add_argument("--recipe", default="ours")
    options = parser.parse_args()
    known = {point[:2]: point for point in optimised_packing()}
    ours = [point for point in our_packings(options.runs, options.recipe) if point[:2] in known]
    published = [known[point[:2]] for point in ours]
    for point, other in zip(ours, published, strict=True):
        share = point.max_abs_cosine / other.max_abs_cosine
        print(
            f"k {point.num_vectors:5d}  d {point.dim:4d}  published {other.max_abs_cosine:.5f}  "
            f"ours {point.max_abs_cosine:.5f}  ratio {share:.4f}"
        )
    laws: tuple[Law, ...] = ("ratio", "full")
    for law in laws:
        try:
            compare(law, ours, published)
        except ValueError as error:
            print(f"{law} law: {error}")


if __name__ == "__main__":
    main()
