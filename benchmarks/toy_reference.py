"""Run the published toy runs to their end and print loss against width.

The small run of arXiv 2505.10465: n 1000, six widths from 10 to 100, batch 2048, 20,000 steps.

    python benchmarks/toy_reference.py --exponents 0 1 2 --decays -1
    python benchmarks/toy_reference.py --exponents 1.5 2 --decays 0.11 0.33 0.56 0.78 1
"""

import argparse
import json
import time
import warnings

import lightning as L
import torch

from toolkit.data import PowerFrequencies, SparseFeatures
from toolkit.functional import fit_power_law, local_slopes, represented_fraction
from toolkit.models import SuperpositionAutoencoder

WIDTHS = [10, 15, 25, 39, 63, 100]


def run(
    exponent: float, decay: float, *, widths: list[int], steps: int, seed: int
) -> dict[str, object]:
    """Train one run and return its held-out losses, summed over features, and their fit."""
    L.seed_everything(seed, verbose=False)
    data = SparseFeatures(1000, PowerFrequencies(exponent), batch_size=2048)
    model = SuperpositionAutoencoder(1000, widths, weight_decay=decay)
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=steps,
        logger=False,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    start = time.perf_counter()
    trainer.fit(model, data)
    with torch.no_grad():
        losses = torch.stack([model.losses(batch) for batch in data.held_out()]).mean(dim=0)
    fit = fit_power_law(torch.tensor(widths), losses)
    slopes = local_slopes(torch.tensor(widths), losses)
    return {
        "exponent": exponent,
        "seed": seed,
        "widths": widths,
        "decay": decay,
        "losses": [round(loss, 5) for loss in losses.tolist()],
        "represented": [round(float(represented_fraction(w)), 4) for w in model.weights],
        "alpha_m": round(float(fit.exponent), 3),
        "stderr": round(float(fit.stderr), 3),
        "local_slopes": [round(slope, 2) for slope in slopes.tolist()],
        "seconds": round(time.perf_counter() - start),
    }


def main() -> None:
    """Run the grid that the command line names; one line of JSON a run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--exponents", type=float, nargs="+", default=[1.0])
    parser.add_argument("--decays", type=float, nargs="+", default=[-1.0])
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
    for exponent in options.exponents:
        for decay in options.decays:
            for seed in options.seeds:
                result = run(exponent, decay, widths=options.widths, steps=options.steps, seed=seed)
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
