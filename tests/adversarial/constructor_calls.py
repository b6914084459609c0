"""The public classes that are built from plain values: right arguments, and what they refuse."""

from collections.abc import Callable
from typing import Any

import torch

import callbacks
from tests.adversarial.bad_values import (
    Argument,
    anything_but,
    choice,
    draws,
    flag,
    integer,
    integers,
    names,
    number,
    numbers,
    pair,
    positive,
    seed,
    seeded,
    tensor,
    text,
)
from tests.adversarial.functional_calls import WIDE_RANKS, Call
from toolkit import data, metrics, models
from toolkit.lm.checkpoints.hub import HubRevisions
from toolkit.lm.checkpoints.lightning import LightningCheckpoints
from toolkit.lm.checkpoints.local import LocalFolders
from toolkit.lm.checkpoints.models import Models
from toolkit.optim import AdamW

SHARE = number(0.1, bad=(-0.1, 1.1))
BETAS = pair((0.9, 0.99), (1.0, 0.9), (-0.1, 0.9), (0.9, float("nan")), (True, False))
SCHEDULE = integers([0, 5], 0, single=True).refusing(zero=0, negative=-1, twice=[1, 1], name="lin")
HUGE = 10**12


def optional(argument: Argument) -> Argument:
    """The same argument, which may be left out."""
    return argument.without("None")


def _function(*_: Any) -> None:
    """Stands for an optimiser's class."""


_OPTIMIZER = optional(anything_but(lambda: _function))
PATHS = optional(anything_but(lambda: {"blocks": "layers"}, {"blocks": 1}, {1: "layers"}))
_LISTED = anything_but(lambda: {"blocks": "layers"}).bad["dict"]
PATHS = Argument(PATHS.right, {**PATHS.bad, "dict": _LISTED})
_PATTERN = names(["a", "b"]).without("text", "list ['a', 'a']")

_WHEN: Call = {
    "schedule": SCHEDULE,
    "on_error": choice("warn", optional=True),
}
_MODEL: Call = {
    "rows": choice("all"),
    "tokenizer": text("gpt2", optional=True),
    "attribute": text("model", optional=True),
    "paths": PATHS,
    **_WHEN,
}
_TEXTS: Call = {
    "texts": optional(anything_but(callbacks.TextSet)),
    "layers": names(["final"], optional=True),
    **_MODEL,
}
_WIDTH = integer(6).refusing(huge=10**9)
_VECTOR_WIDTH = integer(6).refusing(huge=10**15)

