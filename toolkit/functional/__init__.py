"""Pure functions: tensors in, tensors or named tuples out."""

from toolkit.functional._eigenvalues import AlphaReQ
from toolkit.functional.agreement import PairwiseAgreement, pairwise_agreement
from toolkit.functional.capacity import (
    PackingLaw,
    deviation_for,
    fit_packing_law,
    log10_capacity,
    log10_model_capacity,
)
from toolkit.functional.correlation import average_ranks, spearman
from toolkit.functional.cosine import CosineMoments, cosine_moments
from toolkit.functional.cosine_pairs import (
    CosineHistogram,
    MeanAbsCosine,
    cosine_distances,
    cosine_histogram,
    mean_abs_cosine,
)
from toolkit.functional.deviation import EmbeddingDeviation, deviation_stderr, embedding_deviation
from toolkit.functional.law_uncertainty import (
    Interval,
    bootstrap_packing_law,
    deviation_interval,
    log10_capacity_interval,
    percentile_interval,
)
from toolkit.functional.packing import (
    PenaltyWithMax,
    gram_penalty,
    gram_penalty_with_max,
    max_abs_cosine,
    published_exponent,
    random_max_abs_cosine,
    welch_bound,
)
from toolkit.functional.pga import SubspacePGA, subspace_pga
from toolkit.functional.pooling import last_token, masked_mean
from toolkit.functional.probe import LinearProbe, fit_linear_probe, probe_accuracy
from toolkit.functional.reconstruction import (
    CellLayout,
    cell_layout,
    dense_reconstruction_loss,
    reconstruct,
    reconstruction_loss,
)
from toolkit.functional.scaling import PowerLaw, fit_power_law, local_slopes
from toolkit.functional.spectrum import (
    MeanCosine,
    alpha_req,
    component_alignment,
    condition_number,
    covariance_eigenvalues,
    mean_cosine,
    participation_ratio,
    rankme,
)
from toolkit.functional.subspace import haar_bases, readout_basis, remove_components
from toolkit.functional.superposition import (
    MeanSquaredOverlap,
    feature_norms,
    mean_squared_overlap,
    represented_fraction,
)
from toolkit.functional.superposition_theory import (
    slope_guide,
    strong_superposition_exponent,
    weak_superposition_loss,
)

__all__ = [
    "AlphaReQ",
    "CellLayout",
    "CosineHistogram",
    "CosineMoments",
    "EmbeddingDeviation",
    "Interval",
    "LinearProbe",
    "MeanAbsCosine",
    "MeanCosine",
    "MeanSquaredOverlap",
    "PackingLaw",
    "PairwiseAgreement",
    "PenaltyWithMax",
    "PowerLaw",
    "SubspacePGA",
    "alpha_req",
    "average_ranks",
    "bootstrap_packing_law",
    "cell_layout",
    "component_alignment",
    "condition_number",
    "cosine_distances",
    "cosine_histogram",
    "cosine_moments",
    "covariance_eigenvalues",
    "dense_reconstruction_loss",
    "deviation_for",
    "deviation_interval",
    "deviation_stderr",
    "embedding_deviation",
    "feature_norms",
    "fit_linear_probe",
    "fit_packing_law",
    "fit_power_law",
    "gram_penalty",
    "gram_penalty_with_max",
    "haar_bases",
    "last_token",
    "local_slopes",
    "log10_capacity",
    "log10_capacity_interval",
    "log10_model_capacity",
    "masked_mean",
    "max_abs_cosine",
    "mean_abs_cosine",
    "mean_cosine",
    "mean_squared_overlap",
    "pairwise_agreement",
    "participation_ratio",
    "percentile_interval",
    "probe_accuracy",
    "published_exponent",
    "random_max_abs_cosine",
    "rankme",
    "readout_basis",
    "reconstruct",
    "reconstruction_loss",
    "remove_components",
    "represented_fraction",
    "slope_guide",
    "spearman",
    "strong_superposition_exponent",
    "subspace_pga",
    "weak_superposition_loss",
    "welch_bound",
]
