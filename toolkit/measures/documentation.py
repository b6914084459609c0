"""The documentation of the metrics, written from the declarations of the measures."""

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from toolkit.measures.declaration import NUM_NONFINITE, Measure

_OPTION = re.compile(r"^    (?P<name>\w+): (?P<meaning>.*(?:\n {8}.*)*)", re.MULTILINE)
_INTRODUCTION = """# Metrics

This page is written by `python -m toolkit.measures.documentation`. Tags are
`<metric>/<quantity>/<layer or matrix>`; the same names stand in `measurements.csv`. A callback
takes the options as arguments, `toolkit.measure.measure` as `metrics={"pga": {"k": 50}}`.
"""


def table_lines(measures: Iterable[Measure[Any]]) -> list[str]:
    """Return the lines of a Markdown table: the tags of the measures and their meanings."""
    lines = ["| tag in TensorBoard | meaning |", "|---|---|"]
    for measure in measures:
        for quantity in measure.quantities:
            place = f"<{quantity.place}>" if quantity.place else ""
            unit = f", in {quantity.unit}" if quantity.unit else ""
            lines.append(f"| `{measure.tag(quantity, place)}` | {quantity.meaning}{unit} |")
    return [*lines, f"| `.../{NUM_NONFINITE.name}/...` | {NUM_NONFINITE.meaning} |"]


def page(measures: Mapping[str, Measure[Any]]) -> str:
    """Return the page of documentation: each measure with its source, options and tags."""
    return "\n".join([_INTRODUCTION, *(_section(each) for each in measures.values())])


def _section(measure: Measure[Any]) -> str:
    source = f" ({measure.source})" if measure.source else ""
    needs = ", ".join(sorted(measure.needs))
    options = list(_options(measure))
    return "\n".join(
        [
            f"## {measure.name}",
            "",
            f"Measures {measure.summary}{source}. Needs: {needs}.",
            "",
            *(["| option | default | meaning |", "|---|---|---|", *options, ""] if options else []),
            *table_lines([measure]),
            "",
        ]
    )


def _options(measure: Measure[Any]) -> Iterator[str]:
    """Yield the line of each option, with the meaning from the docstring of the options."""
    described = inspect.cleandoc(measure.options.__doc__ or "")
    meanings = {
        found["name"]: " ".join(found["meaning"].split()) for found in _OPTION.finditer(described)
    }
    parameters = inspect.signature(measure.options).parameters
    for name in measure.option_names:
        yield f"| `{name}` | `{parameters[name].default!r}` | {meanings[name]} |"


if __name__ == "__main__":
    from toolkit.measures import MEASURES

    sys.stdout.write(page(MEASURES))
