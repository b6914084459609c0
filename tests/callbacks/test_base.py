"""When the base class measures, where its points go, and that it gives everything back."""

import errno
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from matplotlib.figure import Figure
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from callbacks import MeasurementCallback, Moment, Point, ScalingLaw
from tests.callbacks.events import images, scalars
from tests.callbacks.toy import toy_data, toy_model, toy_trainer
from tests.tiny_run import TinyStream
from toolkit.runs.identity import WeightsIdentity
from toolkit.runs.provenance import weights_hash
from toolkit.runs.table import read_measurements


class WeightNorm(MeasurementCallback):
    """Measures one number, and keeps what it saw."""

    metric: ClassVar[str] = "test"

    def __init__(
        self, *, scale: float = 1.0, fail_at: tuple[int, ...] = (), **options: Any
    ) -> None:
        super().__init__(**options)
        self.scale = scale
        self.fail_at = fail_at
        self.seen: list[Moment] = []

    def arguments(self) -> dict[str, Any]:
        return {"scale": self.scale}

    def measure(self, moment: Moment) -> list[Point]:
        self.seen.append(moment)
        if moment.step in self.fail_at:
            raise ArithmeticError("no luck")
        norm = next(moment.pl_module.parameters()).norm().item() * self.scale
        return [Point("norm", "first", norm, 3), Point("step", "", float(moment.step))]

    def figures(self, moment: Moment, values: Any) -> dict[str, Figure]:
        figure = Figure()
        figure.subplots().plot([0, values[self.tag("norm", "first")]])
        return {"line": figure}

    @property
    def steps(self) -> list[int]:
        return [moment.step for moment in self.seen]


class Spy(Callback):
    """Keeps the first weight's norm after each optimiser update."""

    def __init__(self) -> None:
        self.norms: dict[int, float] = {}

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        self.norms[trainer.global_step] = next(pl_module.parameters()).norm().item()


class Lines(Logger):
    """A logger of the user's own, without files or figures."""

    name = "lines"
    version = 0

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int | None, dict[str, float]]] = []
        self.num_saved = 0

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.lines.append((step, dict(metrics)))

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        pass

    def save(self) -> None:
        self.num_saved = len(self.lines)

    def of(self, tag: str) -> list[int | None]:
        return [step for step, metrics in self.lines if tag in metrics]


# When -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": 0}, "schedule: expected a positive integer"),
        ({"schedule": "weekly"}, "schedule: .* got 'weekly'"),
        ({"on_error": "ignore"}, "on_error: expected 'raise', 'warn' or None, got 'ignore'"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WeightNorm(**options)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [(2, [0, 2, 4, 6, 7]), ([3, 99], [0, 3, 7]), ("log", [0, 1, 2, 4, 7]), (7, [0, 7])],
    ids=str,
)
def test_measures_scheduled_steps_the_first_and_the_last(
    schedule: Any, expected: list[int]
) -> None:
    callback, spy = WeightNorm(schedule=schedule), Spy()
    toy_trainer(callback, spy, max_steps=7).fit(toy_model(), toy_data())
    assert callback.steps == expected
    assert list(callback.history) == expected
    for step in expected[1:]:
        assert callback.history[step] == {
            "test/norm/first": spy.norms[step],
            "test/step": step,
        }


def test_accumulation_measures_an_update_once_and_after_it() -> None:
    callback, spy = WeightNorm(schedule=1), Spy()
    trainer = toy_trainer(callback, spy, max_steps=4, accumulate_grad_batches=3)
    trainer.fit(toy_model(), toy_data())
    assert callback.steps == [0, 1, 2, 3, 4]
    assert [callback.history[step]["test/norm/first"] for step in range(5)] == [
        spy.norms[step] for step in range(5)
    ]


def test_several_epochs_and_their_validation_add_nothing() -> None:
    callback = WeightNorm(schedule=[2])
    trainer = toy_trainer(callback, max_steps=-1, max_epochs=3)
    trainer.fit(toy_model(), toy_data(steps_per_epoch=3))
    assert callback.steps == [0, 2, 9]


