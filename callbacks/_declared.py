"""From the declaration of a measure to the class of its callback."""

import inspect
from collections.abc import Iterator
from typing import Any

from callbacks.base import MeasurementCallback
from toolkit.measures.declaration import NUM_NONFINITE, Measure, Need


def complete(
    cls: type[MeasurementCallback], declaration: Measure[Any], *, inputs: frozenset[Need]
) -> None:
    """Add everything that a measure declares to a callback's class.

    Args:
        cls: The class; its bases take the arguments about model, texts and schedule.
        declaration: Its measure.
        inputs: Parts of a subject that the bases read.

    Raises:
        TypeError: If the class has a constructor, or the measure needs other parts of a subject.
    """
    if "__init__" in vars(cls):
        raise TypeError(
            f"declaration: expected a class without a constructor, got {cls.__name__}.__init__; "
            "declare the options, or write the constructor in a subclass"
        )
    if missing := sorted(declaration.needs - inputs):
        raise TypeError(
            f"declaration: expected TextCallback as the base of {cls.__name__}, because the "
            f"measure needs {' and '.join(missing)}, got {cls.__mro__[1].__name__}"
        )
    complements = {
        "metric": declaration.name,
        "headline_columns": declaration.headline_columns,
        "heat_maps": declaration.heat_maps,
    }
    for name in complements.keys() - vars(cls).keys():
        setattr(cls, name, complements[name])
    cls.__doc__ = _documentation(cls, declaration)
    cls.__init__ = _constructor(cls, declaration)  # type: ignore[method-assign]


def _constructor(cls: type[MeasurementCallback], declaration: Measure[Any]) -> Any:  # noqa: ANN401
    """Return an ``__init__`` with the measure's options and the arguments of the bases."""
    names = declaration.option_names
    parameters = [*_keywords(declaration.options), *_inherited(cls)]
    known = {each.name for each in parameters}

    def __init__(self: Any, **arguments: Any) -> None:  # noqa: ANN401, N807
        for name in arguments.keys() - known:
            raise TypeError(f"{cls.__name__}: expected no argument {name}; remove it")
        own = {name: arguments.pop(name) for name in names if name in arguments}
        super(cls, self).__init__(**arguments)
        self.options = declaration.options(**own)

    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # The parser of configurations and help() read the signature.
    __init__.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    __init__.__module__ = cls.__module__
    return __init__


def _inherited(cls: type) -> Iterator[inspect.Parameter]:
    """Yield the keyword-only parameters of the constructors of all bases, nearest first."""
    for base in cls.__mro__[1:]:
        if "__init__" in vars(base):
            parameters = inspect.signature(base.__init__).parameters.values()  # type: ignore[misc]
            yield from _keywords(base)
            if not any(each.kind is each.VAR_KEYWORD for each in parameters):
                return


def _keywords(cls: type) -> list[inspect.Parameter]:
    parameters = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
    return [each for each in parameters if each.kind is each.KEYWORD_ONLY]


def _documentation(cls: type[MeasurementCallback], declaration: Measure[Any]) -> str:
    """Return the docstring: the measure, the class's own words, tags, heat maps and options."""
    source = f" ({declaration.source})" if declaration.source else ""
    tags = [
        f"    ``{declaration.tag(each, f'<{each.place}>' if each.place else '')}``: {each.meaning}"
        for each in (*declaration.quantities, NUM_NONFINITE)
    ]
    maps = ", ".join(declaration.heat_maps.values())
    _, heading, options = inspect.cleandoc(declaration.options.__doc__ or "").partition("Args:")
    parts = [
        f"Measures {declaration.summary}{source}.",
        inspect.cleandoc(cls.__doc__ or ""),
        "\n".join(["Tags:", *tags]),
        f"Heat maps, layer by step: {maps}." if maps else "",
        f"Other arguments are those of `{cls.__mro__[1].__name__}`.",
        f"{heading}{options}",
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip())
