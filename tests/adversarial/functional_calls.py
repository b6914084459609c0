"""The public functions of `toolkit.functional`: right arguments, and what they refuse."""

import numpy as np
import torch

from tests.adversarial.bad_values import (
    BEYOND,
    Argument,
    anything_but,
    choice,
    draws,
    flag,
    generator,
    integer,
    integers,
    number,
    numbers,
    pair,
    positive,
    seeded,
    tensor,
)
from toolkit import functional as F

ROWS = seeded(12, 6)
LAYERS = seeded(2, 12, 6)
BASIS = torch.linalg.qr(seeded(6, 2)).Q
WIDTHS = torch.tensor([4, 8, 16, 32])
LOSSES = torch.tensor([1.0, 0.5, 0.25, 0.13])
LABELS = torch.arange(12) % 3
MASK = torch.tensor([[1, 1, 0], [0, 1, 1]])
# k, d and epsilon of packings
PACKED = torch.tensor([2000.0, 4000.0, 8000.0, 2000.0, 4000.0, 8000.0])
DIMS = torch.tensor([64, 64, 64, 128, 128, 128])
EPSILONS = torch.tensor([0.27, 0.29, 0.31, 0.18, 0.2, 0.215])
CELLS = (torch.tensor([0, 0, 2]), torch.tensor([1, 3, 0]), torch.tensor([0.5, 1.5, 1.0]))

Call = dict[str, Argument]


def _probe() -> F.LinearProbeResult:
    return F.fit_linear_probe(ROWS, LABELS)


def _constants() -> dict[str, torch.Tensor]:
    return {"C": torch.tensor([1.2, 1.3, 1.4]).double()}


_FEATURES = tensor(LAYERS).without("deep")
_DEEP_FEATURES = _FEATURES._replace(bad=_FEATURES.bad | {"deep": lambda: LAYERS[None]})
_CONSTANTS = anything_but(
    _constants, {}, {"C": 1.0}, {"a": torch.ones(3)}, {"C": torch.ones(2, 2)}, {"C": torch.ones(0)}
)
_PACKINGS: Call = {
    "num_vectors": tensor(PACKED, finite=False),
    "dims": tensor(DIMS, finite=False),
    "epsilons": tensor(EPSILONS, finite=False),
    "law": choice("jl"),
}
_WEIGHT = tensor(seeded(5, 3), finite=False)
_BIAS = tensor(seeded(5), finite=False)
WIDE_RANKS = pair((1, 6), (1.5, 8), (0, 5), (5, 5), (8, 2), (1, float("inf")), (True, 6))

