"""The commands fit, validate, test and predict: LightningCLI with the toolkit's run folders."""

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import lightning as L
import torch
from jsonargparse import Namespace
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.callbacks import Callback, ProgressBar
from lightning.pytorch.cli import (
    ArgsType,
    LightningArgumentParser,
    LightningCLI,
)
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from typing_extensions import override

from toolkit.atomic import naming
from toolkit.commands.train.ending import EndAtUpdate
from toolkit.commands.train.finite_loss import FiniteLoss
from toolkit.commands.train.logging_interval import LoggingInterval
from toolkit.commands.train.monitored_metric import MonitorCheck
from toolkit.console.held_stderr import HeldStderr
from toolkit.console.noise import without_noise
from toolkit.console.run_parser import RunParser
from toolkit.console.training import RunProgressBar
from toolkit.functional._checks import at_most
from toolkit.lightning_private import CLASS_PATH, OpenCLI
from toolkit.lm.weights.zip_checksums import check_file
from toolkit.runs.beginning import RunBeginning
from toolkit.runs.checkpoint import RunCheckpoint
from toolkit.runs.config import NamedConfigFile
from toolkit.runs.folder import (
    DEFAULT_ROOT,
    LAST_CHECKPOINT,
    SUMMARY,
    RunFolder,
    check_complete,
    log_folder,
    logger_folder,
    read_checkpoint,
    run_name,
)
from toolkit.runs.random_states import UndisturbedByValidation
from toolkit.runs.summary import collect
from toolkit.runs.trainer_limits import check_options, check_processes, check_seed
from toolkit.threads import ThreadChoice, restored

_SECONDS_BETWEEN_FLUSHES = 5
# The process of a command needs about 300 MiB without a model.
_ALWAYS_ALLOWED_PROCESSES = 16
# Values with a meaning in Lightning, beside the path of a file.
_LIGHTNING_PATH = re.compile(r"best$|hpc$|registry\b|\w+://")


def run(args: list[str], held: HeldStderr) -> None:
    """Run ``fit``, ``validate``, ``test`` or ``predict``.

    Args:
        args: The command and its options.
        held: Standard error, which holds text back until the first step.
    """
    with without_noise(), restored():
        TrainerCLI(args, held)


