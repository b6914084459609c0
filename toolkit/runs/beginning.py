"""The beginning of a run: files that are written before it are removed if the run is refused."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import lightning as L
from lightning.fabric.utilities.rank_zero import rank_zero_only
from typing_extensions import override

from toolkit.atomic import write_atomically
from toolkit.console.held_stderr import HeldStderr, RefusedRunError
from toolkit.console.training import FirstStep
from toolkit.runs.folder import (
    CONFIG,
    LAST_CHECKPOINT,
    log_folder,
    read_checkpoint,
    rewind,
    used_error,
)
from toolkit.runs.folder_lock import LOCK_NAME, locked
from toolkit.runs.table import TABLE_NAME

EVENT_FILES = "events.out.tfevents.*"
# Files that loggers and callbacks write before the first step.
_WRITTEN_EARLY = (EVENT_FILES, "hparams.yaml", "metrics.csv", TABLE_NAME, "checkpoints")


class NewFiles:
    """The new files of a run in its folder, to be removed if the run is refused.

    Args:
        folder: The run's folder, which this process has locked.
        is_new: Whether the folder is new, with all its files.
    """

    def __init__(self, folder: Path, *, is_new: bool) -> None:
        self.folder = folder
        self._is_new = is_new
        self._before = self._present()

    def event_files(self) -> set[Path]:
        """Return the new TensorBoard files; a logger may still write to them."""
        return {path for path in self._added() if path.match(EVENT_FILES)}

    def remove(self) -> None:
        """Remove the new files, and a new folder with its lock."""
        for path in self._added():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def _added(self) -> set[Path]:
        if self._is_new:
            return {path for path in self.folder.glob("*") if path.name != LOCK_NAME}
        return self._present() - self._before

    def _present(self) -> set[Path]:
        return {path for pattern in _WRITTEN_EARLY for path in self.folder.glob(pattern)}


class RunBeginning(FirstStep):
    """Writes the configuration when all checks have passed, after cutting back the table.

    ``fit --config`` on the file repeats the run from its start: the file does not contain the
    checkpoint of a continued run. If a continued run has another configuration, the earlier file
    is kept under another name.

    Args:
        held: Standard error, which holds text back until the first step.
        config: The configuration as YAML.
        ckpt_path: The checkpoint that the run starts from.
    """

    def __init__(self, held: HeldStderr, config: str, ckpt_path: str | None) -> None:
        super().__init__(held)
        self._config = config
        self._ckpt_path = ckpt_path
        self._new_files: NewFiles | None = None
        self._has_begun = False

    @contextmanager
    def leaving_nothing(self, folder: Path, *, alone: bool) -> Iterator[None]:
        """Run the body, and remove its files if it raises before the run has begun.

        The files of a new run are also removed after a `RefusedRunError`.

        Args:
            folder: Folder of the run.
            alone: Whether to lock the folder meanwhile.

        Raises:
            ValueError: If the folder belongs to another run, or another process writes to it.
        """
        with locked(folder) if alone else nullcontext(enter_result=False) as is_new:
            is_continued = self._continues(folder)
            if not is_continued:
                _check_unused(folder)
            self._new_files = NewFiles(folder, is_new=is_new)
            before = _stamp(folder / CONFIG)
            try:
                yield
            except BaseException as error:
                if isinstance(error, RefusedRunError) and not is_continued:
                    (folder / CONFIG).unlink(missing_ok=True)
                # The file decides, not this object: the run may have begun in another process.
                if _stamp(folder / CONFIG) == before:
                    rank_zero_only(self._new_files.remove)()
                raise

    @override
    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Write the configuration of a run that had no steps left."""
        self._record(trainer)

    @override
    def begin(self, trainer: L.Trainer) -> None:
        """Write the run's configuration before its first output."""
        if not trainer.sanity_checking:
            self._record(trainer)
        super().begin(trainer)

    def _record(self, trainer: L.Trainer) -> None:
        fast: bool = trainer.fast_dev_run  # type: ignore[attr-defined]
        if self._has_begun or fast or not trainer.is_global_zero:
            return
        self._has_begun = True
        folder = log_folder(trainer)
        if self._continues(folder):
            spared = self._new_files.event_files() if self._new_files else set()
            rewind(folder, spared=spared)
            _keep_earlier(folder, self._config)
        write_atomically(folder / CONFIG, self._config.encode())

    def _continues(self, folder: Path) -> bool:
        checkpoint = folder / LAST_CHECKPOINT
        if self._ckpt_path is None or not checkpoint.is_file():
            return False
        given = Path(self._ckpt_path)
        return given.exists() and checkpoint.samefile(given)


def _check_unused(folder: Path) -> None:
    """Refuse a folder in which all points and rows would be duplicated."""
    written = (CONFIG, TABLE_NAME, "metrics.csv", EVENT_FILES)
    if any(path for pattern in written for path in folder.glob(pattern)):
        raise used_error(folder)


def _keep_earlier(folder: Path, config: str) -> None:
    """Rename the earlier configuration if a continued run has another configuration."""
    path = folder / CONFIG
    if path.exists() and path.read_text(encoding="utf-8") != config:
        step = read_checkpoint(folder / LAST_CHECKPOINT)["global_step"]
        path.replace(path.with_stem(f"{path.stem}_before_step_{step}"))


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return a value that changes when the file is written again, None without a file."""
    if not path.exists():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns
