"""Time the cost of watching a small language model: at a measurement, and between measurements.

    python benchmarks/language_model.py

Prints the seconds of one measurement of the model of configs/pocket.yaml, split by what is
measured, and the time of training steps with all callbacks attached but none due, over the time of
the same steps without callbacks.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import lightning as L
import torch
import yaml  # type: ignore[import-untyped]
from lightning.pytorch.callbacks import Callback

from callbacks import (
    EmbeddingDeviation,
    LinearProbe,
    Spectrum,
    SubspacePGA,
    TextSet,
    UnembeddingOverlap,
)
from toolkit.data import TextCorpus
from toolkit.measures import MEASURES, Subject
from toolkit.models import LanguageModel

POCKET = Path(__file__).parent.parent / "configs" / "pocket.yaml"
NEVER_DUE = [10**9]


class StepTimes(Callback):
    """Measures the time from one batch to the next, including callbacks."""

    def __init__(self) -> None:
        self.begins: list[float] = []

    def on_train_batch_start(  # noqa: D102 - a hook
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, batch_idx: int
    ) -> None:
        del trainer, pl_module, batch, batch_idx
        self.begins.append(time.perf_counter())

    def median_step(self) -> float:
        """Return the median seconds of a step, without the first steps."""
        pairs = list(zip(self.begins, self.begins[1:], strict=False))[5:]
        return median(end - begin for begin, end in pairs)


def train(
    settings: dict[str, Any], corpus: TextCorpus, *watchers: Callback
) -> tuple[float, LanguageModel]:
    """Train some steps under the watchers, and return a step's seconds and the model."""
    L.seed_everything(0, verbose=False)
    times = StepTimes()
    trainer = L.Trainer(
        accelerator="cpu",
        callbacks=[times, *watchers],
        max_steps=40,
        logger=False,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = LanguageModel(**settings["model"]["init_args"])
    trainer.fit(model, corpus)
    return times.median_step(), model


def print_measurement(new_subject: Callable[[], Subject], rounds: int) -> None:
    """Print the seconds of each part of one measurement."""
    parts: dict[str, Callable[[Subject], object]] = {
        "forward, test texts": lambda fresh: fresh.states("test"),
        "forward, train texts": lambda fresh: fresh.states("train"),
        **MEASURES,
    }
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(rounds):
        fresh = new_subject()
        for name, part in parts.items():
            begun = time.perf_counter()
            part(fresh)
            seconds[name].append(time.perf_counter() - begun)
    middles = {name: median(values) for name, values in seconds.items()}
    total = sum(middles.values())
    for name, value in middles.items():
        print(f"{name:22s} {value:8.3f} s  {value / total:6.1%}")
    print(f"{'one measurement':22s} {total:8.3f} s")


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description="what watching a language model costs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
    settings = yaml.safe_load(POCKET.read_text())
    corpus = TextCorpus(**settings["data"].get("init_args", {}))
    corpus.prepare_data()
    watcher = next(c for c in settings["trainer"]["callbacks"] if "SubspacePGA" in c["class_path"])
    texts = TextSet(**watcher["init_args"]["texts"])
    watchers: list[Callback] = [
        SubspacePGA(texts=texts, schedule=NEVER_DUE),
        LinearProbe(texts=texts, schedule=NEVER_DUE),
        Spectrum(texts=texts, schedule=NEVER_DUE),
        EmbeddingDeviation(schedule=NEVER_DUE),
        UnembeddingOverlap(schedule=NEVER_DUE),
    ]
    ratios = []
    for _ in range(options.rounds):
        bare, trained = train(settings, corpus)
        watched, _ = train(settings, corpus, *watchers)
        ratios.append(watched / bare)
        print(f"step {1e3 * bare:.1f} ms, watched {1e3 * watched:.1f} ms, x{watched / bare:.3f}")
    print(f"between measurements: x{median(ratios):.3f} of a step without callbacks")
    model = trained.model
    print_measurement(
        lambda: Subject(model, corpus.tokenizer, texts.load(), encoding=texts.encoding()),
        options.rounds,
    )


if __name__ == "__main__":
    main()
