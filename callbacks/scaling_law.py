"""The scaling law of the toy model: loss against width."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import lightning as L
import torch
from torch import Tensor
from typing_extensions import override

from callbacks._held import toy_model
from callbacks.base import MeasurementCallback
from callbacks.moment import Moment
from toolkit.data import PowerFrequencies, SparseFeatures
from toolkit.figures.toy import loss_against_width
from toolkit.functional import (
    PowerLawResult,
    fit_power_law,
    local_slopes,
    slope_guide,
    strong_superposition_exponent,
    weak_superposition_loss,
)
from toolkit.models import SuperpositionAutoencoder
from toolkit.models.superposition_autoencoder import width_name
from toolkit.runs.points import Point, num_nonfinite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A line through two points is always exact: it has no error and no R2.
_TWO_POINTS = "two points"
_NO_FIT = PowerLawResult(math.nan, math.nan, math.nan, math.nan, 0, 0)


class ScalingLaw(MeasurementCallback):
    """Measures the held-out loss of each width of the toy model and fits L ~ m^-alpha_m.

    Tags are ``scaling/loss/m_<width>``, summed over features, and ``scaling/loss_mean/m_<width>``,
    NaN where ``scaling/num_nonfinite/m_<width>`` counts weights or losses that are not finite;
    ``scaling/alpha_m``, ``scaling/alpha_m_stderr``, ``scaling/r2`` (a slope through two points has
    neither) and the widths that entered them, ``scaling/window_min`` to ``scaling/window_max``;
    ``scaling/local_slope/m_<width>_m_<next width>``; ``scaling/alpha_m_weak``, the prediction of
    weak superposition for these widths at this number of features (arXiv 2505.10465). A loss need
    not be a clean power law: read alpha_m beside its window and local slopes. The figure shows
    loss against width and both predictions.

    Args:
        schedule: When to measure, see `MeasurementCallback`.
        on_error: What a failed measurement costs, see `MeasurementCallback`.

    Raises:
        ValueError: If an argument is out of range or, in ``setup``, the model is another or the
            data module is no `SparseFeatures`.
    """

    metric: ClassVar[str] = "scaling"
    headline_columns: ClassVar[Mapping[str, str]] = {"loss": "loss (sum)"}
    draws_values: ClassVar[bool] = True

    def __init__(
        self,
        *,
        schedule: int | list[int] | Literal["log"] = "log",
        on_error: Literal["raise", "warn"] | None = None,
    ) -> None:
        super().__init__(schedule=schedule, on_error=on_error)

    @override
    def check(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        toy_model(pl_module, wanted_by=self)
        _data(trainer)

    @override
    def conditions(self, moment: Moment) -> dict[str, Any]:
        data = _data(moment.trainer)
        return {
            "num_held_out": data.num_held_out,
            "batch_size": data.batch_size,
            "data_seed": data.seed,
        }

    @override
    def measure(self, moment: Moment) -> list[Point]:
        model = toy_model(moment.pl_module, wanted_by=self)
        data = _data(moment.trainer)
        num_samples = data.num_held_out * data.batch_size
        points, losses = [], {}
        for m, weight, bias, loss in zip(
            model.widths, model.weights, model.biases, _held_out_losses(model, data), strict=True
        ):
            bad = num_nonfinite(weight, bias, loss)
            losses[m] = math.nan if bad else loss.item()
            points += [
                Point("num_nonfinite", width_name(m), bad, num_samples),
                Point("loss", width_name(m), losses[m], num_samples),
                Point("loss_mean", width_name(m), losses[m] / model.num_features, num_samples),
            ]
        return points + _law(losses, data.probabilities)

    @override
    def figures(self, moment: Moment, values: Mapping[str, float]) -> Mapping[str, "Figure"]:
        model = toy_model(moment.pl_module, wanted_by=self)
        losses = {m: values[self.tag("loss", width_name(m))] for m in model.widths}
        lines = _lines(losses, _data(moment.trainer))
        figure = loss_against_width(losses, step=moment.step, lines=lines)
        return {"loss_against_width": figure}

    @override
    def headline_lines(self) -> list[str]:
        names = ("alpha_m", "alpha_m_stderr", "window_min", "window_max", "r2")
        if math.isnan(self.latest.get(self.tag("alpha_m"), math.nan)):
            return []
        numbers = (self.latest.get(self.tag(name), math.nan) for name in names)
        alpha, error, low, high, r2 = numbers
        window = f"for m = {low:.0f} to {high:.0f}"
        if math.isnan(error):
            return [f"alpha_m = {alpha:.3f} {window} ({_TWO_POINTS})"]
        return [f"alpha_m = {alpha:.3f} ± {error:.3f} {window} (R2 {r2:.3f})"]


def _data(trainer: L.Trainer) -> SparseFeatures:
    data = getattr(trainer, "datamodule", None)
    if not isinstance(data, SparseFeatures):
        raise ValueError(  # noqa: TRY004 - the run is wrong, not a call
            "datamodule: expected SparseFeatures for ScalingLaw, got "
            f"{type(data).__name__ if data else 'none'}; pass one to fit or remove the callback"
        )
    return data


def _held_out_losses(model: SuperpositionAutoencoder, data: SparseFeatures) -> Tensor:
    """Loss of each width on the held-out batches, summed over features, averaged in float64."""
    batches = (
        model.transfer_batch_to_device(batch, model.device, dataloader_idx=0)
        for batch in data.held_out()
    )
    return torch.stack([model.losses(batch).double().cpu() for batch in batches]).mean(0)


def _law(losses: Mapping[int, float], probabilities: Tensor) -> list[Point]:
    """Return the points of the fit over all widths; none for a single width."""
    widths = sorted(losses)
    if len(widths) < 2:
        return []
    x, y = _columns({m: losses[m] for m in widths})
    fit = _fit(x, y)
    window = x[_usable(y)].tolist() if fit.num_used else [math.nan]
    weak = _fit(x, weak_superposition_loss(probabilities, widths))
    numbers = {
        "alpha_m": fit.exponent,
        "window_min": window[0],
        "window_max": window[-1],
        "alpha_m_weak": weak.exponent,
    }
    points = [Point(name, "", value, fit.num_used) for name, value in numbers.items()]
    if len(widths) > 2:
        reason = _TWO_POINTS if fit.num_used == 2 else ""
        points += [
            Point(name, "", value, fit.num_used, reason=reason)
            for name, value in (("alpha_m_stderr", fit.stderr), ("r2", fit.r2))
        ]
    slopes = zip(pairwise(widths), local_slopes(x, y).tolist(), strict=True)
    return points + [
        Point("local_slope", f"{width_name(low)}_{width_name(high)}", slope, 2)
        for (low, high), slope in slopes
    ]


def _lines(losses: Mapping[int, float], data: SparseFeatures) -> dict[str, dict[int, float]]:
    """The fit and both predictions as lines through the measured widths."""
    widths = sorted(losses)
    weak = weak_superposition_loss(data.probabilities, widths)
    lines = {"weak: 4/3 Σ p_i over i > m": dict(zip(widths, weak.tolist(), strict=True))}
    x, y = _columns({m: losses[m] for m in widths})
    x, y = x[_usable(y)], y[_usable(y)]
    if len(x) >= 2:
        skew = data.frequencies.exponent if isinstance(data.frequencies, PowerFrequencies) else None
        slopes = {
            "fit": fit_power_law(x, y).exponent,
            "strong": strong_superposition_exponent(skew),
        }
        for label, slope in slopes.items():
            guide = slope_guide(x, y, slope).tolist()
            marked = f", {_TWO_POINTS}" if label == "fit" and len(x) == 2 else ""
            name = f"{label}: slope {-slope:.2f}{marked}"
            lines[name] = dict(zip(map(int, x), guide, strict=True))
    return lines


def _columns(losses: Mapping[int, float]) -> tuple[Tensor, Tensor]:
    return torch.tensor([*losses]).double(), torch.tensor([*losses.values()]).double()


def _usable(losses: Tensor) -> Tensor:
    return torch.isfinite(losses) & (losses > 0)


def _fit(widths: Tensor, losses: Tensor) -> PowerLawResult:
    """The power law, NaN where fewer than two losses can be used."""
    return fit_power_law(widths, losses) if int(_usable(losses).sum()) >= 2 else _NO_FIT
