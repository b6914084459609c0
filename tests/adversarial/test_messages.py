"""A whole message for each pure function: what was expected, what came, what to do."""

import re

import pytest

from tests.adversarial.functional_calls import FUNCTIONS
from tests.adversarial.trials import right_arguments
from toolkit import functional

NOT_FINITE = "expected finite values, got 1 non-finite of {}; repair or drop them first"
LAW = "expected 'full', 'ratio' or 'jl', got 'nope'"
FEWER = "expected fewer than min(N, d) = 6 components, got 6; remove fewer"
NO_TEXT = "expected a real token in every text, got 2 of 2 without; drop empty texts"
OTHER_WIDTH = (
    "expected 6 rows, the width of the hidden states, got shape (5, 2); pass the basis of the "
    "same model"
)
# The function, its argument, the bad value's label in the table of all calls, and the message.
REFUSALS = [
    (
        "alpha_req",
        "fit_range",
        "pair (8, 2)",
        "expected two integers, 1 <= first < last, got (8, 2)",
    ),
    ("average_ranks", "values", "nan", NOT_FINITE.format(4)),
    (
        "bootstrap_packing_law",
        "num_resamples",
        "too many",
        "expected an integer from 2 to 1,000,000, got 1000001",
    ),
    (
        "cell_layout",
        "row",
        "unsorted",
        "expected non-decreasing samples, got 2 before 0; sort the cells by row",
    ),
    ("component_alignment", "basis", "rows", OTHER_WIDTH),
    ("condition_number", "features", "nan", NOT_FINITE.format(144)),
    ("cosine_distances", "vectors", "nan", NOT_FINITE.format(72)),
    ("cosine_histogram", "num_bins", "too small", "expected an integer of at least 1, got 0"),
    ("cosine_moments", "chunk_size", "float", "expected an integer of at least 1, got 4.5"),
    ("covariance_eigenvalues", "centered", "one", "expected True or False, got 1"),
    ("dense_reconstruction_loss", "inputs", "flat", "expected shape (B, 5), got (20,)"),
    ("deviation_for", "law", "unknown", LAW),
    (
        "deviation_interval",
        "constants",
        "text",
        "expected C of law 'jl', got '3'; take them from bootstrap_packing_law",
    ),
    ("deviation_stderr", "num_blocks", "too small", "expected an integer of at least 2, got 1"),
    ("embedding_deviation", "num_sigma", "-1", "expected a finite number of at least 0, got -1"),
    ("feature_norms", "weight", "inf", NOT_FINITE.format(72)),
    (
        "fit_linear_probe",
        "labels",
        "gap",
        "expected 0..2 for 3 classes, got 0..4; number the classes from 0 without gaps",
    ),
    ("fit_packing_law", "law", "unknown", LAW),
    ("fit_power_law", "x", "empty", "expected at least one value, got shape (0,)"),
    ("gram_penalty", "exponent", "1.9", "expected a finite number of at least 2, got 1.9"),
    ("gram_penalty_with_max", "scale", "-0.1", "expected a finite number of at least 0, got -0.1"),
    (
        "haar_bases",
        "k",
        "above",
        "expected at most d = 6 dimensions, got k = 7; choose a smaller subspace",
    ),
    ("last_token", "mask", "none", NO_TEXT),
    ("local_slopes", "y", "empty", "expected at least one value, got shape (0,)"),
    ("log10_capacity", "epsilon", "0", "expected a positive finite number, got 0"),
    ("log10_capacity_interval", "level", "1.5", "expected a share above 0 and below 1, got 1.5"),
    ("log10_model_capacity", "deviation", "text", "expected an EmbeddingDeviationResult, got str"),
    ("masked_mean", "mask", "none", NO_TEXT),
    ("max_abs_cosine", "vectors", "nan", NOT_FINITE.format(72)),
    (
        "mean_abs_cosine",
        "num_sampled",
        "above",
        "expected at most the 12 non-zero rows, got 13; pass None to visit them all",
    ),
    ("mean_cosine", "features", "nan", NOT_FINITE.format(144)),
    ("mean_squared_overlap", "weight", "nan", NOT_FINITE.format(72)),
    ("norm_percentiles", "percents", "above", "expected an integer from 0 to 100, got 101"),
    (
        "pairwise_agreement",
        "hidden_b",
        "other",
        "expected the 12 texts of hidden_a, got 11; pass both models' states of the same texts",
    ),
    ("participation_ratio", "features", "nan", NOT_FINITE.format(144)),
    ("percentile_interval", "values", "empty", "expected at least one number, got []"),
    (
        "probe_accuracy",
        "labels",
        "beyond",
        "expected classes 0..2 of the probe, got 1..3; drop the rows of unknown classes",
    ),
    ("published_exponent", "dim", "too small", "expected an integer of at least 2, got 1"),
    (
        "random_max_abs_cosine",
        "num_vectors",
        "too small",
        "expected an integer of at least 2, got 1",
    ),
    ("rankme", "eigenvalues", "one", "expected True or False, got 1"),
    (
        "readout_basis",
        "k",
        "above",
        "expected at most min(V, d) = 6, got 7; choose a smaller subspace",
    ),
    ("reconstruct", "inputs", "flat", "expected shape (B, 5), got (20,)"),
    ("reconstruction_loss", "cells", "text", "expected a CellLayoutResult, got str"),
    ("remove_components", "num_components", "above", FEWER),
    ("represented_fraction", "threshold", "-1", "expected a finite number of at least 0, got -1"),
    ("slope_guide", "x", "zero", "expected positive numbers, got 0"),
    ("spearman", "y", "longer", "expected the shape of x, (4,), got (5,); pass paired values"),
    (
        "strong_superposition_exponent",
        "frequency_exponent",
        "-0.1",
        "expected a finite number of at least 0, got -0.1",
    ),
    ("subspace_pga", "basis", "rows", OTHER_WIDTH),
    ("two_nn", "discarded_share", "1.5", "expected a share above 0 and below 1, got 1.5"),
    (
        "weak_superposition_loss",
        "probabilities",
        "above",
        "expected numbers between 0 and 1, got 0.26 to 2",
    ),
    ("welch_bound", "num_vectors", "too small", "expected an integer of at least 1, got 0"),
]


@pytest.mark.parametrize(("name", "argument", "label", "message"), REFUSALS)
def test_message(name: str, argument: str, label: str, message: str) -> None:
    arguments = FUNCTIONS[name]
    given = right_arguments(arguments) | {argument: arguments[argument].bad[label]()}
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(f'{argument}: {message}')}$"):
        getattr(functional, name)(**given)


def test_every_function_has_a_message() -> None:
    assert sorted({name for name, *_ in REFUSALS}) == sorted(FUNCTIONS)