def test_other_stages_are_neither_measured_nor_refused() -> None:
    callback = WeightNorm(on_error="raise", fail_at=(0,))
    toy_trainer(callback).test(toy_model(), toy_data(), verbose=False)
    law = ScalingLaw()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not have many workers")
        toy_trainer(law).test(BoringModel(), verbose=False)
    assert callback.steps == []
    assert law.history == {}


class Endless(IterableDataset[torch.Tensor]):
    """Four samples, but nobody can know."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.randn(4, 32))


def test_a_run_without_steps_measures_step_0(tmp_path: Path) -> None:
    callback = WeightNorm()
    logger = TensorBoardLogger(tmp_path, name="run", default_hp_metric=False)
    toy_trainer(callback, max_steps=0, logger=logger).fit(toy_model(), datamodule=toy_data())
    assert callback.steps == [0]
    rows = read_measurements(tmp_path / "run" / "version_0" / "measurements.csv")
    assert [row.step for row in rows] == [0, 0]
    assert rows[0].value == next(toy_model().parameters()).norm().item()


class TwoOptimizers(L.LightningModule):
    """Steps two optimisers in each batch, of which Lightning counts every step."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)

    def training_step(self, batch: Tensor, batch_idx: int) -> None:
        loss = (self.first(batch) + self.second(batch)).square().mean()
        self.manual_backward(loss)
        for optimizer in self.optimizers():  # type: ignore[union-attr]
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self) -> Any:
        layers = (self.first, self.second)
        return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in layers], []


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [(5, [0, 6, 10, 16, 20, 22]), ([1, 2, 7, 9], [0, 2, 8, 10, 22])],
    ids=["every 5", "list"],
)
def test_two_optimizers_jump_over_no_scheduled_step(
    schedule: int | list[int], expected: list[int]
) -> None:
    callback = WeightNorm(schedule=schedule)
    # Lightning ends at the first batch that reaches 21 steps: the 11th, which has made 22.
    trainer = toy_trainer(callback, max_steps=21)
    trainer.fit(TwoOptimizers(), TinyStream())
    assert callback.steps == expected


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_a_run_of_unknown_length_is_measured_at_its_end() -> None:
    callback = WeightNorm(schedule=[1])
    trainer = toy_trainer(callback, max_steps=-1, max_epochs=1, limit_val_batches=0)
    trainer.fit(BoringModel(), DataLoader(Endless()))
    assert callback.steps == [0, 1, 4]


def test_the_last_point_is_in_the_last_checkpoint(tmp_path: Path) -> None:
    callback = WeightNorm(schedule=[2])
    save = ModelCheckpoint(tmp_path, every_n_train_steps=5, save_top_k=-1, filename="{step}")
    toy_trainer(callback, save, max_steps=5, enable_checkpointing=True).fit(toy_model(), toy_data())
    checkpoint = torch.load(tmp_path / "step=5.ckpt", weights_only=True)
    assert list(checkpoint["callbacks"][callback.state_key]["history"]) == [0, 2, 5]


# Where ----------------------------------------------------------------------------------------