CONSTRUCTORS: dict[str, tuple[Callable[..., Any], Call]] = {
    "AlphaReQ": (metrics.AlphaReQ, {"num_features": _WIDTH, "fit_range": WIDE_RANKS}),
    "ConditionNumber": (metrics.ConditionNumber, {"num_features": _WIDTH, "centered": flag()}),
    "CosineMoments": (metrics.CosineMoments, {"num_features": _WIDTH}),
    "EmbeddingDeviation (metric)": (
        metrics.EmbeddingDeviation,
        {"num_features": _WIDTH, "num_sigma": number(2.0, bad=(-1,))},
    ),
    "MeanCosine": (metrics.MeanCosine, {"num_features": _VECTOR_WIDTH}),
    "ParticipationRatio": (
        metrics.ParticipationRatio,
        {"num_features": _WIDTH, "centered": flag()},
    ),
    "RankMe": (
        metrics.RankMe,
        {"num_features": _WIDTH, "centered": flag(), "eigenvalues": flag()},
    ),
    "CosineMoments.update": (
        metrics.CosineMoments(6).update,
        {"vectors": tensor(seeded(8, 6)).without("empty").refusing(wide=seeded(8, 7))},
    ),
    "MeanCosine.update": (
        metrics.MeanCosine(6).update,
        {"features": tensor(seeded(8, 6)).without("empty").refusing(wide=seeded(8, 7))},
    ),
    "RankMe.update": (
        metrics.RankMe(6).update,
        {"features": tensor(seeded(8, 6)).without("empty").refusing(wide=seeded(8, 7))},
    ),
    "SuperpositionAutoencoder": (
        models.SuperpositionAutoencoder,
        {
            "num_features": integer(8).refusing(huge=HUGE),
            "widths": integers([2, 3], 1).refusing(twice=[2, 2], huge=[HUGE]),
            "lr": positive(0.01),
            "bias_lr": positive(0.01, optional=True),
            "width_scaled_lr": flag(),
            "weight_decay": number(-1.0),
            "decay_mode": choice("auto"),
            "betas": BETAS,
            "warmup_fraction": SHARE,
            "lr_floor": SHARE,
            "weight_init_scale": number(1.0, bad=(-1,)),
            "bias_init_scale": number(1.0, bad=(-1,)),
            "loss_scale": positive(1.0),
            "step": choice("dense"),
            "optimizer": _OPTIMIZER,
        },
    ),
    "VectorPacking": (
        models.VectorPacking,
        {
            "num_vectors": integer(8, 2).refusing(huge=HUGE),
            "dim": integer(4).refusing(huge=HUGE),
            "exponent": number(4.0, bad=(1.9, 0, 1_000_001, 1e9)).refusing(
                falling=[400, 4],
                single=[4],
                three=[4, 8, 16],
                words=["a", "b"],
                below=(1, 4),
                above=(4, 1e9),
            ),
            "lr": positive(0.01),
            "warmup_fraction": SHARE,
            "lr_floor": SHARE,
            "betas": BETAS,
            "optimizer": _OPTIMIZER,
        },
    ),
    "LanguageModel": (
        models.LanguageModel,
        {
            "config": anything_but(
                lambda: {"model_type": "gpt_neox"}, {"model_type": "nope"}, {1: 2}
            ),
            "pretrained": Argument(lambda: None, text("a").bad).without("None", "NUL"),
            "revision": Argument(lambda: None, text("a").bad).without("None", "NUL"),
            "dtype": choice("bfloat16"),
            "lr": positive(0.01),
            "betas": BETAS,
            "weight_decay": number(0.1),
            "warmup_fraction": SHARE,
            "lr_floor": SHARE,
            "optimizer": _OPTIMIZER,
        },
    ),
    "AdamW": (
        lambda **options: AdamW([torch.ones(2, 2)], **options),
        {
            "lr": number(0.01, bad=(-0.1,)),
            "betas": BETAS,
            "eps": positive(1e-8),
            "weight_decay": number(0.1),
            "decay_mode": choice("plain"),
        },
    ),
    "SparseFeatures": (
        data.SparseFeatures,
        {
            "num_features": integer(8).refusing(huge=HUGE),
            "frequencies": optional(anything_but(data.UniformFrequencies, {"class_path": []})),
            "density": positive(1.0).refusing(dense=9.0),
            "batch_size": integer(4).refusing(huge=10**15),
            "num_held_out": integer(2),
            "steps_per_epoch": integer(2, optional=True),
            "seed": seed(optional=True),
        },
    ),
    "PowerFrequencies": (data.PowerFrequencies, {"exponent": number(1.0, bad=(-1,))}),
    "ExponentialFrequencies": (data.ExponentialFrequencies, {"scale": positive(40.0)}),
    "LinearFrequencies": (data.LinearFrequencies, {}),
    "UniformFrequencies": (data.UniformFrequencies, {}),
    "Frequencies.probabilities": (
        data.LinearFrequencies().probabilities,
        {
            "num_features": integer(8, 2).refusing(huge=10**15),
            "density": positive(1.0).refusing(dense=9.0),
        },
    ),
    "TextCorpus": (
        data.TextCorpus,
        {
            "source": text("texts", optional=True),
            "subset": text("all", optional=True),
            "split": text("train"),
            "tokenizer": text("gpt2", optional=True),
            "vocab_size": integer(4096, 257).refusing(huge=HUGE),
            "block_size": integer(16, 2),
            "batch_size": integer(2),
            "held_out_fraction": number(0.1, bad=(0, 0.5, -0.1)),
            "cache_dir": text("cache", optional=True),
            "seed": seed(optional=True),
        },
    ),
    "load_docstring_topics": (
        data.load_docstring_topics,
        {"num_train": integer(4, 4), "num_test": integer(4, 4), "seed": seed()},
    ),
    "load_texts": (
        data.load_texts,
        {
            "name": text("docstrings"),
            "num_train": integer(4, 4),
            "num_test": integer(4, 4),
            "seed": seed(),
        },
    ),
    "TextSet": (
        callbacks.TextSet,
        {
            "source": text("ag_news"),
            "num_train": integer(10),
            "num_test": integer(10),
            "seed": seed(),
            "max_length": integer(8),
            "pooling": choice("last"),
            "skip_first": flag(),
            "batch_size": integer(4),
        },
    ),
    "Schedule": (callbacks.Schedule, {"schedule": SCHEDULE}),
    "CheckpointSchedule": (
        callbacks.CheckpointSchedule,
        {
            "schedule": SCHEDULE,
            "dirpath": text("folder", optional=True),
            "save_hf": flag(),
        },
    ),
    "EmbeddingDeviation": (
        callbacks.EmbeddingDeviation,
        {"num_sigma": number(2.0, bad=(-1,)), **_MODEL},
    ),
    "UnembeddingOverlap": (callbacks.UnembeddingOverlap, _MODEL),
    "LinearProbe": (
        callbacks.LinearProbe,
        {"l2": numbers([0.1, 1.0]), "max_iter": integer(20), **_TEXTS},
    ),
    "Spectrum": (callbacks.Spectrum, {"fit_range": WIDE_RANKS, **_TEXTS}),
    "SubspacePGA": (
        callbacks.SubspacePGA,
        {
            "k": integer(2, optional=True),
            "num_null": draws(3, 2),
            "remove": integers([1, 2], 0, single=True).refusing(twice=[1, 1]),
            "seed": seed(),
            "center_unembedding": flag(),
            "fold_norm": flag(),
            **_TEXTS,
        },
    ),
    "TwoNN": (
        callbacks.TwoNN,
        {"discarded_share": number(0.2, bad=(0, 1, -0.1, 1.5)), **_TEXTS},
    ),
    "PackingGeometry": (callbacks.PackingGeometry, _WHEN),
    "ScalingLaw": (callbacks.ScalingLaw, _WHEN),
    "SuperpositionGeometry": (
        callbacks.SuperpositionGeometry,
        {"represented_threshold": number(0.5, bad=(-1,)), **_WHEN},
    ),
    "LocalFolders": (
        LocalFolders,
        {"pattern": _PATTERN, "name": text("m", optional=True), "allow_pickle": flag()},
    ),
    "LightningCheckpoints": (
        LightningCheckpoints,
        {
            "pattern": _PATTERN,
            "name": text("m", optional=True),
            "tokenizer": text("gpt2", optional=True),
        },
    ),
    "Models": (Models, {"names": names(["a", "b"]), "allow_pickle": flag()}),
    "HubRevisions": (
        HubRevisions,
        {
            "repo": text("a/b").refusing(path="../c"),
            "steps": integers([0, 5], 0).refusing(
                twice=[1, 1], range="1:2", long="0:1000000:1", far=f"0:{2**53}:{2**40}"
            ),
            "pattern": text(r"step(\d+)").refusing(group="step", broken="("),
            "strict": flag(),
            "allow_pickle": flag(),
        },
    ),
}
TABLE = {name: arguments for name, (_, arguments) in CONSTRUCTORS.items()}
