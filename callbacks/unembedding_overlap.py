"""Is the superposition of the unembedding strong: every row there, overlaps about 1/m."""

import math
from typing import ClassVar

from callbacks.language_model import LanguageModelCallback
from callbacks.moment import Moment
from toolkit.runs.points import Point


class UnembeddingOverlap(LanguageModelCallback):
    """Measures norms and overlaps of the unembedding's rows, one per token (arXiv 2505.10465).

    Tags are ``unembedding/<quantity>/output``: ``norm_mean``, ``norm_min`` and ``norm_p05`` to
    ``norm_p95``; ``overlap_times_m``, the width m times the mean squared overlap of different
    rows, 1 for random isotropic ones; ``num_dropped`` rows of norm below 1e-6. They are NaN where
    ``num_nonfinite`` counts values that are not finite. Its arguments are those of
    `LanguageModelCallback`.
    """

    metric: ClassVar[str] = "unembedding"

    def measure(self, moment: Moment) -> list[Point]:
        """Return the quantities."""
        from toolkit.measures import unembedding_points  # noqa: PLC0415

        return unembedding_points(self.subject(moment))

    def headline_lines(self) -> list[str]:
        """Return the overlap beside that of random rows."""
        overlap = self.latest.get(self.tag("overlap_times_m", "output"), math.nan)
        if math.isnan(overlap):
            return []
        smallest = self.latest[self.tag("norm_min", "output")]
        return [
            f"unembedding: overlap x m = {overlap:.3f} (random 1), smallest row norm {smallest:.3g}"
        ]