def test_points_reach_every_logger_the_table_and_the_figures(tmp_path: Path) -> None:
    board, lines = TensorBoardLogger(tmp_path, name="toy"), Lines()
    loggers = [lines, board, CSVLogger(tmp_path, name="csv")]
    callback = WeightNorm(schedule=2, scale=2.0)
    model = toy_model()
    toy_trainer(callback, logger=loggers).fit(model, toy_data())

    assert lines.of("test/norm/first") == [0, 2, 4, 6]
    points = scalars(board.log_dir)
    assert [step for step, _ in points["test/norm/first"]] == [0, 2, 4, 6]
    assert points["test/step"] == [(0, 0.0), (2, 2.0), (4, 4.0), (6, 6.0)]
    assert images(board.log_dir) == {"test/line": [0, 2, 4, 6]}
    assert "test/norm/first" in (Path(loggers[2].log_dir or "") / "metrics.csv").read_text()

    rows = read_measurements(Path(board.log_dir) / "measurements.csv")
    assert [(row.step, row.quantity) for row in rows[:3]] == [(0, "norm"), (0, "step"), (2, "norm")]
    last = rows[-2]
    assert (last.run, last.model, last.metric, last.layer) == (
        "toy/version_0",
        "SuperpositionAutoencoder",
        "test",
        "first",
    )
    assert last.value == callback.history[6]["test/norm/first"]
    assert (last.num_points, last.conditions, last.dtype) == (3, {"scale": 2.0}, "float32")
    assert last.versions["lightning"] == L.__version__
    assert len({row.weights_hash for row in rows}) == 4
    assert not (Path(loggers[2].log_dir or "") / "measurements.csv").exists()


def test_no_logger_writes_no_file(tmp_path: Path) -> None:
    callback = WeightNorm(schedule=3)
    toy_trainer(callback, default_root_dir=tmp_path).fit(toy_model(), toy_data())
    assert list(callback.history) == [0, 3, 6]
    assert list(tmp_path.iterdir()) == []


def test_fast_dev_run_measures_both_ends_and_writes_nothing(tmp_path: Path) -> None:
    callback = WeightNorm()
    trainer = toy_trainer(callback, default_root_dir=tmp_path, fast_dev_run=True, logger=True)
    trainer.fit(toy_model(), toy_data())
    assert callback.steps == [0, 1]
    assert list(tmp_path.iterdir()) == []


def test_a_logger_with_only_a_save_dir_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    class Remote(Lines):
        save_dir = str(tmp_path)

    toy_trainer(WeightNorm(schedule=6), logger=Remote()).fit(toy_model(), toy_data())
    assert len(read_measurements(tmp_path / "lines" / "version_0" / "measurements.csv")) == 4


def test_a_checkpoint_can_monitor_a_value(tmp_path: Path) -> None:
    """From the first batch on, at steps that are measured and at steps that are not."""
    save = ModelCheckpoint(
        tmp_path, monitor="test/step", mode="max", every_n_train_steps=1, save_top_k=1,
        filename="{step}",
    )  # fmt: skip
    callback = WeightNorm(schedule=[1, 4])
    toy_trainer(callback, save, enable_checkpointing=True).fit(toy_model(), toy_data())
    assert save.best_model_score is not None
    assert save.best_model_score.item() == 6
    assert [path.name for path in tmp_path.iterdir()] == ["step=6.ckpt"]


def test_early_stopping_sees_the_newest_value() -> None:
    stop = EarlyStopping("test/step", mode="min", patience=1, check_on_train_epoch_end=True)
    callback = WeightNorm(schedule=1)
    trainer = toy_trainer(callback, stop, max_steps=-1, max_epochs=9)
    trainer.fit(toy_model(), toy_data(steps_per_epoch=2))
    assert stop.best_score.item() == 2
    assert callback.steps == [0, 1, 2, 3, 4]


def test_nothing_is_left_for_lightning_to_visit_between_measurements() -> None:
    class Visited(Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
            assert trainer._results is not None
            assert not [key for key in trainer._results if "test/" in key]
            assert "test/norm/first" in trainer.callback_metrics

    toy_trainer(WeightNorm(schedule=2), Visited()).fit(toy_model(), toy_data())


def test_a_checkpoint_puts_earlier_points_on_disk(tmp_path: Path) -> None:
    class Read(Callback):
        steps: ClassVar[list[list[int]]] = []

        def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
            if trainer.global_step == 4:
                trainer.save_checkpoint(tmp_path / "at_4.ckpt")
                self.steps.append([step for step, _ in scalars(board.log_dir)["test/step"]])
                assert lines.num_saved == len(lines.lines)

    board, lines = TensorBoardLogger(tmp_path, flush_secs=1000), Lines()
    callbacks = WeightNorm(schedule=1), Read()
    trainer = toy_trainer(*callbacks, logger=[board, lines], log_every_n_steps=6)
    trainer.fit(toy_model(), toy_data())
    assert Read.steps == [[0, 1, 2, 3, 4]]


class Returned(WeightNorm):
    """Returns given points."""

    def __init__(self, points: list[Point], **options: Any) -> None:
        super().__init__(schedule=3, on_error="raise", **options)
        self.points = points

    def measure(self, moment: Moment) -> list[Point]:
        return self.points

    def figures(self, moment: Moment, values: Any) -> dict[str, Figure]:
        return {}


def test_a_metric_without_points_costs_nothing(tmp_path: Path) -> None:
    callback = Returned([])
    logger = CSVLogger(tmp_path, name="run", version=0)
    toy_trainer(callback, logger=logger).fit(toy_model(), toy_data())
    assert callback.history == {0: {}, 3: {}, 6: {}}
    assert read_measurements(tmp_path / "run" / "version_0" / "measurements.csv") == []


def test_history_holds_floats_alone(tmp_path: Path) -> None:
    values: list[Any] = [torch.tensor(0.5, requires_grad=True), np.float32(0.5), 2, True]
    callback, lines = Returned([Point("value", str(i), v) for i, v in enumerate(values)]), Lines()
    trainer = toy_trainer(callback, logger=[lines, CSVLogger(tmp_path)])
    trainer.fit(toy_model(), toy_data())
    logged = next(found for _, found in lines.lines if "test/value/0" in found)
    for found in (callback.latest, logged, callback.state_dict()["history"][6]):
        assert [(v, type(v)) for v in found.values()] == [(v, float) for v in (0.5, 0.5, 2.0, 1.0)]
    trainer.save_checkpoint(tmp_path / "some.ckpt")
    torch.load(tmp_path / "some.ckpt", weights_only=True)


def test_a_user_s_own_has_warned_silences_no_warning() -> None:
    class Own(Callback):
        has_warned = True

    callback = Returned([Point("num_nonfinite", "final", 3.0)])
    with pytest.warns(UserWarning, match="test: 3 values in final not finite at step 0"):
        toy_trainer(Own(), callback).fit(toy_model(), toy_data())


def test_a_tuple_among_the_arguments_is_the_list_of_the_table(tmp_path: Path) -> None:
    class Pair(WeightNorm):
        def arguments(self) -> dict[str, Any]:
            return {"pair": (1, 2)}

    trainer = toy_trainer(Pair(schedule=4), logger=CSVLogger(tmp_path), max_steps=4)
    model, data = toy_model(), toy_data()
    trainer.fit(model, data)
    trainer.validate(model, data, verbose=False)
    rows = read_measurements(Path(trainer.log_dir or "") / "measurements.csv")
    assert [row.step for row in rows] == [0, 0, 4, 4]
    lines = (Path(trainer.log_dir or "") / "measurements.csv").read_text().splitlines()
    assert len(lines) == 1 + 4


def test_a_class_without_a_metric_is_refused_where_it_is_defined() -> None:
    message = "metric: expected .* in Nameless, got None; add metric: ClassVar"
    with pytest.raises(TypeError, match=message):

        class Nameless(MeasurementCallback):
            def measure(self, moment: Moment) -> list[Point]:
                return []

    class StillAbstract(MeasurementCallback):
        """A base of further callbacks, which measures nothing itself."""

    class Named(StillAbstract):
        metric: ClassVar[str] = "named"

        def measure(self, moment: Moment) -> list[Point]:
            return []

    assert Named().prefix == "named"


# Giving back ----------------------------------------------------------------------------------


class Meddler(WeightNorm):
    """Touches everything a measurement could touch, then may fail."""

    def measure(self, moment: Moment) -> list[Point]:
        assert not any(part.training for part in moment.pl_module.modules())
        assert not torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
        moment.pl_module.train()
        torch.set_grad_enabled(True)
        torch.manual_seed(99)
        np.random.seed(99)  # noqa: NPY002
        random.seed(99)
        return super().measure(moment)


@pytest.mark.parametrize("fails", [False, True], ids=["measures", "raises"])
@pytest.mark.parametrize("grad", [False, True])
def test_modes_and_random_states_come_back(fails: bool, grad: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Dropout())
    module = BoringModel()
    module.layers = model
    module.train()
    model[1].eval()
    callback = Meddler(on_error="raise", fail_at=(0,) if fails else ())
    trainer = SimpleNamespace(
        callbacks=[callback], callback_metrics={}, is_global_zero=False, global_step=0
    )
    moment = Moment(trainer, module, 0, {})  # type: ignore[arg-type]
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]  # noqa: NPY002
    with torch.set_grad_enabled(grad):
        if fails:
            with pytest.raises(ArithmeticError, match="no luck"):
                callback._measure(moment)
        else:
            callback._measure(moment)
        assert torch.is_grad_enabled() == grad
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    flags = [part.training for part in (module, model, model[0], model[1])]
    assert flags == [True, True, True, False]


