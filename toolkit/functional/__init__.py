"""Pure functions: tensors in, tensors or named tuples out."""

import sys
import warnings
from typing import TYPE_CHECKING

from toolkit.functional._eigenvalues import AlphaReQResult
from toolkit.functional.agreement import PairwiseAgreementResult, pairwise_agreement
from toolkit.functional.capacity import (
    PackingLawResult,
    deviation_for,
    fit_packing_law,
    log10_capacity,
    log10_model_capacity,
)
from toolkit.functional.correlation import average_ranks, spearman
from toolkit.functional.cosine import CosineMomentsResult, cosine_moments
from toolkit.functional.cosine_pairs import (
    CosineHistogramResult,
    MeanAbsCosineResult,
    cosine_distances,
    cosine_histogram,
    mean_abs_cosine,
)
from toolkit.functional.deviation import (
    EmbeddingDeviationResult,
    deviation_stderr,
    embedding_deviation,
)
from toolkit.functional.intrinsic_dimension import TwoNNResult, two_nn
from toolkit.functional.law_uncertainty import (
    IntervalResult,
    bootstrap_packing_law,
    deviation_interval,
    log10_capacity_interval,
    percentile_interval,
)
from toolkit.functional.packing import (
    PenaltyWithMaxResult,
    gram_penalty,
    gram_penalty_with_max,
    max_abs_cosine,
    published_exponent,
    random_max_abs_cosine,
    welch_bound,
)
from toolkit.functional.pga import SubspacePGAResult, subspace_pga
from toolkit.functional.pooling import last_token, masked_mean
from toolkit.functional.probe import LinearProbeResult, fit_linear_probe, probe_accuracy
from toolkit.functional.reconstruction import (
    CellLayoutResult,
    cell_layout,
    dense_reconstruction_loss,
    reconstruct,
    reconstruction_loss,
)
from toolkit.functional.scaling import PowerLawResult, fit_power_law, local_slopes
from toolkit.functional.spectrum import (
    MeanCosineResult,
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
    MeanSquaredOverlapResult,
    feature_norms,
    mean_squared_overlap,
    norm_percentiles,
    represented_fraction,
)
from toolkit.functional.superposition_theory import (
    slope_guide,
    strong_superposition_exponent,
    weak_superposition_loss,
)

__all__ = [
    "AlphaReQResult",
    "CellLayoutResult",
    "CosineHistogramResult",
    "CosineMomentsResult",
    "EmbeddingDeviationResult",
    "IntervalResult",
    "LinearProbeResult",
    "MeanAbsCosineResult",
    "MeanCosineResult",
    "MeanSquaredOverlapResult",
    "PackingLawResult",
    "PairwiseAgreementResult",
    "PenaltyWithMaxResult",
    "PowerLawResult",
    "SubspacePGAResult",
    "TwoNNResult",
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
    "norm_percentiles",
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
    "two_nn",
    "weak_superposition_loss",
    "welch_bound",
]

# The old names of results, without "Result" at their end, stay for one version.
if TYPE_CHECKING:
    AlphaReQ = AlphaReQResult
    CellLayout = CellLayoutResult
    CosineHistogram = CosineHistogramResult
    CosineMoments = CosineMomentsResult
    EmbeddingDeviation = EmbeddingDeviationResult
    Interval = IntervalResult
    LinearProbe = LinearProbeResult
    MeanAbsCosine = MeanAbsCosineResult
    MeanCosine = MeanCosineResult
    MeanSquaredOverlap = MeanSquaredOverlapResult
    PackingLaw = PackingLawResult
    PairwiseAgreement = PairwiseAgreementResult
    PenaltyWithMax = PenaltyWithMaxResult
    PowerLaw = PowerLawResult
    SubspacePGA = SubspacePGAResult
else:
    _RENAMED = (
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
    )
    _OLD_NAMES = {name: globals()[f"{name}Result"] for name in _RENAMED}
    # A pickle names the module that defines the class.
    for _name, _result in _OLD_NAMES.items():
        setattr(sys.modules[_result.__module__], _name, _result)

    def __getattr__(name: str) -> type:
        if name not in _OLD_NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        warnings.warn(
            f"{__name__}.{name} is now called {name}Result; the next version drops the old name",
            DeprecationWarning,
            stacklevel=2,
        )
        # The next look-up finds the name here, without a warning.
        return globals().setdefault(name, _OLD_NAMES[name])