class TrainerCLI(OpenCLI):
    """The commands that run a Lightning Trainer.

    The hyper-parameters of a checkpoint are used only if no model is given. A model on the command
    line or in a configuration replaces them, so that a continued run takes a new learning rate.

    Args:
        args: The command and its options.
        held: Standard error; its ``start`` is called when the first step begins.
    """

    def __init__(self, args: list[str], held: HeldStderr) -> None:
        self._command = args[0]
        self._typed = args
        self._folder = RunFolder(Path(DEFAULT_ROOT), "")
        self._continued: int | None = None
        self._held = held
        catchable: dict[str, Any] = {"exit_on_error": False}
        super().__init__(
            # `RunBeginning` saves the configuration when the run really begins.
            save_config_callback=None,
            trainer_defaults={"callbacks": [ThreadChoice(), FiniteLoss()]},
            seed_everything_default=0,
            parser_kwargs={
                "prog": "python -m toolkit",
                **catchable,
                self._command: {**catchable, "command": self._command},
            },
            subclass_mode_model=True,
            subclass_mode_data=True,
            args=args,
            auto_configure_optimizers=False,
        )

    @override
    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Return only the command that runs: the parsers of all commands take long to build."""
        return {self._command: LightningCLI.subcommands()[self._command]}

    @override
    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add trainer, model and data; the model may come from a checkpoint."""
        parser.add_lightning_class_args(self.trainer_class, "trainer")
        parser.set_defaults({"trainer.enable_model_summary": False})
        for name, base in (("model", L.LightningModule), ("data", L.LightningDataModule)):
            parser.add_lightning_class_args(base, name, subclass_mode=True, required=False)

    @override
    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the name of the run and its checkpoint."""
        parser.add_argument(
            "--run",
            type=str | None,
            default=None,
            help="Name of the run's folder in trainer.default_root_dir, by default in "
            "checkpoints/; without it, the last config file or the model gives the name.",
        )
        parser.add_lightning_class_args(RunCheckpoint, "checkpoint")

    @override
    def init_parser(self, **kwargs: Any) -> RunParser:
        """Return a parser; errors of ``-c`` and ``--config`` name the file."""
        parser = RunParser(dump_header=[f"lightning=={L.__version__}"], **kwargs)
        parser.add_argument("-c", "--config", action=NamedConfigFile, help="Path of a YAML file.")
        return parser

    @override
    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse the arguments, and ignore those of the Python process."""
        self.config = parser.parse_args(args)  # type: ignore[arg-type]

    @rank_zero_only
    def before_fit(self) -> None:
        """Name an unfinished run that could be continued."""
        if self._continued is not None or self.trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if (version := self._folder.unfinished()) is not None:
            sys.stdout.write(
                f"{self._folder.version_folder(version)} is unfinished: "
                "--ckpt_path last continues it\n"
            )

    @rank_zero_only
    def after_fit(self) -> None:
        """Print the table and the next command; the summary file marks the run as finished."""
        trainer = self.trainer
        if not trainer.state.finished:
            return
        summary = collect(trainer.callbacks)  # type: ignore[attr-defined]
        summary.print()
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                sys.stdout.write(f"tensorboard --logdir {logger.root_dir}\n")
        summary.write(log_folder(trainer) / SUMMARY)

    @property
    def _settings(self) -> Namespace:
        """The configuration of this command."""
        settings: Namespace = self.config[self.config.subcommand]
        return settings

    @override
    def prepare_run(self) -> None:
        """Decide on the model, the run's name and the checkpoint before any object is built."""
        check_options(self._settings.trainer, self._command)
        continues = self._settings.ckpt_path == "last"
        if not continues:
            self._settle_model()
        settings = self._settings
        configs = [os.fspath(path) for path in settings.get("config") or [] if path is not None]
        class_path = settings.model.class_path if settings.model else None
        settings.run = run_name(settings.run, configs, class_path)
        root = settings.trainer.default_root_dir or DEFAULT_ROOT
        self._folder = RunFolder(Path(root), settings.run)
        if continues:
            settings.ckpt_path = str(self._last_checkpoint())
            self._settle_model()

    def _settle_model(self) -> None:
        """Check the checkpoint, and use its model if no model is given."""
        settings = self._settings
        # By default no code in a checkpoint is run.
        settings.weights_only = settings.weights_only is not False
        if settings.ckpt_path is not None:
            path = Path(settings.ckpt_path)
            if path.is_file() and settings.weights_only:
                checkpoint = read_checkpoint(path)
                check_file(path, argument="ckpt_path")
                check_complete(checkpoint, path, is_continued=self._command == "fit")
                hyper_parameters = checkpoint.get("hyper_parameters", {})
                if settings.model is None and CLASS_PATH in hyper_parameters:
                    self.take_model_from_checkpoint()
            elif not (path.exists() or _LIGHTNING_PATH.match(settings.ckpt_path)):
                raise ValueError(f"ckpt_path: expected an existing file or 'last', got {path}")
        if self._settings.model is None:
            raise ValueError("model: expected a class, got none; give --model NAME")

    def _last_checkpoint(self) -> Path:
        """Return the path of ``--ckpt_path last``; ``fit`` continues in its folder."""
        if self._command != "fit":
            return self._folder.newest_checkpoint()
        if self._settings.trainer.logger not in (None, True, False):
            raise ValueError(
                "ckpt_path: 'last' is known for the default logger alone; give the file's path"
            )
        self._continued = self._folder.version_to_continue()
        return self._folder.version_folder(self._continued) / LAST_CHECKPOINT

    @override
    def build_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> L.Trainer:
        """Add logger, checkpoint and progress bar, unless the user has set them."""
        _check_processes(config["devices"])
        self._beginning = self._run_beginning()
        bare = config["barebones"]
        # Lightning's own checkpoint would be saved at the end of a fast_dev_run, too.
        if bare or config["fast_dev_run"] or config["enable_checkpointing"] is False:
            callbacks = [c for c in callbacks if not isinstance(c, RunCheckpoint)]
        if not bare:
            callbacks = [UndisturbedByValidation(), *callbacks]
        keepers = [callback for callback in callbacks if isinstance(callback, RunCheckpoint)]
        callbacks = [*callbacks, *(EndAtUpdate(keeper, self._continuing) for keeper in keepers)]
        monitors = (keeper.monitor for keeper in keepers if keeper.monitor is not None)
        callbacks = [*map(MonitorCheck, monitors), *callbacks]
        given = config["callbacks"] or []
        given = given if isinstance(given, list) else [given]
        has_bar = any(isinstance(callback, ProgressBar) for callback in given)
        if not (bare or has_bar or config["enable_progress_bar"] is False):
            callbacks = [*callbacks, RunProgressBar()]
        if not bare and config["log_every_n_steps"] is None:
            # A provisional value: Lightning warns of an interval beyond the run's length.
            config["log_every_n_steps"] = 1
            callbacks = [LoggingInterval(), *callbacks]
        if bare or config["logger"] is False:
            version = self._continued
            version = self._folder.next_version() if version is None else version
            config["default_root_dir"] = str(self._folder.version_folder(version))
        elif config["logger"] in (None, True):
            config["logger"] = self._logger()
        # Before the callbacks that log or drop values at the start of training.
        config["callbacks"] = [self._beginning, *given]
        return super().build_trainer(config, callbacks)

    @override
    def seed_run(self) -> None:
        check_seed(self._settings.seed_everything)
        super().seed_run()

    @override
    def run_command(self, command: str) -> None:
        """Run the command; leave no files if the run is refused before its first step."""
        check_processes(self.trainer)
        if self.trainer.fast_dev_run:  # type: ignore[attr-defined]
            super().run_command(command)
            return
        loggers = self.trainer.loggers
        # A run without its own folder shares the folder of other runs.
        is_own = not loggers or logger_folder(loggers) is not None
        alone = is_own and self.trainer.is_global_zero
        folder = log_folder(self.trainer)
        with self._beginning.leaving_nothing(folder, alone=alone), naming(folder):
            super().run_command(command)

    def _run_beginning(self) -> RunBeginning:
        config = self._settings.clone()
        config["ckpt_path"] = None
        text = self.command_parser(self._command).dump(config, skip_none=False, format="yaml")
        return RunBeginning(self._held, text, self._settings.ckpt_path)

    def _continuing(self, checkpoint: Path | None) -> str:
        """Return the command that continues a checkpoint of this run, or starts a new run."""
        typed = without_option(self._typed, "--ckpt_path")
        if checkpoint is not None:
            versions = self._folder.path.resolve()
            is_last = checkpoint.resolve().parent.parent.parent == versions
            is_known = is_last and self._settings.trainer.logger in (None, True, False)
            typed = [*typed, "--ckpt_path", "last" if is_known else str(checkpoint)]
        return shlex.join(["python", "-m", "toolkit", *typed])

    def _logger(self) -> Logger:
        return TensorBoardLogger(
            self._folder.root,
            name=self._folder.name,
            version=self._continued,
            # A continued run would write it again at step 0.
            default_hp_metric=False,
            flush_secs=_SECONDS_BETWEEN_FLUSHES,
        )


def _check_processes(devices: object) -> None:
    """Refuse numbers of processes that would overload the machine before the first step.

    Raises:
        ValueError: If there are more devices than accelerators, cores and 16.
    """
    most = max(os.cpu_count() or 1, torch.accelerator.device_count(), _ALWAYS_ALLOWED_PROCESSES)
    number = int(devices) if str(devices).isdecimal() else 0  # type: ignore[call-overload]
    at_most("trainer.devices", number, most, limit=f"{most} on this machine, one process each")


def without_option(args: list[str], option: str) -> list[str]:
    """Return the arguments without an option, given as ``--key value`` or ``--key=value``."""
    kept: list[str] = []
    is_value = False
    for argument in args:
        if not (is_value or argument == option or argument.startswith(f"{option}=")):
            kept.append(argument)
        is_value = argument == option
    return kept
