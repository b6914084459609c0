"""The moment at which a run begins: before it, nothing in its folder is written to stay."""

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
# What loggers and callbacks write before the first step.
_WRITTEN_EARLY = (EVENT_FILES, "hparams.yaml", "metrics.csv", TABLE_NAME, "checkpoints")


class NewFiles:
    """What a run adds to its folder, so that a refused run can take it away again.

    Args:
        folder: The run's folder, which this process has locked.
        is_new: Whether nothing has been there before, so that everything has been added.
    """

    def __init__(self, folder: Path, *, is_new: bool) -> None:
        self.folder = folder
        self._is_new = is_new
        self._before = self._present()

    def event_files(self) -> set[Path]:
        """Return TensorBoard's files that have been added, to which a logger may be writing."""
        return {path for path in self._added() if path.match(EVENT_FILES)}

    def remove(self) -> None:
        """Remove what has been added; the folder goes with its lock, if it is new."""
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
    """Writes the whole configuration once everything has been accepted, and cuts back before.

    ``fit --config`` on the file repeats the run from its start: the checkpoint that a run
    continued is not part of it. Where a continued run has another configuration, the earlier one
    is kept beside it.

    Args:
        held: Standard error, which waits for the first step.
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
        """Run the body, and remove what it has written if it raises before the run has begun.

        A new run that raises a `RefusedRunError` counts as one that has not begun.

        Args:
            folder: Where the run writes.
            alone: Whether to keep other processes out meanwhile.

        Raises:
            ValueError: If the folder holds another run than the one that is continued, or another
                process writes to it.
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
                # The file tells, not this object: the run may have begun in another process.
                if _stamp(folder / CONFIG) == before:
                    rank_zero_only(self._new_files.remove)()
                raise

    @override
    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Keep the configuration of a run that had no step left to do."""
        self._record(trainer)

    @override
    def begin(self, trainer: L.Trainer) -> None:
        """Record the run before anything of it can be seen."""
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
    """Refuse a folder in which every point and row would be there twice."""
    written = (CONFIG, TABLE_NAME, "metrics.csv", EVENT_FILES)
    if any(path for pattern in written for path in folder.glob(pattern)):
        raise used_error(folder)


def _keep_earlier(folder: Path, config: str) -> None:
    """Rename the configuration of the first part of a run that is continued with another one."""
    path = folder / CONFIG
    if path.exists() and path.read_text(encoding="utf-8") != config:
        step = read_checkpoint(folder / LAST_CHECKPOINT)["global_step"]
        path.replace(path.with_stem(f"{path.stem}_before_step_{step}"))


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes when a file is written anew, None where there is none."""
    if not path.exists():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns
