"""The declaration of a measure: what it needs, its options, its quantities, its function."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Generic, Literal, Protocol, TypeVar

from toolkit.functional._checks import instance
from toolkit.measures.subject import Subject
from toolkit.runs.points import Point

Need = Literal["matrices", "texts", "labels"]
# Values by step and tag, as a run has measured them.
History = Mapping[int, Mapping[str, float]]


class Tagger(Protocol):
    """Returns the tag of a quantity in a run, where a measure can have a number."""

    def __call__(self, quantity: str, layer: str = "", *, metric: str = "") -> str:
        """Return ``metric/quantity/layer``, without the parts that are empty."""


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A number that a measure returns, once for each layer or matrix, or once for the model.

    Attributes:
        name: Second part of the tag.
        label: Name in figures and in the table at the end of a run.
        meaning: Definition in one line, for the documentation.
        unit: Unit, empty for a number without one.
        place: Third part of the tag: the ``layer``, the ``matrix``, or empty for the model.
        metric: First part of the tag; empty for the measure's name.
        heat_map: Whether a run draws it by layer and step.
        headline: Whether the table at the end of a run has a column for it.
        against_depth: Whether a walk over several models draws it by the depth of the layer.
        against: Tag of another quantity, without the layer; a walk over several models draws this
            quantity against that one. Empty for no such figure.
    """

    name: str
    label: str
    meaning: str
    unit: str = ""
    place: Literal["layer", "matrix", ""] = "layer"
    metric: str = ""
    heat_map: bool = False
    headline: bool = False
    against_depth: bool = False
    against: str = ""

    @property
    def axis_label(self) -> str:
        """The label with its unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


NUM_NONFINITE = Quantity(
    name="num_nonfinite",
    label="values not finite",
    meaning="values that are NaN or infinite; where there are any, all other quantities are NaN",
)


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """The options of a measure that has none."""


Options = TypeVar("Options")


def _nothing_used(subject: Subject, options: object) -> Mapping[str, Any]:  # noqa: ARG001
    return {}


def _nothing_refused(subject: Subject, options: object) -> None:
    pass


def _no_headlines(history: History, tag: Tagger) -> list[str]:  # noqa: ARG001
    return []


@dataclass(frozen=True, kw_only=True)
class Measure(Generic[Options]):
    """A measure of a language model, declared once for `measure`, callbacks, walks and tables.

    Attributes:
        name: Name of the metric, first part of the tags.
        summary: What is measured on what, a noun phrase in one line.
        source: The paper, empty without one.
        needs: Parts of a `Subject` that it reads: its ``matrices``, ``texts``, their ``labels``.
        options: A frozen dataclass with keyword-only fields: their types and defaults, their
            checks in ``__post_init__``, their meaning in the docstring's ``Args``.
        quantities: What it returns beside ``num_nonfinite``.
        points: Returns the points of a subject; values that are not finite give NaN, no error.
        used_options: Returns, of the options that the subject decides, the values in use.
        check_subject: Raises a ValueError, before anything is computed, for a subject that cannot
            be measured with the options.
        headlines: Returns sentences for the end of a run.
    """

    name: str
    summary: str
    source: str = ""
    needs: frozenset[Need]
    options: type[Options]
    quantities: tuple[Quantity, ...]
    points: Callable[[Subject, Options], list[Point]]
    used_options: Callable[[Subject, Options], Mapping[str, Any]] = _nothing_used
    check_subject: Callable[[Subject, Options], None] = _nothing_refused
    headlines: Callable[[History, Tagger], list[str]] = _no_headlines

    def __call__(self, subject: Subject, **options: Any) -> list[Point]:  # noqa: ANN401
        """Return the points of a subject.

        Args:
            subject: The model, with the texts and labels that are needed.
            **options: The measure's options; the others have their defaults.

        Raises:
            ValueError: If an option is out of range or the subject lacks what is needed.
        """
        instance("subject", subject, Subject)
        return self.points(subject, self.options(**options))

    @property
    def option_names(self) -> list[str]:
        """Names of the options."""
        return [field.name for field in fields(self.options)]  # type: ignore[arg-type]

    def conditions(self, subject: Subject, options: Options) -> dict[str, Any]:
        """Return all options as they are used on the subject."""
        return {**asdict(options), **self.used_options(subject, options)}  # type: ignore[call-overload]

    @property
    def heat_maps(self) -> dict[str, str]:
        """Labels, by name, of the quantities that a run draws by layer and step."""
        return {each.name: each.axis_label for each in self.quantities if each.heat_map}

    @property
    def headline_columns(self) -> dict[str, str]:
        """Titles, by name, of the quantities in the table at the end of a run."""
        return {each.name: each.label for each in self.quantities if each.headline}

    def tag(self, quantity: Quantity, place: str = "") -> str:
        """Return the tag of a quantity, ``metric/quantity/place``."""
        parts = (quantity.metric or self.name, quantity.name, place)
        return "/".join(part for part in parts if part)
