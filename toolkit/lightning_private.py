"""All private names of Lightning that the toolkit uses, behind public ones.

A new version of Lightning may drop any of them; a test looks for each entry of `NAMES` and says
which one is missing.
"""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, RichProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from typing_extensions import override

# Attributes by the object that they belong to.
NAMES: dict[str, tuple[str, ...]] = {
    "cli": (
        "_instantiate_trainer",
        "_parse_ckpt_path",
        "_parser",
        "_run_subcommand",
        "_set_seed",
    ),
    "trainer": ("_logger_connector",),
    "logger_connector": ("on_batch_end", "update_train_step_metrics"),
    "fit_loop": ("_combined_loader", "_combined_loader_states_to_load", "_data_fetcher"),
    "epoch_loop": ("_should_check_val_fx", "batch_progress"),
    "combined_loader": ("_load_state_dicts",),
    "module": ("_trainer",),
    "callback": ("_generate_state_key",),
    "checkpoint": (
        "_last_global_step_saved",
        "_monitor_candidates",
        "_save_checkpoint",
        "_save_last_checkpoint",
        "_should_skip_saving_checkpoint",
    ),
    "bar": ("_get_train_description", "_initialize_train_progress_bar_id"),
}
# Keys of the state of ``trainer.fit_loop``.
BATCH_PROGRESS = "epoch_loop.batch_progress"
VALIDATION_PROGRESS = "epoch_loop.val_loop.batch_progress"
# The hyper-parameter with a model's class, in checkpoints that a command has written.
CLASS_PATH = "_class_path"


class OpenCLI(LightningCLI):
    """LightningCLI, whose steps can be replaced under public names."""

    def prepare_run(self) -> None:
        """Prepare the configuration before anything is built from it."""
        self.take_model_from_checkpoint()

    def take_model_from_checkpoint(self) -> None:
        """Put the model that ``ckpt_path`` describes into the configuration."""
        super()._parse_ckpt_path()

    def build_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> L.Trainer:
        """Build the trainer from its options and further callbacks."""
        return super()._instantiate_trainer(config, callbacks)

    def seed_run(self) -> None:
        """Seed all random number generators as the configuration says."""
        super()._set_seed()

    def run_command(self, command: str) -> None:
        """Run the command, with its ``before_`` and ``after_`` hooks."""
        super()._run_subcommand(command)

    def command_parser(self, command: str) -> LightningArgumentParser:
        """Return the parser of the command's options."""
        return self._parser(command)

    @override
    def _parse_ckpt_path(self) -> None:
        self.prepare_run()

    @override
    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> L.Trainer:
        return self.build_trainer(config, callbacks)

    @override
    def _set_seed(self) -> None:
        self.seed_run()

    @override
    def _run_subcommand(self, subcommand: str) -> None:
        self.run_command(subcommand)


class OpenProgressBar(RichProgressBar, ABC):
    """Lightning's bar, with public names for the beginning and the text of the training bar."""

    def begin_train_bar(self) -> None:
        """Add the bar of training, unless there is one."""
        self._initialize_train_progress_bar_id()

    @abstractmethod
    def text_before_bar(self, epoch: int) -> str:
        """Return the text before the bar of training."""
        return super()._get_train_description(epoch)

    @override
    def _get_train_description(self, current_epoch: int) -> str:
        return self.text_before_bar(current_epoch)


def trainer_of(module: L.LightningModule) -> L.Trainer | None:
    """Return the module's trainer, or None; the public property raises without a trainer."""
    return module._trainer


def state_key_of(callback: Callback, **arguments: object) -> str:
    """Return the key of a callback's state in checkpoints, which depends on its arguments."""
    return callback._generate_state_key(**arguments)


def checks_validation(trainer: L.Trainer) -> bool:
    """Return whether Lightning validates after the batch that has just been trained on."""
    loop = trainer.fit_loop
    fetcher = loop._data_fetcher
    return fetcher is not None and loop.epoch_loop._should_check_val_fx(fetcher)


def log_batch(trainer: L.Trainer) -> None:
    """Log the values of the last batch, which a run that ends in the batch's hooks would lose."""
    connector = trainer._logger_connector
    connector.on_batch_end()
    connector.update_train_step_metrics()


def restore_loaders(trainer: L.Trainer) -> None:
    """Let the training loaders continue at the checkpoint's position.

    Lightning does so only if the loaders are created after the checkpoint is read, and not at the
    end of an epoch. A run limited by epochs would begin with the first batch again, because its
    optimiser asks for the number of steps before.
    """
    loop = trainer.fit_loop
    states, loader = loop._combined_loader_states_to_load, loop._combined_loader
    fetcher = loop._data_fetcher
    if states and loader is not None and fetcher is not None:
        loader._load_state_dicts(states)
        loop._combined_loader_states_to_load = []
        iter(fetcher)


def is_saved(checkpoint: ModelCheckpoint, trainer: L.Trainer) -> bool:
    """Return whether the step is saved already, or must not be saved."""
    return checkpoint._should_skip_saving_checkpoint(trainer)


def save_last(checkpoint: ModelCheckpoint, trainer: L.Trainer) -> None:
    """Save the last checkpoint now."""
    checkpoint._save_last_checkpoint(trainer, checkpoint._monitor_candidates(trainer))


def save_to(checkpoint: ModelCheckpoint, trainer: L.Trainer, path: Path) -> None:
    """Save a checkpoint to the path."""
    checkpoint._save_checkpoint(trainer, str(path))


def note_saved_step(checkpoint: ModelCheckpoint, step: int) -> None:
    """Note the last step that is saved; -1 for none."""
    checkpoint._last_global_step_saved = step