def test_watching_changes_no_bit_of_the_run() -> None:
    class Noisy(BoringModel):
        """Draws from every global generator in each step."""

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> Any:
            noise = torch.randn(1) + np.random.normal() + random.random()  # noqa: NPY002
            return (self.layer(batch) * noise).square().mean()

    def run(*callbacks: Callback) -> tuple[list[float], torch.Tensor]:
        L.seed_everything(0, verbose=False)
        model, losses = Noisy(), []

        class Keep(Callback):
            def on_train_batch_end(self, trainer: Any, pl: Any, outputs: Any, *_: Any) -> None:
                losses.append(outputs["loss"].item())

        trainer = toy_trainer(*callbacks, Keep(), max_steps=200)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*does not have many workers")
            trainer.fit(model)
        return losses, model.layer.weight.detach()

    plain_losses, plain_weights = run()
    meddlers = Meddler(schedule=7), WeightNorm(scale=2.0, schedule="log")
    watched_losses, watched_weights = run(*meddlers)
    assert len(meddlers[0].steps) > 20
    assert watched_losses == plain_losses
    assert torch.equal(watched_weights, plain_weights)


# Failing --------------------------------------------------------------------------------------


def test_a_failed_measurement_in_fit_costs_one_warning_and_one_point(tmp_path: Path) -> None:
    lines = Lines()
    callback = WeightNorm(schedule=2, fail_at=(2, 6))
    trainer = toy_trainer(callback, logger=lines)
    with pytest.warns(UserWarning, match="WeightNorm failed at step") as caught:
        trainer.fit(toy_model(), toy_data())
    ours = [str(warning.message) for warning in caught if "failed" in str(warning.message)]
    assert ours == [
        f"WeightNorm failed at step {step}, the run goes on: ArithmeticError: no luck"
        for step in (2, 6)
    ]
    assert trainer.global_step == 6
    assert callback.steps == [0, 2, 4, 6]
    assert lines.of("test/norm/first") == [0, 4]
    assert callback.history[2] == callback.latest == {}


@pytest.mark.parametrize("on_error", ["warn", None])
def test_a_full_disk_ends_the_run_unless_told_to_warn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_error: Any
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("toolkit.runs.table.MeasurementTable.append", full)
    callback = WeightNorm(schedule=6, on_error=on_error)
    trainer = toy_trainer(callback, logger=CSVLogger(tmp_path))
    if on_error is None:
        with pytest.raises(OSError, match="No space left"):
            trainer.fit(toy_model(), toy_data())
    else:
        with pytest.warns(UserWarning, match="No space left"):
            trainer.fit(toy_model(), toy_data())
        assert trainer.global_step == 6


