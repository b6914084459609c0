"""The base of every measuring callback: when to measure, where to write, what to give back."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import inf
from os import PathLike
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from zipfile import is_zipfile

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from callbacks._again import draw_figures_again, write_scalars_again
from callbacks._recorder import Recorder, figure_boards
from callbacks._untouched import untouched
from callbacks.moment import Moment
from callbacks.schedule import Schedule, last_step, takes_no_step
from toolkit.atomic import is_disk_full
from toolkit.functional._checks import one_of, shown_list
from toolkit.interruption import interruption
from toolkit.lightning_private import state_key_of
from toolkit.runs.event_files import points_in
from toolkit.runs.nonfinite import WarnsOfNonfinite, has_been_warned
from toolkit.runs.points import Point, plain_points, values_by_layer
from toolkit.threads import suited_to

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 4
SHARDED = (FSDPStrategy, DeepSpeedStrategy, ModelParallelStrategy)


class MeasurementCallback(Callback, WarnsOfNonfinite, ABC):
    """Measures at scheduled optimiser steps and never changes the run.

    A subclass names its ``metric`` and implements `measure`; it may add `figures`, `check`,
    `arguments` and headlines. Step n means after n optimiser updates, those of all optimisers
    together, as Lightning counts them; where a batch makes several, the first step behind it that
    reaches a scheduled one is measured. Step 0 and the last step are always measured, the last one
    before checkpoints are saved wherever its number is known in advance; a stand-alone
    ``validate`` is measured once, at the checkpoint's own step. Points go
    to every logger, to ``measurements.csv`` in the run's log folder, to `history`, and on all
    ranks to ``trainer.callback_metrics``, where a ModelCheckpoint can monitor them.

    Args:
        schedule: An integer n for every n steps, a list of steps, or ``"log"`` for
            0, 1, 2, 4, ..., 512, 1000, 2000, ...
        on_error: ``warn`` turns a failed measurement into one warning and one missing point,
            ``raise`` lets it end the run; by default warn in ``fit``, but for a full disk, and
            raise elsewhere.

    Attributes:
        metric: What is measured.
        prefix: First part of every tag: the metric, numbered from a trainer's second callback on
            that measures the same one.
        headline_columns: Titles, by quantity, of the columns for the table at the end of a run.
        heat_maps: Labels, by quantity, of the figures by layer and step that a walk draws.
        draws_values: Whether `figures` needs nothing but values and `history`, so that a lost
            figure can be drawn again.
        layers: Names of the measured layers; None for all of them.
        history: What ``fit`` measured, values by step and tag; it travels with checkpoints. In a
            stand-alone ``validate`` of checkpoints as they were published, what that measured.
        has_warned: Whether it has warned of values that are not finite, once for all callbacks.
        shared: What callbacks share within a step; a trainer's first one keeps it for all.

    Raises:
        ValueError: If ``schedule`` or ``on_error`` is none of these.
    """

    metric: ClassVar[str]
    headline_columns: ClassVar[Mapping[str, str]] = {}
    heat_maps: ClassVar[Mapping[str, str]] = {}
    draws_values: ClassVar[bool] = False
    layers: list[str] | None = None

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
        self._due = Schedule(schedule)
        self._suffix = ""
        self._fitting = True
        self._has_validated = False
        self._last_step: float = inf
        self._step_before = 0
        self._goes_on = False
        self._checkpoint_step: int | None = None
        self._recorder: Recorder | None = None

    @abstractmethod
    def measure(self, moment: Moment) -> list[Point]:
        """Return the points of this moment; non-finite inputs give NaN points, no exception."""

    def figures(self, moment: Moment, values: Mapping[str, float]) -> Mapping[str, "Figure"]:
        """Return figures by name, drawn from the measured ``values`` by tag, on rank zero only."""
        return {}

    def check(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Raise a ValueError, before the first step, if this run cannot be measured."""

    def arguments(self) -> dict[str, Any]:
        """Return the measurement's own constructor arguments, plain types, for its state key."""
        return {}

    def conditions(self, moment: Moment) -> dict[str, Any]:
        """Return what the numbers depend on, plain types, for each row of the table."""
        return self.arguments()

    def hashed_tensors(self, pl_module: L.LightningModule) -> Iterable[tuple[str, Tensor]]:
        """Return the named tensors whose fingerprint goes with each row of the table."""
        return pl_module.named_parameters()

    def headline_lines(self) -> list[str]:
        """Return sentences for the end of a run, from the end of `history`."""
        return []

    def nonfinite_lines(self) -> list[str]:
        """Return a sentence about values that were not finite, from the end of `history`."""
        counts = _nonfinite(self.latest, self.tag("num_nonfinite"))
        return [f"{self.prefix}: {_counted(counts)}"] if counts else []

    def tag(self, quantity: str, layer: str = "", *, metric: str = "") -> str:
        """Return the tag of a number, ``prefix/quantity/layer``."""
        prefix = self._prefixed(metric) if metric else self.prefix
        return "/".join(part for part in (prefix, quantity, layer) if part)

    @property
    def latest(self) -> dict[str, float]:
        """Last entry of `history`, values by tag; empty before the first or after a failed one."""
        return self.history[max(self.history)] if self.history else {}

    @property
    def prefix(self) -> str:
        """First part of every tag."""
        return self._prefixed(self.metric)

    @cached_property
    def state_key(self) -> str:
        """Name of this instance's state: instances with other arguments have another."""
        # Lightning asks for it at every hook of every batch.
        return state_key_of(self, schedule=self.schedule, **self.arguments())

    def state_dict(self) -> dict[str, Any]:
        """Return the history, plain types."""
        return {"history": dict(self.history)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the history of the run that is continued."""
        # Validating an older checkpoint after a fit must not shorten what the fit measured.
        if self._fitting:
            self.history = dict(state_dict["history"])

    def number_among(self, callbacks: Sequence[Callback]) -> None:
        """Settle the prefix by the callbacks of a run: one of its own for each of a metric."""
        before = _measuring(callbacks[: callbacks.index(self)])
        number = [other.metric for other in before].count(self.metric)
        self._suffix = f"_{number + 1}" if number else ""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Refuse what cannot be measured."""
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
        self._checkpoint_step = None
        self._recorder = Recorder(trainer)
        if self._fitting and trainer.global_step == 0:
            self.history = {}

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Let go of what was shared."""
        self.shared.clear()

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Remember which step the loaded weights belong to."""
        self._checkpoint_step = checkpoint["global_step"]

    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Put every logged point on disk: a run killed later must not lose one before this."""
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.save()

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure step 0 of a run that is to take none: it calls no later hook."""
        if takes_no_step(trainer):
            self._measure_once(trainer, pl_module)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure step 0; a run that continues drops what the table holds beyond its step.

        Raises:
            ValueError: If the run starts anew in the folder of an earlier one.
        """
        self._last_step = last_step(trainer)
        self._step_before = trainer.global_step
        self._goes_on = trainer.global_step > 0
        if trainer.global_step == 0:
            if trainer.is_global_zero and self._recorder and not self._has_validated:
                self._recorder.check_unused()
            self._measure_once(trainer, pl_module)
            return
        if trainer.is_global_zero and self._recorder and self._recorder.table:
            self._recorder.table.drop_after(trainer.global_step)
        # A run that failed at this very step may not have come to this callback.
        if trainer.global_step in self._due:
            self._measure_once(trainer, pl_module)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: object, batch_idx: int
    ) -> None:
        """Drop what was shared about weights that are about to change."""
        self.shared.clear()
        if self._goes_on:
            # Not before the first batch: what a killed run wrote too much goes until then.
            self._goes_on = False
            if trainer.is_global_zero:
                try:
                    self._write_again(trainer, pl_module)
                except Exception as error:
                    if self._raises:
                        raise
                    self._warn("could not write again what TensorBoard lacks", error)

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: object,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Measure a scheduled step, and the last one."""
        step = trainer.global_step
        if self._due.within(self._step_before, step) or step >= self._last_step:
            self._measure_once(trainer, pl_module)
        self._step_before = step

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure the last step of a run whose length was not known in advance."""
        self._measure_once(trainer, pl_module)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure in a stand-alone validation."""
        if trainer.state.fn == "validate":
            self._has_validated = True
            source = self._source(trainer, pl_module)
            step = self._loaded_step(trainer) if source is None else source.step
            self._measure(trainer, pl_module, step, source)

    def _prefixed(self, metric: str) -> str:
        return f"{metric}{self._suffix}"

    def _source(self, trainer: L.Trainer, pl_module: L.LightningModule) -> Any:  # noqa: ANN401
        """The checkpoint that the model holds as it was published, None if it has been trained."""
        trained = trainer.global_step > 0 or trainer.ckpt_path is not None
        source = getattr(pl_module, "source", None)
        # A user's module may call anything its source.
        is_checkpoint = all(hasattr(source, f) for f in ("name", "revision", "commit", "step"))
        return source if is_checkpoint and not trained else None

    def _loaded_step(self, trainer: L.Trainer) -> int:
        if self._checkpoint_step is None and trainer.ckpt_path is not None:
            # A checkpoint of weights alone calls no hook of a callback.
            self._checkpoint_step = _step_in(trainer.ckpt_path)
        return trainer.global_step if self._checkpoint_step is None else self._checkpoint_step

    def _measure_once(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.global_step not in self.history:
            self._measure(trainer, pl_module, trainer.global_step)

    def _measure(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        step: int,
        source: Any = None,  # noqa: ANN401
    ) -> None:
        moment = Moment(trainer, pl_module, step, _measuring(_callbacks(trainer))[0].shared, source)
        try:
            with untouched(pl_module), suited_to(pl_module):
                points = self._finished_points() or plain_points(self.measure(moment))
                # What is measured is written whole, whatever signal comes.
                with interruption.deferred():
                    self._publish(moment, points)
        except Exception as error:
            # What is not written is lost, unless the run ends here and is continued.
            if self._raises or (self.on_error is None and is_disk_full(error)):
                raise
            if self._fitting:
                self.history.setdefault(step, {})
            self._warn(f"failed at step {step}", error)

    def _finished_points(self) -> list[Point]:
        """Return what this has measured at the checkpoint of a walk that was killed behind it."""
        rows = self._recorder.finished(self.prefix) if self._recorder else []
        return [
            Point(
                row.quantity,
                row.layer,
                row.value,
                row.num_points,
                "" if row.metric == self.prefix else row.metric.removesuffix(self._suffix),
            )
            for row in rows
        ]

    @property
    def _raises(self) -> bool:
        """Whether a failure ends the run."""
        return self.on_error == "raise" or (self.on_error is None and not self._fitting)

    def _warn(self, what: str, error: Exception) -> None:
        rank_zero_warn(
            f"{type(self).__name__} {what}, the run goes on: {type(error).__name__}: {error}"
        )

    def _publish(self, moment: Moment, points: list[Point]) -> None:
        values = {
            self.tag(point.quantity, point.layer, metric=point.metric): point.value
            for point in points
        }
        if self._fitting or moment.source is not None:
            self.history[moment.step] = values
        self._warn_of_nonfinite(moment, values)
        # Not pl_module.log: Lightning would visit each value again after every later batch.
        moment.trainer.callback_metrics.update(
            {tag: torch.tensor(value, dtype=torch.float64) for tag, value in values.items()}
        )
        if moment.trainer.is_global_zero and self._recorder:
            self._write(moment, points, values, self._recorder)

    def _warn_of_nonfinite(self, moment: Moment, values: Mapping[str, float]) -> None:
        """Warn once in a run, unless its loss has been warned about."""
        counts = _nonfinite(values, self.tag("num_nonfinite"))
        if counts and not has_been_warned(_callbacks(moment.trainer)):
            self.has_warned = True
            rank_zero_warn(
                f"{self.prefix}: {_counted(counts)} at step {moment.step}; what depends on them "
                "is NaN"
            )

    def _write(
        self, moment: Moment, points: list[Point], values: dict[str, float], recorder: Recorder
    ) -> None:
        tensors = dict(self._fingerprinted(moment))
        named = [p._replace(metric=self._prefixed(p.metric or self.metric)) for p in points]
        rows = recorder.rows(moment, named, tensors, conditions=self.conditions(moment))
        # Validation may meet weights that this folder has measured, and step 0 those of validation.
        if (moment.step == 0 or not self._fitting) and recorder.holds(rows):
            return
        recorder.write(moment, rows, values, self.prefix)
        boards = figure_boards(moment.trainer.loggers)
        for name, figure in self.figures(moment, values).items() if boards else ():
            for board in boards:
                board.add_figure(self.tag(name), figure, global_step=moment.step)

    def _write_again(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Put on TensorBoard what `history` holds and TensorBoard, by an accident, does not."""
        shared = _measuring(_callbacks(trainer))[0].shared
        whole = self.history

        def draw(step: int) -> dict[str, "Figure"]:
            self.history = {other: values for other, values in whole.items() if other <= step}
            moment = Moment(trainer, pl_module, step, {})
            try:
                figures = self.figures(moment, whole[step])
            finally:
                self.history = whole
            return {self.tag(name): figure for name, figure in figures.items()}

        for logger in trainer.loggers:
            if not isinstance(logger, TensorBoardLogger):
                continue
            if (key := ("board", logger.log_dir)) not in shared:
                logger.save()
                shared[key] = points_in(logger.log_dir)
            write_scalars_again(logger, whole, shared[key])
            if type(self).figures is not MeasurementCallback.figures:
                drawing = draw if self.draws_values else None
                draw_figures_again(logger, self.prefix, whole, shared[key], drawing)

    def _fingerprinted(self, moment: Moment) -> Iterable[tuple[str, Tensor]]:
        if moment.source is None:
            return self.hashed_tensors(moment.pl_module)
        # Without the prefix of the module around it: as anyone else would hash the model.
        model = getattr(moment.pl_module, "model", moment.pl_module)
        parameters: Iterable[tuple[str, Tensor]] = model.named_parameters()
        return parameters


def _step_in(path: str | PathLike[str]) -> int:
    mapped = is_zipfile(path)
    try:
        checkpoint = torch.load(path, "cpu", mmap=mapped, weights_only=True)
    except UnpicklingError:
        # Lightning has loaded this file: its code may run, or the run would have ended there.
        checkpoint = torch.load(path, "cpu", mmap=mapped, weights_only=False)
    return int(checkpoint["global_step"])


def _nonfinite(values: Mapping[str, float], tag: str) -> dict[str, float]:
    """How many values were not finite, by layer, an empty name where there is none."""
    counts = {"": values.get(tag, 0.0), **values_by_layer(values, tag)}
    return {layer: count for layer, count in counts.items() if count > 0}


def _counted(counts: Mapping[str, float]) -> str:
    total = sum(counts.values())
    names = [layer for layer in counts if layer]
    where = f" in {shown_list(names, _SHOWN, count_rest=True)}" if names else ""
    return f"{total:,.0f} {'value' if total == 1 else 'values'}{where} not finite"


def _callbacks(trainer: L.Trainer) -> list[Callback]:
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return callbacks


def _measuring(callbacks: Iterable[Callback]) -> list[MeasurementCallback]:
    return [callback for callback in callbacks if isinstance(callback, MeasurementCallback)]
