"""The output of ``python -m toolkit capacity``: text, JSON and figure."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.commands.capacity.laws import Answer, CapacityLaw
from toolkit.console.output_files import json_text, write_figure
from toolkit.console.text_table import aligned
from toolkit.figures.packing import measured_against_fitted
from toolkit.functional.capacity import PackingLawResult, deviation_for
from toolkit.functional.law_uncertainty import percentile_interval
from toolkit.reference import PackingPoint

if TYPE_CHECKING:
    from toolkit.commands.capacity.question import Question

# A float cannot hold a larger capacity.
_LARGEST_LOG10 = 308.0


def as_text(
    questions: Sequence["Question"], laws: Sequence[CapacityLaw], skipped: Sequence[str]
) -> str:
    """Return two tables as text: the fits and the answers."""
    parts = []
    fits = [(law, law.fit) for law in laws if law.fit]
    if fits:
        parts.append(_fit_table(fits))
    parts += [f"left out: {reason}\n" for reason in skipped]
    if questions:
        parts.append(_answer_table(questions, laws))
        parts += [_published_line(question, laws) for question in questions if question.model]
    return "".join(parts)


def as_json(
    questions: Sequence["Question"], laws: Sequence[CapacityLaw], skipped: Sequence[str]
) -> str:
    """Return the answers as JSON; a capacity beyond a float is null, its log10 is a number."""
    answers = [
        _answer_record(question, law, _ask(law, question)) for question in questions for law in laws
    ]
    fits = [_fit_record(law, law.fit) for law in laws if law.fit]
    content = {"answers": answers, "fits": fits, "left_out": list(skipped)}
    return json_text(content)


def check_drawable(points: Sequence[PackingPoint]) -> None:
    """Raise a ValueError if no packing can be drawn by `draw_fits`."""
    if not _drawn(points):
        raise ValueError(
            f"figure: expected packings with more vectors than dimensions, got none of "
            f"{len(points)}; leave out --figure, or fit others"
        )


def draw_fits(laws: Sequence[CapacityLaw], points: Sequence[PackingPoint], path: Path) -> None:
    """Draw measured against fitted deviations; orthogonal vectors (k <= d) are left out."""
    shown = _drawn(points)
    measured = {law.label: [point.max_abs_cosine for point in shown] for law in laws}
    fitted = {
        law.label: [deviation_for(d, k, law=law.law, **law.constants) for k, d, _ in shown]
        for law in laws
    }
    write_figure(path, measured_against_fitted(measured, fitted))


def _drawn(points: Sequence[PackingPoint]) -> list[PackingPoint]:
    return [point for point in points if point.num_vectors > point.dim]


def _ask(law: CapacityLaw, question: "Question") -> Answer:
    if question.epsilon is None:
        return law.deviation(question.dim, question.num_vectors or math.nan)
    return law.log10_capacity(
        question.dim, question.epsilon, rounding=question.rounding, stderr=question.stderr
    )


def _answer_table(questions: Sequence["Question"], laws: Sequence[CapacityLaw]) -> str:
    forward = questions[0].epsilon is not None
    asked = ("epsilon", "capacity") if forward else ("k", "epsilon")
    rows = [("d", asked[0], "law", asked[1], "95 % interval", "")]
    for question in questions:
        for law in laws:
            answer = _ask(law, question)
            given = f"{question.epsilon:.6g}" if forward else f"{question.num_vectors:.6g}"
            show = _power_of_ten if forward else "{:.4g}".format
            interval = "-" if answer.interval is None else " to ".join(map(show, answer.interval))
            note = "extrapolated" if answer.extrapolates else ""
            if answer.beyond_law:
                note = "beyond the law: no cosine is above 1"
            rows.append((str(question.dim), given, law.label, show(answer.value), interval, note))
    ranges = [
        f"{law.label} {law.ratios.low:.4g} to {law.ratios.high:.4g}" for law in laws if law.ratios
    ]
    footer = f"k/d of the packings behind the laws: {', '.join(ranges)}\n" if ranges else ""
    return aligned(rows) + footer


def _fit_table(fits: Sequence[tuple[CapacityLaw, PackingLawResult]]) -> str:
    rows = [("law", "constant", "value", "95 % interval", "R2", "MAPE", "NRMSE", "packings")]
    for law, fit in fits:
        quality = (f"{fit.r2:.5f}", f"{fit.mape:.2%}", f"{fit.nrmse:.2%}", str(fit.num_points))
        for name, value in law.constants.items():
            interval = percentile_interval(law.resamples[name].tolist())
            ends = f"{interval.low:.4g} to {interval.high:.4g}"
            rows.append((law.label, name, f"{value:.6g}", ends, *quality))
            quality = ("", "", "", "")
    return aligned(rows)


def _published_line(question: "Question", laws: Sequence[CapacityLaw]) -> str:
    """Return a line that compares a published capacity with the full law's."""
    if question.published is None:
        return f"{question.model}: published as indeterminate, epsilon is not below 0.1\n"
    line = f"{question.model}: published {_power_of_ten(math.log10(question.published))}"
    for law in laws:
        if law.label == "full":
            ratio = 10 ** (_ask(law, question).value - math.log10(question.published))
            line += f", the full law says {ratio - 1:+.2%}"
    return line + "\n"


def _answer_record(question: "Question", law: CapacityLaw, answer: Answer) -> dict[str, Any]:
    record: dict[str, Any] = {
        "dim": question.dim,
        "law": law.label,
        "constants": law.constants,
        "extrapolates": answer.extrapolates,
        "beyond_law": answer.beyond_law,
    }
    ends = None if answer.interval is None else list(answer.interval)
    if question.epsilon is None:
        return record | {
            "num_vectors": question.num_vectors,
            "epsilon": answer.value,
            "epsilon_interval": ends,
        }
    record |= {
        "epsilon": question.epsilon,
        "epsilon_rounding": question.rounding,
        "epsilon_stderr": question.stderr,
        "capacity": 10**answer.value if answer.value < _LARGEST_LOG10 else None,
        "log10_capacity": answer.value,
        "log10_capacity_interval": ends,
    }
    if question.model:
        record |= {"model": question.model, "published_capacity": question.published}
    return record


def _fit_record(law: CapacityLaw, fit: PackingLawResult) -> dict[str, Any]:
    intervals = {
        name: list(percentile_interval(values.tolist())) for name, values in law.resamples.items()
    }
    numbers = {name: value for name, value in fit._asdict().items() if name != "constants"}
    return {
        "law": law.label,
        "constants": law.constants,
        "constant_intervals": intervals,
        **numbers,
    }


def _power_of_ten(log10: float) -> str:
    """Return a number's text from its decimal logarithm; the number may exceed a float."""
    if abs(log10) < 4:
        return f"{10**log10:.3g}"
    mantissa, exponent = f"{10 ** (log10 % 1):.2e}".split("e")
    return f"{mantissa}e{math.floor(log10) + int(exponent)}"