def test_raise_ends_the_run() -> None:
    trainer = toy_trainer(WeightNorm(schedule=2, fail_at=(2,), on_error="raise"))
    with pytest.raises(ArithmeticError, match="no luck"):
        trainer.fit(toy_model(), toy_data())
    assert trainer.global_step == 2


def test_a_stand_alone_validation_raises_unless_told_to_warn() -> None:
    with pytest.raises(ArithmeticError, match="no luck"):
        toy_trainer(WeightNorm(fail_at=(0,))).validate(toy_model(), toy_data(), verbose=False)
    warning = WeightNorm(fail_at=(0,), on_error="warn")
    with pytest.warns(UserWarning, match="failed at step 0"):
        toy_trainer(warning).validate(toy_model(), toy_data(), verbose=False)


@pytest.mark.parametrize("kind", [FSDPStrategy, DeepSpeedStrategy, ModelParallelStrategy])
def test_sharded_weights_are_refused_in_one_line(kind: type[Any]) -> None:
    trainer = SimpleNamespace(strategy=object.__new__(kind))
    with pytest.raises(ValueError, match=f"strategy: .* got {kind.__name__}; use ddp") as caught:
        WeightNorm().setup(trainer, BoringModel(), "fit")  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


# Continuing -----------------------------------------------------------------------------------


class KilledError(Exception):
    """Ends a run as a kill would: nothing after it is measured."""


class Die(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise KilledError


@pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint")
def test_a_resumed_run_has_the_table_of_an_uninterrupted_one(tmp_path: Path) -> None:
    def measured(name: str, *others: Callback, **options: Any) -> WeightNorm:
        callback = WeightNorm(schedule=[1, 3, 4, 5])
        logger = CSVLogger(tmp_path, name="", version=name)
        trainer = toy_trainer(
            callback,
            *others,
            logger=logger,
            max_steps=8,
            enable_checkpointing=bool(others),
        )
        trainer.fit(toy_model(), toy_data(), **options)
        return callback

    def table(name: str) -> list[Any]:
        rows = read_measurements(tmp_path / name / "measurements.csv")
        return [row._replace(run="") for row in rows]

    whole = measured("whole")
    folder = tmp_path / "checkpoints"
    save = ModelCheckpoint(folder, every_n_train_steps=4, save_top_k=-1, filename="{step}")
    with pytest.raises(KilledError):
        measured("cut", Die(6), save)
    assert [row.step for row in table("cut")] == [0, 0, 1, 1, 3, 3, 4, 4, 5, 5]
    with pytest.warns(UserWarning, match="Experiment logs directory .* exists"):
        resumed = measured("cut", ckpt_path=folder / "step=4.ckpt")

    assert resumed.steps == [5, 8]
    assert resumed.history == whole.history
    assert list(whole.history) == [0, 1, 3, 4, 5, 8]
    assert table("cut") == table("whole")


@pytest.mark.parametrize("weights_only", [False, True], ids=["whole", "weights-alone"])
def test_validate_measures_at_the_checkpoint_s_own_step(tmp_path: Path, weights_only: bool) -> None:
    trained = WeightNorm(schedule=2)
    trainer = toy_trainer(trained, max_steps=4)
    trainer.fit(toy_model(), toy_data())
    trainer.save_checkpoint(tmp_path / "some.ckpt", weights_only=weights_only)

    class Gone(Callback):
        def on_validation_start(self, *_: Any) -> None:
            if not weights_only:
                (tmp_path / "some.ckpt").unlink()

    callback, logger = WeightNorm(schedule=2), CSVLogger(tmp_path, name="again")
    fresh = toy_trainer(callback, Gone(), logger=logger)
    fresh.validate(toy_model(), toy_data(), ckpt_path=tmp_path / "some.ckpt", verbose=False)
    assert callback.steps == [4]
    assert fresh.callback_metrics["test/norm/first"].item() == trained.history[4]["test/norm/first"]
    rows = read_measurements(Path(logger.log_dir) / "measurements.csv")
    assert [(row.step, row.value) for row in rows] == [
        (4, trained.history[4]["test/norm/first"]),
        (4, 4.0),
    ]


class Setting:
    """Something that ``torch.load(weights_only=True)`` refuses."""


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "older format"])
def test_weights_alone_with_code_are_validated_at_their_step(tmp_path: Path, zipped: bool) -> None:
    trainer = toy_trainer(max_steps=4)
    trainer.fit(toy_model(), toy_data())
    trainer.save_checkpoint(tmp_path / "some.ckpt", weights_only=True)
    checkpoint = torch.load(tmp_path / "some.ckpt", weights_only=True)
    checkpoint["mine"] = Setting()
    torch.save(checkpoint, tmp_path / "some.ckpt", _use_new_zipfile_serialization=zipped)
    callback = WeightNorm()
    toy_trainer(callback).validate(
        toy_model(),
        datamodule=toy_data(),
        ckpt_path=tmp_path / "some.ckpt",
        verbose=False,
        weights_only=False,
    )
    assert callback.steps == [4]


