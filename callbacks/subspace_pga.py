"""How far the geometry of each layer is organised along the readout subspace."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from callbacks.language_model import TextCallback
from callbacks.moment import Moment
from toolkit.functional._checks import flag
from toolkit.measures.pga import check_pga_options
from toolkit.measures.text_set import TextSet
from toolkit.runs.points import Point

if TYPE_CHECKING:
    from toolkit.measures import Subject


class SubspacePGA(TextCallback):
    """Measures Subspace PGA of each layer on the test texts (arXiv 2605.17084).

    Tags are ``pga/<quantity>/<layer>``: ``z``, ``rho``, ``null_mean``, ``null_std``, ``p_value``;
    ``variance_share``, how much of the variance lies inside the readout subspace;
    ``pc1_alignment``, how much of the first principal direction does; ``num_distinct`` points.
    They are NaN where ``num_nonfinite`` counts values that are not finite, and where the matrix
    that reads a layer out has a rank below k; the table's conditions give the ``reason``. z grows
    also with anisotropy that states and readout share: read it beside ``variance_share``. The
    figure is a heat map of z, layer by step.

    Args:
        k: Dimension of the readout subspace, by default min(100, d // 8), d the width of the
            unembedding.
        num_null: Number of random subspaces, 2 to 1,000,000.
        remove: Number of principal components to remove (the r of CCR-r), or several; from the
            second on, quantities end in ``_ccr`` and the number.
        seed: Seed of the random subspaces, the same at every step.
        center_unembedding: Subtract the unembedding's mean row first.
        fold_norm: Multiply the unembedding by the final norm's gain, measured by running the norm.
        texts: The texts and how each becomes one vector, by default AG News.
        layers: Names of the layers, all by default, see `TextCallback`.
        rows: See `LanguageModelCallback`.
        tokenizer: See `LanguageModelCallback`.
        attribute: See `LanguageModelCallback`.
        paths: See `LanguageModelCallback`.
        schedule: When to measure, see `MeasurementCallback`.
        on_error: What a failed measurement costs, see `MeasurementCallback`.

    Raises:
        ValueError: If an argument is out of range or, in ``setup``, the model cannot be measured.
    """

    metric: ClassVar[str] = "pga"
    headline_columns: ClassVar[Mapping[str, str]] = {"z": "PGA z", "rho": "rho"}
    heat_maps: ClassVar[Mapping[str, str]] = {"z": "PGA z"}

    def __init__(
        self,
        *,
        k: int | None = None,
        num_null: int = 100,
        remove: int | list[int] = 1,
        seed: int = 0,
        center_unembedding: bool = False,
        fold_norm: bool = False,
        texts: TextSet | None = None,
        layers: list[str] | None = None,
        rows: Literal["tokenizer", "all"] = "tokenizer",
        tokenizer: str | None = None,
        attribute: str | None = None,
        paths: dict[str, str] | None = None,
        schedule: int | list[int] | Literal["log"] = "log",
        on_error: Literal["raise", "warn"] | None = None,
    ) -> None:
        super().__init__(
            texts=texts,
            layers=layers,
            rows=rows,
            tokenizer=tokenizer,
            attribute=attribute,
            paths=paths,
            schedule=schedule,
            on_error=on_error,
        )
        check_pga_options(k, num_null, remove, seed)
        self.k = k
        self.num_null = num_null
        self.remove = remove
        self.seed = seed
        self.center_unembedding = flag("center_unembedding", center_unembedding)
        self.fold_norm = flag("fold_norm", fold_norm)

    def options(self) -> dict[str, Any]:
        """Return the options of `toolkit.measures.pga_points`."""
        names = ("k", "num_null", "remove", "seed", "center_unembedding", "fold_norm")
        return {name: getattr(self, name) for name in names}

    def arguments(self) -> dict[str, Any]:
        """Return the options beside the texts."""
        return {**super().arguments(), **self.options()}

    def conditions(self, moment: Moment) -> dict[str, Any]:
        """Return the arguments with the subspace's dimension that was used."""
        from toolkit.measures import used_k  # noqa: PLC0415

        return {**super().conditions(moment), "k": used_k(self.subject(moment), self.k)}

    def check_subject(self, subject: "Subject") -> None:
        """Refuse a subspace that does not fit, no gain to fold, a removal that leaves nothing."""
        from toolkit.lm.architecture.parts import final_gain  # noqa: PLC0415

        super().check_subject(subject)
        if self.fold_norm:
            final_gain(subject.parts)
        dim = subject.matrices["output"].shape[1]
        if self.k is not None and self.k > dim:
            raise ValueError(f"k: expected at most d = {dim}, the model's width, got {self.k}")
        most = max([self.remove] if isinstance(self.remove, int) else self.remove)
        least = min(len(subject.labelled.test_texts), dim)
        if most >= least:
            raise ValueError(
                f"remove: expected fewer than {least}, the smaller of the model's width and the "
                f"number of test texts, got {most}; remove fewer"
            )

    def measure(self, moment: Moment) -> list[Point]:
        """Return the quantities of each layer."""
        from toolkit.measures import pga_points  # noqa: PLC0415

        return pga_points(self.subject(moment), **self.options())
