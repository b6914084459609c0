"""The base of the measuring callbacks: schedule, errors, publishing and restored state."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from inspect import isabstract
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from typing_extensions import override

from callbacks._again import write_again
from callbacks._nonfinite import nonfinite_sentence, warn_of_nonfinite
from callbacks._numbering import Numbering
from callbacks._recorder import Recorder, show_figures, show_values
from callbacks._resumption import Resumption
from callbacks._untouched import untouched
from callbacks._weights import WeightsOrigin, named_weights
from callbacks.moment import Moment
from callbacks.schedule import DueSteps, takes_no_step
from toolkit.atomic import is_disk_full
from toolkit.functional._checks import one_of, shown
from toolkit.interruption import interruption
from toolkit.lightning_private import state_key_of
from toolkit.runs.nonfinite import WarnsOfNonfinite
from toolkit.runs.points import Point, plain_points
from toolkit.threads import suited_to

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARDED = (FSDPStrategy, DeepSpeedStrategy, ModelParallelStrategy)


class MeasurementCallback(Callback, WarnsOfNonfinite, ABC):
    """Measures at scheduled optimiser steps and never changes the run.

    A subclass names its ``metric`` and implements `measure`; it may add `figures`, `check`,
    `arguments` and headlines. Step n means after n optimiser updates, those of all optimisers
    together, as Lightning counts them. If a batch makes several updates and passes a scheduled
    step, the step after the batch is measured. Step 0 and the last step are always measured, the
    last step before checkpoints are saved if its number is known in advance. A stand-alone
    ``validate`` is measured once, at the checkpoint's own step. Points go
    to every logger, to ``measurements.csv`` in the run's log folder, to `history`, and on all
    ranks to ``trainer.callback_metrics``, where a ModelCheckpoint can monitor them.

    Args:
        schedule: An integer n for every n steps, a list of steps, or ``"log"`` for
            0, 1, 2, 4, ..., 512, 1000, 2000, ...
        on_error: ``warn``: a failed measurement gives a warning and a missing point; ``raise``:
            it ends the run. The default is ``raise`` for a full disk and outside of ``fit``, and
            ``warn`` for all other failures in ``fit``.

    Attributes:
        metric: Name of the measurement, first part of the tags.
        prefix: First part of every tag: the metric, with a number from a trainer's second callback
            of the same metric on.
        headline_columns: Titles, by quantity, of the columns for the table at the end of a run.
        heat_maps: Labels, by quantity, of the figures by layer and step that a walk draws.
        draws_values: Whether `figures` needs only values and `history`, so that a lost figure can
            be drawn again.
        layers: Names of the measured layers; None for all of them.
        history: Values by step and tag that ``fit`` has measured; checkpoints contain it. In a
            stand-alone ``validate`` of published checkpoints, the values of the validation.
        has_warned: Whether it has warned of values that are not finite, once for all callbacks.
        shared: Results that callbacks share within a step; the trainer's first callback has them.

    Raises:
        ValueError: If ``schedule`` or ``on_error`` has another value.
    """

    metric: ClassVar[str]
    headline_columns: ClassVar[Mapping[str, str]] = {}
    heat_maps: ClassVar[Mapping[str, str]] = {}
    draws_values: ClassVar[bool] = False
    layers: list[str] | None = None

    def __init_subclass__(cls, **options: object) -> None:
        """Refuse a complete class without a metric.

        Raises:
            TypeError: If a class without abstract methods names no ``metric``.
        """
        super().__init_subclass__(**options)
        metric = getattr(cls, "metric", None)
        if not isabstract(cls) and not isinstance(metric, str):
            raise TypeError(
                f"metric: expected the name of the measurement in {cls.__name__}, got "
                f'{shown(metric)}; add metric: ClassVar[str] = "..." to the class'
            )

    def __init__(
        self,
        *,
        schedule: int | list[int] | Literal["log"] = "log",
        on_error: Literal["raise", "warn"] | None = None,
    ) -> None:
        self.schedule = schedule
        self.on_error = one_of("on_error", on_error, "raise", "warn", None)
        self.history: dict[int, dict[str, float]] = {}
        self.shared: dict[Any, Any] = {}
        self._due = DueSteps(schedule)
        self._numbering = Numbering()
        self._origin = WeightsOrigin()
        self._resumption = Resumption()
        self._recorder: Recorder | None = None
        self._fitting = True

    @abstractmethod
    def measure(self, moment: Moment) -> list[Point]:
        """Return the points of this moment; non-finite inputs give NaN points, no exception."""

    def figures(self, moment: Moment, values: Mapping[str, float]) -> Mapping[str, "Figure"]:
        """Return figures by name, drawn from the measured ``values`` by tag, on rank zero only."""
        return {}

    def check(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Raise a ValueError, before the first step, if this run cannot be measured."""

    def arguments(self) -> dict[str, Any]:
        """Return the subclass's constructor arguments as plain types, for its state key."""
        return {}

    def conditions(self, moment: Moment) -> dict[str, Any]:
        """Return the settings that the numbers depend on, as plain types, for each table row."""
        return self.arguments()

    def hashed_tensors(self, pl_module: L.LightningModule) -> Iterable[tuple[str, Tensor]]:
        """Return the named tensors whose fingerprint goes with each row of the table."""
        return pl_module.named_parameters()

    def headline_lines(self) -> list[str]:
        """Return sentences about the last measurement, for the end of a run."""
        return []

    def nonfinite_lines(self) -> list[str]:
        """Return a sentence about non-finite values in the last measurement, in a list."""
        sentence = nonfinite_sentence(self.latest, self.tag("num_nonfinite"))
        return [f"{self.prefix}: {sentence}"] if sentence else []

    def tag(self, quantity: str, layer: str = "", *, metric: str = "") -> str:
        """Return the tag of a number, ``prefix/quantity/layer``."""
        prefix = self._numbering.prefixed(metric) if metric else self.prefix
        return "/".join(part for part in (prefix, quantity, layer) if part)

    @property
    def latest(self) -> dict[str, float]:
        """Last values by tag; empty before the first measurement and after a failed one."""
        return self.history[max(self.history)] if self.history else {}

    @property
    def prefix(self) -> str:
        """First part of every tag."""
        return self._numbering.prefixed(self.metric)

    @cached_property
    @override
    def state_key(self) -> str:
        # Lightning reads the state key at every hook of every batch.
        return state_key_of(self, schedule=self.schedule, **self.arguments())

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"history": dict(self.history)}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # The validation of an older checkpoint after a fit must not shorten the fit's history.
        if self._fitting:
            self.history = dict(state_dict["history"])

    def number_among(self, callbacks: Sequence[Callback]) -> None:
        """Set the prefix so that it differs from the prefixes of the run's earlier callbacks."""
        before = _measuring(callbacks[: callbacks.index(self)])
        self._numbering.settle(self.metric, [other.metric for other in before])

    @override
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage not in {"fit", "validate"}:
            return
        if isinstance(trainer.strategy, SHARDED):
            raise ValueError(  # noqa: TRY004 - the run is wrong, not a call
                f"strategy: expected whole weights on every rank for {type(self).__name__}, got "
                f"{type(trainer.strategy).__name__}; use ddp or remove the callback"
            )
        self.check(trainer, pl_module)
        self.number_among(_callbacks(trainer))
        self._fitting = stage == "fit"
        self._origin.forget()
        self._recorder = Recorder(trainer)
        if self._fitting and trainer.global_step == 0:
            self.history = {}

    @override
    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.shared.clear()

    @override
    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._origin.remember(checkpoint)

    @override
    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        # A run that is killed later must not lose a point before its checkpoint.
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.save()

    @override
    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # A run without steps calls no later hook.
        if takes_no_step(trainer):
            self._measure_once(trainer, pl_module)

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._due.begin(trainer)
        self._resumption.begin(trainer, self._recorder)
        # A run that failed at this step may not have called this callback.
        if trainer.global_step == 0 or trainer.global_step in self._due:
            self._measure_once(trainer, pl_module)

    @override
    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, batch_idx: int
    ) -> None:
        # The shared results belong to weights that are about to change.
        self.shared.clear()
        if self._resumption.is_first_batch(trainer):
            drawn = type(self).figures is not MeasurementCallback.figures
            try:
                write_again(self, trainer, pl_module, _shared(trainer), has_figures=drawn)
            except Exception as error:
                if self._raises:
                    raise
                self._warn("could not write again what TensorBoard lacks", error)

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        if self._due.reached(trainer.global_step):
            self._measure_once(trainer, pl_module)

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # The last step of a run whose length was not known in advance.
        self._measure_once(trainer, pl_module)

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.state.fn == "validate":
            self._resumption.note_validation()
            source = self._origin.source(trainer, pl_module)
            step = self._origin.step(trainer) if source is None else source.step
            self._measure(Moment(trainer, pl_module, step, _shared(trainer), source))

    def _measure_once(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        step = trainer.global_step
        if step not in self.history:
            self._measure(Moment(trainer, pl_module, step, _shared(trainer)))

    def _measure(self, moment: Moment) -> None:
        try:
            with untouched(moment.pl_module), suited_to(moment.pl_module):
                finished = self._recorder.finished(self.prefix) if self._recorder else []
                points = [self._numbering.point(row, self.metric) for row in finished]
                points = points or plain_points(self.measure(moment))
                # A signal does not interrupt the writing of a measurement.
                with interruption.deferred():
                    self._publish(moment, points)
        except Exception as error:
            # An unwritten point is lost, unless the run ends here and is continued later.
            if self._raises or (self.on_error is None and is_disk_full(error)):
                raise
            if self._fitting:
                self.history.setdefault(moment.step, {})
            self._warn(f"failed at step {moment.step}", error)

    def _publish(self, moment: Moment, points: list[Point]) -> None:
        values = {self.tag(p.quantity, p.layer, metric=p.metric): p.value for p in points}
        if self._fitting or moment.source is not None:
            self.history[moment.step] = values
        tag = self.tag("num_nonfinite")
        warn_of_nonfinite(self, self.prefix, nonfinite_sentence(values, tag), moment)
        show_values(moment.trainer, values)
        if not moment.trainer.is_global_zero or self._recorder is None:
            return
        named = [self._numbering.named(point, self.metric) for point in points]
        tensors = dict(named_weights(moment, self.hashed_tensors))
        rows = self._recorder.rows(moment, named, tensors, conditions=self.conditions(moment))
        # The table may have rows of the same weights, from a validation or before it.
        if (moment.step == 0 or not self._fitting) and self._recorder.holds(rows):
            return
        self._recorder.write(moment, rows, values, self.prefix)
        show_figures(moment, lambda: self.figures(moment, values), self.tag)

    @property
    def _raises(self) -> bool:
        """Whether a failure ends the run."""
        return self.on_error == "raise" or (self.on_error is None and not self._fitting)

    def _warn(self, failure: str, error: Exception) -> None:
        rank_zero_warn(
            f"{type(self).__name__} {failure}, the run goes on: {type(error).__name__}: {error}"
        )


def _callbacks(trainer: L.Trainer) -> list[Callback]:
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return callbacks


def _measuring(callbacks: Iterable[Callback]) -> list[MeasurementCallback]:
    return [callback for callback in callbacks if isinstance(callback, MeasurementCallback)]


def _shared(trainer: L.Trainer) -> dict[Any, Any]:
    """Return the results that all measuring callbacks of the trainer share."""
    return _measuring(_callbacks(trainer))[0].shared