def test_validate_without_a_checkpoint_is_at_the_trainer_s_step(tmp_path: Path) -> None:
    lines = Lines()
    callback = WeightNorm(schedule=2)
    trainer = toy_trainer(callback, logger=[CSVLogger(tmp_path), lines], max_steps=4)
    model, data = toy_model(), toy_data()
    trainer.validate(model, data, verbose=False)
    trainer.fit(model, data)
    trainer.validate(model, data, verbose=False)
    assert callback.steps == [0, 0, 2, 4, 4]
    # The same weights at the same step are in the folder once.
    assert lines.of("test/norm/first") == [0, 2, 4]
    rows = read_measurements(Path(trainer.log_dir or "") / "measurements.csv")
    assert [row.step for row in rows] == [0, 0, 2, 2, 4, 4]


@pytest.mark.parametrize(
    ("source", "step", "revision"),
    [
        (
            WeightsIdentity("someone/model", "step64", "abc", 64),
            64,
            "step64",
        ),
        ("a source of another kind", 0, ""),
        (SimpleNamespace(name="mine", revision=1, commit=2, step="three"), 0, ""),
        (None, 0, ""),
    ],
    ids=["published", "a user's own text", "a user's own object", "none"],
)
def test_validate_measures_what_was_published_at_its_own_step(
    tmp_path: Path, source: object, step: int, revision: str
) -> None:
    watcher, module = WeightNorm(), BoringModel()
    module.source = source  # type: ignore[assignment]
    module.model = module.layer
    toy_trainer(watcher, logger=CSVLogger(tmp_path, name="run", version=0)).validate(
        module, verbose=False
    )
    row, _ = read_measurements(tmp_path / "run" / "version_0" / "measurements.csv")
    assert (row.step, row.revision) == (step, revision)
    assert row.model == (source.name if step else "BoringModel")  # type: ignore[attr-defined]
    names = ["weight", "bias"] if step else ["layer.weight", "layer.bias"]
    tensors = zip(names, (module.layer.weight, module.layer.bias), strict=True)
    assert row.weights_hash == weights_hash(tensors)


