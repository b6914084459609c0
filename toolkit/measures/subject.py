"""A language model together with the texts it is measured on."""

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, nn

from toolkit.data.labelled_texts import LabelledTexts
from toolkit.functional._checks import (
    function,
    instance,
    one_of,
    optional,
    shown,
    text_mapping,
)
from toolkit.functional._checks import names as checked_names
from toolkit.functional.subspace import ReadoutSubspace, readout_subspace
from toolkit.lm.architecture.families import language_model_parts
from toolkit.lm.architecture.parts import (
    LanguageModelParts,
    embedding_matrix,
    is_tied,
    readout_matrix,
)
from toolkit.lm.reading.hidden_states import check_encoding, hidden_states, layer_names
from toolkit.lm.reading.token_losses import LossMeter, is_meter
from toolkit.lm.reading.tokenizers import check_texts
from toolkit.lm.weights.vocabulary import tokenizer_rows
from toolkit.runs.layer_order import in_layer_order
from toolkit.runs.points import num_nonfinite

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Rows = Literal["tokenizer", "all"]
Part = Literal["train", "test"]


class Subject:
    """A language model with its texts; each costly part is computed once, at its first use.

    Args:
        model: A loaded causal language model.
        tokenizer: Its tokenizer; None where no texts are read.
        texts: Labelled texts, or texts alone, which then count as test texts.
        layers: Names of the layers, by default all of them.
        rows: Which rows of the matrices count: those that the tokenizer really has, or all.
            Without a tokenizer all count.
        paths: Module paths of an unknown family
            (`toolkit.lm.architecture.families.language_model_parts`).
        encoding: How a text becomes a vector: options of `toolkit.lm.reading.hidden_states`.
        losses: Counts the losses of the test texts in the pass that gives their vectors.

    Raises:
        ValueError: If the model's family is unknown, or a layer is not one of its layers.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase | None" = None,
        texts: LabelledTexts | Sequence[str] | None = None,
        *,
        layers: Sequence[str] | None = None,
        rows: Rows = "tokenizer",
        paths: Mapping[str, str] | None = None,
        encoding: Mapping[str, Any] | None = None,
        losses: LossMeter | None = None,
    ) -> None:
        instance("model", model, nn.Module)
        optional(function, "tokenizer", tokenizer)
        if not isinstance(texts, LabelledTexts | None):
            check_texts(texts)
        one_of("rows", rows, "tokenizer", "all")
        optional(_check_encoding, "encoding", encoding)
        optional(text_mapping, "paths", paths)
        self.model = model
        self.tokenizer = tokenizer
        self.parts: LanguageModelParts = language_model_parts(model, paths=paths)
        self.layers = _chosen(layers, layer_names(len(self.parts.blocks)))
        self._captured = self.layers
        self.rows: Rows = rows if tokenizer is not None else "all"
        self._texts = texts
        self._encoding = {"paths": paths, **(encoding or {})}
        self._losses = optional(is_meter, "losses", losses)
        self._states: dict[Part, dict[str, Tensor]] = {}
        # The readout of layers before the last may include OPT's projection and the norm's gain.
        self._readouts: dict[tuple[int, bool, bool, bool], ReadoutSubspace] = {}
        self._nonfinite_readouts: dict[tuple[bool, bool], int] = {}

    def select(self, layers: Sequence[str] | None) -> "Subject":
        """Return a view of some of the layers, which shares everything that is computed.

        Raises:
            ValueError: If a layer is not one of them.
        """
        view = copy(self)
        view.layers = _chosen(layers, self._captured)
        return view

    @cached_property
    def matrices(self) -> dict[str, Tensor]:
        """The embedding matrices by name, ``input`` and ``output``, the rows that count."""
        names: tuple[Literal["input", "output"], ...] = ("input", "output")
        return {name: self._counted(embedding_matrix(self.parts, name)) for name in names}

    @property
    def tied(self) -> bool:
        """Whether both matrices are the same."""
        return is_tied(self.parts)

    def conditions(self) -> dict[str, Any]:
        """Return the rows, tokenizer and texts in use, as plain types."""
        used = {"rows": self.rows, "tokenizer": _name(self.tokenizer)}
        if self._texts is None:
            return used
        texts: dict[str, Any] = {"num_test": len(self.test_texts)}
        if isinstance(self._texts, LabelledTexts):
            texts |= {
                "num_train": len(self._texts.train_texts),
                "num_removed": self._texts.num_removed,
                "drawn_from": self._texts.source,
            }
        return {**used, "texts": texts}

    def states(self, part: Part) -> dict[str, Tensor]:
        """Return one float32 vector for each text and layer, of shape (N, d) by layer.

        Raises:
            ValueError: If there is no tokenizer, no text for this part, or an empty text.
        """
        if part not in self._states:
            if self.tokenizer is None:
                raise ValueError("tokenizer: expected one to read texts with, got none; pass it")
            texts = self.labelled.train_texts if part == "train" else self.test_texts
            self._states[part] = hidden_states(
                self.model,
                self.tokenizer,
                texts,
                layers=self._captured,
                losses=self._losses if part == "test" else None,
                **self._encoding,
            )
        return {layer: self._states[part][layer] for layer in self.layers}

    @property
    def labelled(self) -> LabelledTexts:
        """The texts with their labels.

        Raises:
            ValueError: If the texts have no labels.
        """
        if not isinstance(self._texts, LabelledTexts):
            raise ValueError(  # noqa: TRY004 - labels are missing, not a type
                "texts: expected labelled texts, got "
                f"{'none' if self._texts is None else 'texts alone'}; pass LabelledTexts"
            )
        return self._texts

    def readout(self, layer: str, k: int, *, centered: bool, fold_norm: bool) -> ReadoutSubspace:
        """Return the readout basis of a layer, and its columns that are not arbitrary."""
        key = (k, centered, fold_norm, layer == "final")
        if key not in self._readouts:
            matrix = self._readout(layer, fold_norm=fold_norm)
            self._readouts[key] = readout_subspace(matrix, k, centered=centered)
        return self._readouts[key]

    def num_nonfinite_readout(self, layer: str, *, fold_norm: bool) -> int:
        """Return how many values of the matrix that reads a layer out are NaN or infinite."""
        key = (fold_norm, layer == "final")
        if key not in self._nonfinite_readouts:
            self._nonfinite_readouts[key] = num_nonfinite(self._readout(layer, fold_norm=fold_norm))
        return self._nonfinite_readouts[key]

    @property
    def test_texts(self) -> Sequence[str]:
        """The texts to measure on.

        Raises:
            ValueError: If there are no texts.
        """
        if self._texts is None:
            raise ValueError("texts: expected texts to measure on, got none; pass them")
        if isinstance(self._texts, LabelledTexts):
            return self._texts.test_texts
        return self._texts

    def _readout(self, layer: str, *, fold_norm: bool) -> Tensor:
        return self._counted(readout_matrix(self.parts, layer, fold_norm=fold_norm))

    def _counted(self, matrix: Tensor) -> Tensor:
        if self.rows == "all" or self.tokenizer is None:
            return matrix
        return matrix[: tokenizer_rows(self.tokenizer)]


def _name(tokenizer: "PreTrainedTokenizerBase | None") -> str | None:
    """Return the tokenizer's name on the Hub, or its class: folders differ between machines."""
    if tokenizer is None:
        return None
    name = str(getattr(tokenizer, "name_or_path", ""))
    return type(tokenizer).__name__ if not name or Path(name).exists() else name


def _check_encoding(name: str, encoding: Mapping[str, Any]) -> None:
    """Raise a ValueError unless these are options of `hidden_states`."""
    known = {"pooling", "max_length", "batch_size", "skip_first", "progress"}
    unknown = set(encoding) - known if isinstance(encoding, Mapping) else {"none"}
    if unknown:
        raise ValueError(
            f"{name}: expected options among {', '.join(sorted(known))}, got {shown(encoding)}"
        )
    check_encoding(**encoding)


def _chosen(layers: Sequence[str] | None, names: list[str]) -> list[str]:
    """Return the layers in the model's order, or raise a ValueError for an unknown layer."""
    optional(checked_names, "layers", layers)
    unknown = in_layer_order(set(layers or ()) - set(names))
    if unknown:
        raise ValueError(f"layers: expected names from {names[0]} to {names[-1]}, got {unknown}")
    return [name for name in names if not layers or name in layers]
