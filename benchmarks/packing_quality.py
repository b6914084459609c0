"""Pack by the toolkit's recipe or the published one, and compare with the published packings.

Each finished run is one line of JSON; started again, the script runs only the missing runs. The
toolkit's recipe is `VectorPacking` as it is by default; it was chosen on k = 2000 with seeds 100
and 101, so that other sizes and seeds test it.

    python benchmarks/packing_quality.py --seeds 0 1 2
    python benchmarks/packing_quality.py --recipe published --num_vectors 2000 --dims 32 64 128
"""

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import lightning as L
import torch

from toolkit.functional import max_abs_cosine, welch_bound
from toolkit.models import VectorPacking
from toolkit.reference import optimised_packing

RECIPES: dict[str, dict[str, Any]] = {
    "ours": {},
    "published": {"exponent": "published", "lr": "published", "betas": (0.9, 0.999)},
}
STEPS = {"ours": 1500, "published": 5000}
KEY = ("recipe", "num_vectors", "dim", "seed", "steps")


def run(recipe: str, num_vectors: int, dim: int, seed: int, steps: int) -> dict[str, Any]:
    """Train one packing and return its record, measured anew on the vectors it returns."""
    L.seed_everything(seed, verbose=False)
    model = VectorPacking(num_vectors, dim, **RECIPES[recipe])
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=steps,
        logger=False,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    begun = time.process_time()
    trainer.fit(model)
    return {
        **dict(zip(KEY, (recipe, num_vectors, dim, seed, steps), strict=True)),
        "max_abs_cosine": max_abs_cosine(model()),
        "last_max_abs_cosine": max_abs_cosine(model.vectors),
        "restarts": int(model.restarts),
        "seconds": round(time.process_time() - begun, 1),
    }


def read_runs(path: Path) -> list[dict[str, Any]]:
    """Return the finished runs; an incomplete last line, left by a kill, is cut off."""
    if not path.exists():
        return []
    text = path.read_text()
    complete = text[: text.rfind("\n") + 1]
    if complete != text:
        path.write_text(complete)
    return [json.loads(line) for line in complete.splitlines()]


def wanted(options: argparse.Namespace) -> Iterator[tuple[str, int, int, int, int]]:
    """Name the runs that the options ask for, cheap ones first."""
    steps = options.steps or STEPS[options.recipe]
    for num_vectors in sorted(options.num_vectors):
        for dim in sorted(options.dims):
            for seed in options.seeds:
                yield options.recipe, num_vectors, dim, seed, steps


def print_table(runs: list[dict[str, Any]]) -> None:
    """Print published, ours over the seeds, Welch, for each recipe, length and pair."""
    published = {(k, d): cosine for k, d, cosine in optimised_packing()}
    groups = defaultdict(list)
    for finished in runs:
        groups[tuple(finished[name] for name in KEY if name != "seed")].append(finished)
    titles = "published  min     median  max     Welch   max/publ. runs restarts"
    print(f"recipe     steps  k      d     {titles}")
    for (recipe, num_vectors, dim, steps), members in sorted(groups.items()):
        known = published.get((num_vectors, dim), float("nan"))
        values = sorted(member["max_abs_cosine"] for member in members)
        restarts = sum(member["restarts"] for member in members)
        print(
            f"{recipe:9s}  {steps:5d}  {num_vectors:5d}  {dim:4d}  {known:9.5f}  {values[0]:.5f} "
            f"{median(values):.5f} {values[-1]:.5f} {welch_bound(num_vectors, dim):.5f} "
            f"{values[-1] / known:9.4f} {len(values):4d} {restarts:8d}"
        )


def main() -> None:
    """Run the missing packings, then print the table of all packings in the file."""
    parser = argparse.ArgumentParser(description="packings beside the published ones")
    parser.add_argument("--recipe", choices=list(RECIPES), default="ours")
    parser.add_argument("--num_vectors", type=int, nargs="+", default=[2000, 4000])
    parser.add_argument("--dims", type=int, nargs="+", default=[32, 64, 128, 256, 512])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="instead of 1500, published 5000")
    parser.add_argument("--runs", type=Path, default=Path("packing_runs.jsonl"))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
    done = {tuple(finished[name] for name in KEY) for finished in read_runs(options.runs)}
    for key in wanted(options):
        if key not in done:
            line = json.dumps(run(*key))
            print(line, flush=True)
            with options.runs.open("a") as file:
                file.write(f"{line}\n")
    print_table(read_runs(options.runs))


if __name__ == "__main__":
    main()
