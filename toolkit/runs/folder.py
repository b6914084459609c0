"""The folder of a run: its name, its versions, and the version that can be continued."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path, PurePath
from pickle import UnpicklingError
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import Logger

from toolkit.runs.event_files import drop_after
from toolkit.runs.table import TABLE_NAME, MeasurementTable

DEFAULT_ROOT = "checkpoints"

CONFIG = "config.yaml"
SUMMARY = "summary.json"
LAST_CHECKPOINT = Path("checkpoints", "last.ckpt")
SAVED_AT = "saved_at"


def run_name(given: str | None, configs: Sequence[str], class_path: str | None) -> str:
    """Return the run's name: the given name, or that of the last config file, or the model's.

    Args:
        given: Value of ``--run``.
        configs: Paths of the configuration files, in the order of the command line.
        class_path: Class of the model.

    Raises:
        ValueError: If the name cannot be a folder below another folder, or no name is known.
    """
    if given is None and configs:
        given = PurePath(configs[-1]).stem
    if given is None and class_path:
        given = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_path.rpartition(".")[2]).lower()
    parts = PurePath(given or "").parts
    if not parts or ".." in parts or PurePath(*parts).is_absolute():
        raise ValueError(f"run: expected the name of a folder, got {given!r}; give --run NAME")
    return str(PurePath(*parts))


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, which holds one folder per version.

    Attributes:
        root: Folder of all runs.
        name: Name of the run.
    """

    root: Path
    name: str

    @property
    def path(self) -> Path:
        """The run's own folder."""
        return self.root / self.name

    def version_folder(self, version: int) -> Path:
        """Return the folder of a version."""
        return self.path / f"version_{version}"

    def versions(self) -> list[int]:
        """Return the versions that exist, in rising order."""
        names = (folder.name for folder in self.path.glob("version_*") if folder.is_dir())
        numbers = (name.removeprefix("version_") for name in names)
        return sorted(int(number) for number in numbers if number.isdecimal())

    def next_version(self) -> int:
        """Return the version of a new run."""
        return max(self.versions(), default=-1) + 1

    def unfinished(self) -> int | None:
        """Return the newest version that has a last checkpoint and no summary."""
        return max(
            (v for v in self._with_checkpoint() if not (self.version_folder(v) / SUMMARY).exists()),
            default=None,
        )

    def version_to_continue(self) -> int:
        """Return the version that ``fit --ckpt_path last`` continues.

        Raises:
            ValueError: If no version is unfinished, or the newest has no checkpoint yet.
        """
        version = self.unfinished()
        begun = [v for v in self.versions() if (self.version_folder(v) / CONFIG).exists()]
        if version is None and begun and not (self.version_folder(begun[-1]) / SUMMARY).exists():
            raise ValueError(
                f"ckpt_path: expected a checkpoint in {self.version_folder(begun[-1])}, found "
                "none: the run ended before its first one; leave it out to start anew"
            )
        if version is None:
            raise ValueError(
                f"ckpt_path: expected an unfinished run in {self.path}, found none; "
                "leave it out to start a new one"
            )
        return version

    def newest_checkpoint(self) -> Path:
        """Return the last checkpoint of the newest version with a checkpoint.

        Raises:
            ValueError: If no version has a checkpoint.
        """
        version = max(self._with_checkpoint(), default=None)
        if version is None:
            raise ValueError(f"ckpt_path: expected a run with a checkpoint in {self.path}")
        return self.version_folder(version) / LAST_CHECKPOINT

    def _with_checkpoint(self) -> list[int]:
        return [v for v in self.versions() if (self.version_folder(v) / LAST_CHECKPOINT).is_file()]


def log_folder(trainer: L.Trainer) -> Path:
    """Return the folder of the trainer's loggers, or the folder of its checkpoints."""
    return logger_folder(trainer.loggers) or Path(trainer.default_root_dir)


def logger_folder(loggers: Sequence[Logger]) -> Path | None:
    """Return the folder that the first file logger writes to.

    Without a file logger it is the folder of Lightning's checkpoints; None if there is none.
    """
    for logger in loggers:
        if logger.log_dir is not None:
            return Path(logger.log_dir)
    for logger in loggers:
        if logger.save_dir is not None:
            version = logger.version
            version = version if isinstance(version, str) else f"version_{version}"
            return Path(logger.save_dir, str(logger.name), version)
    return None


def used_error(folder: Path) -> ValueError:
    """Return the error for a folder in which rows and points would be duplicated."""
    return ValueError(
        f"trainer.logger: expected a folder without an earlier run, got {folder}; give it another "
        "name or version"
    )


def rewind(version_folder: Path, *, spared: Collection[Path] = ()) -> int:
    """Drop measurements after a killed run's last checkpoint; return that checkpoint's step.

    Args:
        version_folder: The run's folder.
        spared: Event files that a logger is writing to; they are not changed.

    Raises:
        ValueError: If the checkpoint cannot be read without running code from it.
    """
    checkpoint = read_checkpoint(version_folder / LAST_CHECKPOINT)
    step = int(checkpoint["global_step"])
    if (version_folder / TABLE_NAME).exists():
        MeasurementTable(version_folder / TABLE_NAME).drop_after(step)
    written_until = checkpoint.get(SAVED_AT, inf)
    drop_after(version_folder, step, written_until=written_until, spared=spared)
    return step


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return a checkpoint of plain types and tensors; the tensors stay on disk until used.

    Raises:
        ValueError: If the file is not a checkpoint of this kind.
    """
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, RuntimeError, ValueError, UnpicklingError) as error:
        raise ValueError(
            f"ckpt_path: expected a checkpoint of tensors and plain types, got {path}; "
            "--weights_only=false loads any other kind and runs the code in it"
        ) from error
    if not isinstance(checkpoint, dict) or "global_step" not in checkpoint:
        raise ValueError(f"ckpt_path: expected a checkpoint of a Lightning run, got {path}")
    return checkpoint


def check_complete(checkpoint: Mapping[str, Any], path: Path, *, is_continued: bool) -> None:
    """Refuse a checkpoint that lacks entries which Lightning restores.

    Args:
        checkpoint: The checkpoint.
        path: Its file.
        is_continued: Whether a training is to continue from it.

    Raises:
        ValueError: If an entry is missing.
    """
    needed = ["pytorch-lightning_version", "state_dict"]
    needed += ["optimizer_states", "lr_schedulers", "loops"] if is_continued else []
    missing = [name for name in needed if name not in checkpoint]
    if missing:
        purpose = "a checkpoint of a whole run" if is_continued else "a checkpoint of weights"
        raise ValueError(f"ckpt_path: expected {purpose}, got {path} without {', '.join(missing)}")