FUNCTIONS: dict[str, Call] = {
    "alpha_req": {"features": tensor(ROWS), "fit_range": WIDE_RANKS},
    "average_ranks": {"values": tensor(LOSSES).without("flat")},
    "bootstrap_packing_law": {
        **_PACKINGS,
        "num_resamples": draws(4, 2).refusing(huge=10**15),
        "generator": generator(),
    },
    "cell_layout": {
        "row": tensor(CELLS[0], integer=True).refusing(
            unsorted=torch.tensor([2, 0, 0]),
            unsorted_inside=torch.tensor([0, 1, 0]),
            beyond=torch.tensor([0, 0, 3]),
            negative=torch.tensor([-1, 0, 2]),
            longer=torch.tensor([0, 0, 2, 2]),
        ),
        "feature": tensor(CELLS[1], integer=True).refusing(
            negative=torch.tensor([-1, 0, 2]), twice=torch.tensor([1, 1, 0])
        ),
        "value": tensor(CELLS[2], finite=False),
        "num_rows": integer(3),
    },
    "component_alignment": {
        "features": tensor(ROWS),
        "basis": tensor(BASIS).refusing(skewed=seeded(6, 2), rows=torch.eye(5)[:, :2]),
        "num_components": integer(1).refusing(huge=7),
    },
    "condition_number": {"features": _DEEP_FEATURES, "centered": flag()},
    "cosine_distances": {"vectors": tensor(ROWS), "chunk_size": integer(4)},
    "cosine_histogram": {
        "vectors": tensor(ROWS),
        "num_bins": integer(10).refusing(huge=10**15),
        "chunk_size": integer(4),
    },
    "cosine_moments": {"vectors": tensor(ROWS), "chunk_size": integer(4)},
    "covariance_eigenvalues": {"features": _DEEP_FEATURES, "centered": flag()},
    "dense_reconstruction_loss": {
        "weight": _WEIGHT,
        "bias": _BIAS,
        "inputs": tensor(seeded(4, 5), finite=False),
    },
    "deviation_for": {
        "dim": integer(64).of_any_size(),
        "num_vectors": number(1000.0, bad=(0, 0.5, -1)).without("huge"),
        "law": choice("full"),
        "C": positive(0.5),
        "a": positive(1.0),
    },
    "deviation_interval": {
        "dim": integer(64).of_any_size(),
        "num_vectors": number(1000.0, bad=(0, 0.5, -1)).without("huge"),
        "constants": _CONSTANTS,
        "law": choice("jl"),
        "level": number(0.9, bad=(0, 1, -0.1, 1.5)),
    },
    "deviation_stderr": {
        "embeddings": tensor(ROWS),
        "num_sigma": number(2.0, bad=(-1,)),
        "num_blocks": integer(3, 2),
    },
    "embedding_deviation": {"embeddings": tensor(ROWS), "num_sigma": number(2.0, bad=(-1,))},
    "feature_norms": {"weight": tensor(ROWS)},
    "fit_linear_probe": {
        "features": _DEEP_FEATURES,
        "labels": tensor(LABELS, integer=True).refusing(
            gap=LABELS * 2, constant=LABELS * 0, short=LABELS[:5], negative=LABELS - 1
        ),
        "l2": numbers([0.1, 1.0]),
        "max_iter": integer(20),
        "tol": positive(1e-3),
        "validation_share": number(0.2, bad=(0, 1, -0.1, 1.5)),
        "generator": generator(),
    },
    "fit_packing_law": _PACKINGS,
    "fit_power_law": {"x": tensor(WIDTHS, finite=False), "y": tensor(LOSSES, finite=False)},
    "gram_penalty": {
        "vectors": tensor(ROWS),
        "exponent": number(4, bad=(0, 1.9, -2, 1_000_001, 1e9, 1e12, 2.0**63)),
        "scale": number(0.5, bad=(-0.1,), optional=True),
    },
    "haar_bases": {
        "dim": integer(6).refusing(huge=10**15),
        "k": integer(2).refusing(above=7),
        "num": integer(3).refusing(huge=10**15),
        "generator": generator(optional=False),
    },
    "last_token": {
        "hidden": tensor(seeded(2, 3, 4)).without("nan", "inf", "-inf", "deep"),
        "mask": tensor(MASK).without("bool").refusing(two=MASK * 2, half=MASK / 2, none=MASK * 0),
    },
    "local_slopes": {"x": tensor(WIDTHS, finite=False), "y": tensor(LOSSES, finite=False)},
    "log10_capacity": {
        "dim": integer(64).of_any_size(),
        "epsilon": positive(0.1),
        "law": choice("full"),
        "C": positive(0.5),
        "a": positive(1.0),
    },
    "log10_capacity_interval": {
        "dim": integer(64).of_any_size(),
        "epsilon": positive(0.1),
        "constants": _CONSTANTS,
        "law": choice("jl"),
        "rounding": number(0.001, bad=(-1,)),
        "stderr": number(0.001, bad=(-1,)),
        "level": number(0.9, bad=(0, 1, -0.1, 1.5)),
        "generator": generator(),
    },
    "log10_model_capacity": {
        "deviation": anything_but(lambda: F.embedding_deviation(ROWS)),
        "dim": integer(6).of_any_size(),
    },
    "masked_mean": {
        "hidden": tensor(seeded(2, 3, 4)).without("deep"),
        "mask": tensor(MASK).without("bool").refusing(two=MASK * 2, half=MASK / 2, none=MASK * 0),
    },
    "max_abs_cosine": {"vectors": tensor(ROWS)},
    "mean_abs_cosine": {
        "vectors": tensor(ROWS),
        "num_sampled": integer(8, 8, optional=True).refusing(above=13),
        "generator": generator(),
        "chunk_size": integer(4),
    },
    "mean_cosine": {"features": _DEEP_FEATURES},
    "mean_squared_overlap": {"weight": tensor(ROWS)},
    "norm_percentiles": {
        "weight": tensor(ROWS),
        "percents": integers([5, 50], 0).refusing(above=[101]),
    },
    "pairwise_agreement": {
        "hidden_a": tensor(ROWS),
        "hidden_b": tensor(seeded(12, 6)).refusing(other=seeded(11, 6)),
        "basis_a": tensor(BASIS),
        "basis_b": tensor(BASIS),
        "num_random": draws(3, 2),
        "remove": integer(1, 0).refusing(above=6),
        "generator": generator(),
    },
    "participation_ratio": {"features": _DEEP_FEATURES, "centered": flag()},
    "percentile_interval": {
        "values": integers([1, 2, 3], 0)
        .without("list [1.5]", "list [-1]", "set", "generator", "tensor")
        .without(*(f"list {label}" for label in BEYOND))
        .refusing(**{"list [inf]": [float("inf")], "no dimension": torch.tensor(2.0)})
        .refusing(array=np.array(2.0)),
        "level": number(0.9, bad=(0, 1, -0.1, 1.5)),
    },
    "probe_accuracy": {
        "probe": anything_but(_probe),
        "features": tensor(ROWS),
        "labels": tensor(LABELS, integer=True).refusing(beyond=LABELS + 1, negative=LABELS - 1),
    },
    "published_exponent": {
        "num_vectors": integer(100).of_any_size(),
        "dim": integer(64, 2).of_any_size(),
    },
    "random_max_abs_cosine": {
        "num_vectors": integer(5, 2).refusing(huge=10**15),
        "dim": integer(3),
        "num_draws": draws(2, 1),
        "generator": generator(),
    },
    "rankme": {"features": _DEEP_FEATURES, "centered": flag(), "eigenvalues": flag()},
    "readout_basis": {
        "unembedding": tensor(ROWS),
        "k": integer(2).refusing(above=7),
        "centered": flag(),
    },
    "reconstruct": {
        "weight": _WEIGHT,
        "bias": _BIAS,
        "inputs": tensor(seeded(4, 5), finite=False),
    },
    "reconstruction_loss": {
        "weight": _WEIGHT,
        "bias": _BIAS,
        "cells": anything_but(
            lambda: F.cell_layout(*CELLS, 3),
            F.cell_layout(CELLS[0], CELLS[1] + 2, CELLS[2], 3),
            F.cell_layout(*CELLS[:2], CELLS[2].double(), 3),
        ),
    },
    "remove_components": {
        "hidden": _DEEP_FEATURES,
        "num_components": integer(1, 0).refusing(above=6),
    },
    "represented_fraction": {"weight": tensor(ROWS), "threshold": number(0.5, bad=(-1,))},
    "slope_guide": {
        "x": tensor(WIDTHS).refusing(zero=WIDTHS * 0),
        "y": tensor(LOSSES).refusing(negative=-LOSSES),
        "exponent": number(1.0),
    },
    "spearman": {
        "x": tensor(LOSSES).without("flat"),
        "y": tensor(LOSSES).without("flat").refusing(longer=torch.ones(5)),
    },
    "strong_superposition_exponent": {
        "frequency_exponent": number(1.0, bad=(-0.1,), optional=True)
    },
    "subspace_pga": {
        "hidden": _DEEP_FEATURES,
        "basis": tensor(BASIS).refusing(skewed=seeded(6, 2), rows=torch.eye(5)[:, :2]),
        "num_null": draws(3, 2),
        "remove": integers([1, 2], 0, single=True).refusing(above=6, all=[0, 6]),
        "generator": generator(),
        "exact": flag(True),
    },
    "two_nn": {
        "features": tensor(ROWS),
        "discarded_share": number(0.2, bad=(0, 1, -0.1, 1.5)),
        "chunk_size": integer(4),
    },
    "weak_superposition_loss": {
        "probabilities": tensor(LOSSES).refusing(above=LOSSES * 2, negative=-LOSSES),
        "widths": integers([0, 2], 0),
    },
    "welch_bound": {
        "num_vectors": integer(8).of_any_size(),
        "dim": integer(3).of_any_size(),
    },
}
FUNCTIONS["gram_penalty_with_max"] = FUNCTIONS["gram_penalty"]