def test_validating_an_older_checkpoint_keeps_what_fit_measured(tmp_path: Path) -> None:
    class Save(Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
            if trainer.global_step == 4:
                trainer.save_checkpoint(tmp_path / "old.ckpt")

    callback = WeightNorm(schedule=2)
    trainer = toy_trainer(callback, Save())
    model, data = toy_model(), toy_data()
    trainer.fit(model, data)
    trainer.validate(model, data, ckpt_path=tmp_path / "old.ckpt", verbose=False)
    assert callback.steps == [0, 2, 4, 6, 4]
    assert list(callback.history) == [0, 2, 4, 6]


def test_a_callback_used_again_starts_afresh() -> None:
    callback = WeightNorm(schedule=3)
    for _ in range(2):
        toy_trainer(callback, max_steps=3).fit(toy_model(), toy_data())
    assert callback.steps == [0, 3, 0, 3]


def test_a_trainer_that_goes_on_measures_no_step_twice() -> None:
    callback = WeightNorm(schedule=2)
    trainer = toy_trainer(callback, max_steps=-1, max_epochs=1)
    model, data = toy_model(), toy_data(steps_per_epoch=4)
    trainer.fit(model, data)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(model, data)
    assert callback.steps == [0, 2, 4, 6, 8]


def test_instances_with_other_arguments_coexist(tmp_path: Path) -> None:
    callbacks = [WeightNorm(), WeightNorm(scale=2.0), WeightNorm(schedule=[1, 2])]
    assert len({callback.state_key for callback in callbacks}) == 3
    assert WeightNorm(on_error="raise").state_key == callbacks[0].state_key
    board = TensorBoardLogger(tmp_path)
    toy_trainer(*callbacks, logger=board, max_steps=1).fit(toy_model(), toy_data())
    tags = ["test/norm/first", "test_2/norm/first", "test_3/norm/first"]
    points = scalars(board.log_dir)
    assert [[step for step, _ in points[tag]] for tag in tags] == 3 * [[0, 1]]
    assert points[tags[1]][1][1] == pytest.approx(2 * points[tags[0]][1][1])
    assert set(images(board.log_dir)) == {"test/line", "test_2/line", "test_3/line"}
    assert [list(callback.latest)[0] for callback in callbacks] == tags  # noqa: RUF015
    rows = read_measurements(Path(board.log_dir) / "measurements.csv")
    conditions = {(row.metric, row.conditions["scale"]) for row in rows}
    assert conditions == {("test", 1.0), ("test_2", 2.0), ("test_3", 1.0)}


def test_state_is_plain_and_complete() -> None:
    callback = WeightNorm()
    callback.history = {0: {"test/norm/first": 0.5}, 1: {}}
    state = callback.state_dict()
    assert state == {"history": {0: {"test/norm/first": 0.5}, 1: {}}}
    again = WeightNorm()
    again.load_state_dict(state)
    assert again.history == callback.history
    again.history[2] = {}
    assert list(callback.history) == [0, 1]


# Sharing --------------------------------------------------------------------------------------


def test_what_one_step_shares_is_gone_at_the_next() -> None:
    class Sharing(WeightNorm):
        found: ClassVar[list[tuple[int, Any]]] = []

        def measure(self, moment: Moment) -> list[Point]:
            self.found.append((moment.step, moment.shared.get("forward")))
            moment.shared["forward"] = moment.step
            return super().measure(moment)

    first, second = Sharing(schedule=1), Sharing(scale=2.0, schedule=1)
    toy_trainer(first, second, max_steps=2).fit(toy_model(), toy_data())
    assert Sharing.found == [(0, None), (0, 0), (1, None), (1, 1), (2, None), (2, 2)]
    assert first.shared == second.shared == {}


def test_weights_are_hashed_once_for_all_callbacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def counted(tensors: Any) -> str:
        calls.append(sorted(name for name, _ in tensors))
        return f"hash {len(calls)}"

    monkeypatch.setattr("callbacks.moment.weights_hash", counted)
    logger = CSVLogger(tmp_path)
    callbacks = WeightNorm(schedule=6), WeightNorm(scale=2.0, schedule=6)
    toy_trainer(*callbacks, logger=logger).fit(toy_model(), toy_data())
    assert calls == 2 * [sorted(name for name, _ in toy_model().named_parameters())]
    rows = read_measurements(Path(logger.log_dir) / "measurements.csv")
    assert [row.weights_hash for row in rows] == 4 * ["hash 1"] + 4 * ["hash 2"]
