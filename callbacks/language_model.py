"""The bases of callbacks on language models: they find the model and read the texts once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import lightning as L
from torch import Tensor
from typing_extensions import override

from callbacks._declared import complete
from callbacks._held import held_tokenizer
from callbacks.base import MeasurementCallback
from callbacks.moment import Moment
from toolkit.functional._checks import instance, names, one_of, optional, text_mapping, valid_text
from toolkit.measures.declaration import Measure, Need
from toolkit.measures.text_losses import CountsTextLosses
from toolkit.measures.text_set import TextSet
from toolkit.runs.layer_order import in_layer_order
from toolkit.runs.model_logger import is_walk
from toolkit.runs.points import Point, values_by_layer

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import PreTrainedTokenizerBase

    from toolkit.measures import Subject


class LanguageModelCallback(MeasurementCallback):
    """Measures the Hugging Face causal language model that a LightningModule holds.

    A subclass names its ``declaration`` and is then complete: its metric, constructor arguments,
    documentation, columns, figures and headlines come from it.

    Args:
        rows: The measured rows of the embedding matrices: the rows of the tokenizer's ids, or all
            rows. Without a tokenizer all rows are measured.
        tokenizer: Name or folder of a tokenizer, by default the ``tokenizer`` of the
            LightningModule or of its data.
        attribute: Attribute of the LightningModule that holds the language model, required if the
            module holds several.
        paths: Module paths of an unknown family
            (`toolkit.lm.architecture.families.language_model_parts`).
        **options: Arguments of `MeasurementCallback`.

    Attributes:
        declaration: The measure; this class and `TextCallback` have no measure.
        heat_maps: Labels, by quantity, of the figures by layer and step.
        options: The measure's options.

    Raises:
        ValueError: If an argument is out of range or, in ``setup``, the model cannot be measured.
    """

    declaration: ClassVar[Measure[Any]]
    metric: ClassVar[str] = ""
    heat_maps: ClassVar[Mapping[str, str]] = {}
    options: Any
    _inputs: ClassVar[frozenset[Need]] = frozenset({"matrices"})

    def __init_subclass__(cls, **keywords: object) -> None:
        """Complete the class from its declaration.

        Raises:
            TypeError: If the class has a method `measure` or a constructor instead of a
                declaration, or the measure needs more than the base reads.
        """
        if "declaration" in vars(cls):
            complete(cls, cls.declaration, inputs=cls._inputs)
        elif "measure" in vars(cls) and not hasattr(cls, "declaration"):
            raise TypeError(_no_declaration(cls))
        super().__init_subclass__(**keywords)

    def __init__(
        self,
        *,
        rows: Literal["tokenizer", "all"] = "tokenizer",
        tokenizer: str | None = None,
        attribute: str | None = None,
        paths: dict[str, str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        if not hasattr(self, "declaration"):
            raise TypeError(_no_declaration(type(self)))
        super().__init__(**options)
        self.rows: Literal["tokenizer", "all"] = one_of("rows", rows, "tokenizer", "all")
        self.tokenizer = optional(valid_text, "tokenizer", tokenizer)
        self.attribute = optional(valid_text, "attribute", attribute)
        self.paths = optional(text_mapping, "paths", paths)
        self._deferred = False

    @override
    def measure(self, moment: Moment) -> list[Point]:
        return self.declaration.points(self.subject(moment), self.options)

    @override
    def arguments(self) -> dict[str, Any]:
        # YAML has no tuples: a list gives the same key before and after saving.
        plain = {n: list(v) if isinstance(v, tuple) else v for n, v in asdict(self.options).items()}
        return {**self._reading(), **plain}

    @override
    def conditions(self, moment: Moment) -> dict[str, Any]:
        subject = self.subject(moment)
        used = {**self.arguments(), **subject.conditions()}
        if self.tokenizer is not None:
            used["tokenizer"] = self.tokenizer
        return {**used, **self.declaration.used_options(subject, self.options)}

    @override
    def headline_lines(self) -> list[str]:
        return self.declaration.headlines(self.history, self.tag)

    @override
    def hashed_tensors(self, pl_module: L.LightningModule) -> Iterable[tuple[str, Tensor]]:
        # The hash of a whole model would take longer than the measurement.
        from toolkit.lm.architecture.families import language_model_parts  # noqa: PLC0415
        from toolkit.lm.architecture.parts import embedding_matrix  # noqa: PLC0415
        from toolkit.lm.architecture.search import find_language_model  # noqa: PLC0415

        model = find_language_model(pl_module, attribute=self.attribute)
        parts = language_model_parts(model, paths=self.paths)
        return [(name, embedding_matrix(parts, name)) for name in ("input", "output")]

    @override
    def check(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        from transformers import PreTrainedModel  # noqa: PLC0415

        # A LightningModule may build its model in its own ``setup``.
        self._deferred = not any(isinstance(m, PreTrainedModel) for m in pl_module.modules())
        if not self._deferred:
            self._check_new_subject(trainer, pl_module)

    @override
    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._deferred:
            self._check_new_subject(trainer, pl_module)

    def check_subject(self, subject: "Subject") -> None:
        """Raise a ValueError, before the first step, if this model cannot be measured."""
        from toolkit.lm.architecture.parts import check_weights  # noqa: PLC0415

        check_weights(subject.model)
        # Each row of the table contains the hash of both matrices.
        _ = subject.matrices

    def subject(self, moment: Moment) -> "Subject":
        """Return model and texts; callbacks with equal settings share the same object."""
        key = ("subject", repr(self._subject_key()))
        if key not in moment.shared:
            moment.shared[key] = self._new_subject(moment.trainer, moment.pl_module)
        subject: Subject = moment.shared[key]
        return subject

    def _check_new_subject(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        subject = self._new_subject(trainer, pl_module)
        self.check_subject(subject)
        self.declaration.check_subject(subject, self.options)

    def _reading(self) -> dict[str, Any]:
        """Return the arguments about model and rows."""
        names = ("rows", "tokenizer", "attribute", "paths")
        return {name: getattr(self, name) for name in names}

    def _subject_key(self) -> tuple[Any, ...]:
        return (self.rows, self.tokenizer, self.attribute, self.paths)

    def _new_subject(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        options: Mapping[str, Any] | None = None,
    ) -> "Subject":
        from toolkit.lm.architecture.search import find_language_model  # noqa: PLC0415
        from toolkit.measures import Subject  # noqa: PLC0415

        model = find_language_model(pl_module, attribute=self.attribute)
        tokenizer = self._found_tokenizer(trainer, pl_module)
        return Subject(model, tokenizer, rows=self.rows, paths=self.paths, **(options or {}))

    def _found_tokenizer(
        self, trainer: L.Trainer, pl_module: L.LightningModule
    ) -> "PreTrainedTokenizerBase | None":
        if self.tokenizer is not None:
            return _named_tokenizer(self.tokenizer)
        return held_tokenizer(trainer, pl_module)


def _no_declaration(cls: type) -> str:
    return (
        f"declaration: expected that of a measure in {cls.__name__}, got none; add "
        "declaration = ... to a subclass, or derive from MeasurementCallback"
    )


@cache
def _named_tokenizer(name: str) -> "PreTrainedTokenizerBase":
    """Return a tokenizer by its name, read once for all callbacks and steps."""
    from toolkit.lm.reading.tokenizers import load_tokenizer  # noqa: PLC0415

    return load_tokenizer(name)


class TextCallback(LanguageModelCallback):
    """Measures the hidden states of texts, layer by layer.

    All callbacks with the same texts share one forward pass of each text.

    Args:
        texts: The texts and the pooling of each text into one vector; AG News by default.
        layers: Names of the layers: ``layer_00`` (input of the first block), ``layer_01`` to
            ``layer_L`` (output of each block), ``final`` (input of the unembedding); all by
            default.
        **options: Arguments of `LanguageModelCallback` and `MeasurementCallback`.

    Raises:
        ValueError: If an argument is out of range or, in ``setup``, the model cannot be measured.
    """

    draws_values: ClassVar[bool] = True
    _inputs: ClassVar[frozenset[Need]] = frozenset({"matrices", "texts", "labels"})

    def __init__(
        self,
        *,
        texts: TextSet | None = None,
        layers: list[str] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**options)
        self.texts = TextSet() if texts is None else instance("texts", texts, TextSet)
        self.layers = optional(names, "layers", layers)

    @override
    def conditions(self, moment: Moment) -> dict[str, Any]:
        used = super().conditions(moment)
        return {**used, "texts": {**asdict(self.texts), **used["texts"]}}

    @override
    def check_subject(self, subject: "Subject") -> None:
        super().check_subject(subject)
        if subject.tokenizer is None:
            raise ValueError(
                f"tokenizer: expected one for {type(self).__name__}, found none in the model or "
                "its data; give its name or folder"
            )
        subject.select(self.layers)

    @override
    def subject(self, moment: Moment) -> "Subject":
        return super().subject(moment).select(self.layers)

    @override
    def figures(self, moment: Moment, values: Mapping[str, float]) -> Mapping[str, "Figure"]:
        from toolkit.figures.layers import layer_step_heat_map  # noqa: PLC0415

        figures = {}
        for quantity, label in self.heat_maps.items():
            steps = {
                step: values_by_layer(measured, self.tag(quantity))
                for step, measured in {**self.history, moment.step: values}.items()
            }
            figures[f"{quantity}_heat_map"] = layer_step_heat_map(
                steps, label=label, complete=self.layers is None
            )
        return figures

    @override
    def _reading(self) -> dict[str, Any]:
        return {**super()._reading(), "texts": asdict(self.texts), "layers": self.layers}

    @override
    def _subject_key(self) -> tuple[Any, ...]:
        return (*super()._subject_key(), self.texts)

    @override
    def _new_subject(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        options: Mapping[str, Any] | None = None,
    ) -> "Subject":
        texts = {
            "texts": self.texts.load(),
            "layers": self._all_layers(trainer),
            # A walk shows no other progress bar.
            "losses": self._losses_to_count(pl_module),
            "encoding": {**self.texts.encoding(), "progress": is_walk(trainer.loggers)},
        }
        return super()._new_subject(trainer, pl_module, {**texts, **(options or {})})

    def _losses_to_count(self, pl_module: L.LightningModule) -> Any:  # noqa: ANN401
        """Return the walk's counter of losses for these texts, None without a walk."""
        losses = getattr(pl_module, "text_losses", None)
        # The attribute of a user's module may have any type; another tokenizer has other tokens.
        if self.tokenizer is not None or not isinstance(losses, CountsTextLosses):
            return None
        return losses.meter_for(self.texts)

    def _all_layers(self, trainer: L.Trainer) -> Sequence[str] | None:
        """Return the layers of all callbacks with the same texts; None for all layers."""
        asked = [
            callback.layers
            for callback in trainer.callbacks  # type: ignore[attr-defined]
            if isinstance(callback, TextCallback) and callback._subject_key() == self._subject_key()  # noqa: SLF001 - its own kind
        ]
        if not asked or not all(asked):
            return None
        return in_layer_order({layer for layers in asked for layer in layers or ()})
