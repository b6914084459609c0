"""``python -m toolkit probe``: measure a series of checkpoints, each at its own step."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
import yaml  # type: ignore[import-untyped]
from jsonargparse import Namespace
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from toolkit.atomic import naming, write_atomically
from toolkit.commands.probe.options import DESCRIPTION, OPTIONS, PROG
from toolkit.commands.probe.record import measured_before
from toolkit.commands.probe.report import report
from toolkit.commands.probe.walk import Walk
from toolkit.console import yaml_text
from toolkit.console.held_stderr import HeldStderr
from toolkit.console.noise import without_noise
from toolkit.console.run_parser import RunParser
from toolkit.console.training import FirstStep
from toolkit.lm.checkpoints.base import Checkpoint, MissingCheckpointError, Series, joined
from toolkit.measures.text_set import TextSet
from toolkit.runs.beginning import NewFiles
from toolkit.runs.config import NamedConfigFile
from toolkit.runs.folder import CONFIG, DEFAULT_ROOT, RunFolder, run_name
from toolkit.runs.folder_lock import locked
from toolkit.runs.trainer_limits import check_accelerator
from toolkit.subclasses import subclasses

_TYPES: dict[str, Any] = {
    "series": Series | list[Series],
    "callbacks": list[Callback],
    "texts": TextSet | None,
    "data": L.LightningDataModule | None,
    "loss": bool,
    "accelerator": str,
    "max_disk_gb": float | None,
    "root": str | None,
    "run": str | None,
}
# The numbers depend on these keys: a run with other values is another version.
# Files of older versions lack the option with a default.
_MEASURING = {"callbacks": None, "texts": None, "data": None, "dtype": None, "loss": True}
_OWN_SERIES = "toolkit.lm.checkpoints"
_GIGABYTE = 10**9


def main(args: Sequence[str], held: HeldStderr) -> int:
    """Walk over the checkpoints that the options name, or list the files to download.

    Args:
        args: The options, without the command itself.
        held: Standard error, which holds text back until the first measurement.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: If an option is wrong, or a checkpoint cannot be loaded or measured.
    """
    with without_noise():
        parser = _parser()
        config = parser.parse_args(list(args))
        if not config.series:
            raise ValueError("series: expected at least one, got none; give --series or --config")
        check_accelerator(config.accelerator, "accelerator")
        built = parser.instantiate_classes(config)
        checkpoints = joined(built.series)
        text = _with_short_names(parser.dump(config, skip_none=False, format="yaml"))
        folder = _folder(config, text)
        if config.dry_run:
            _list(checkpoints, measured_before(checkpoints, folder))
            return 0
        beginning = _Beginning(held, folder / CONFIG, text)
        walk = Walk(
            folder=folder,
            callbacks=[*built.callbacks, beginning],
            texts=_texts(built),
            data=built.data,
            dtype=getattr(torch, config.dtype),
            accelerator=config.accelerator,
            max_disk_gb=config.max_disk_gb,
            loss=config.loss,
        )
        with _alone(folder, text, held), naming(folder):
            record = walk.run(checkpoints)
            beginning.write_config()
            report(walk, record, list(dict.fromkeys(c.name for c in checkpoints)))
    sys.stdout.write(f"tensorboard --logdir {folder.parent}\n")
    return 0


class _Beginning(FirstStep):
    """Writes the configuration again when the first checkpoint has passed all checks."""

    def __init__(self, held: HeldStderr, path: Path, text: str) -> None:
        super().__init__(held)
        self._path = path
        self._text = text

    @override
    def begin(self, trainer: L.Trainer) -> None:
        """Write the configuration before anything is measured."""
        if not self._held.started:
            self.write_config()
        super().begin(trainer)

    def write_config(self) -> None:
        """Write the configuration of the walk."""
        write_atomically(self._path, self._text.encode())


@contextmanager
def _alone(folder: Path, text: str, held: HeldStderr) -> Iterator[None]:
    """Lock the folder; remove a new folder if the walk is refused before it begins."""
    with locked(folder):
        is_new = not (folder / CONFIG).exists()
        files = NewFiles(folder, is_new=is_new)
        if is_new:
            # A second start of the same walk finds the folder by this file.
            write_atomically(folder / CONFIG, text.encode())
        try:
            yield
        except BaseException:
            if is_new and not held.started:
                files.remove()
            raise


def _parser() -> RunParser:
    parser = RunParser(prog=PROG, description=DESCRIPTION, exit_on_error=False, command="probe")
    parser.add_argument("-c", "--config", action=NamedConfigFile, help="Path of a YAML file.")
    for name, text, value, default, choices in OPTIONS:
        settings: dict[str, Any] = {"action": "store_true"}
        if choices:
            settings = {"choices": list(choices), "default": default}
        elif value is not None:
            settings = {"type": _TYPES[name], "default": default}
        # A switch has two spellings, because other commands use dashes.
        spellings = [name] if value is not None else [name, name.replace("_", "-")]
        flags = [f"--{spelling}" for spelling in spellings]
        parser.add_argument(*flags, help=text, **settings)
    return parser


def _with_short_names(text: str) -> str:
    """Replace the paths of the toolkit's series by short names: their modules may move."""
    config = yaml.safe_load(text)
    names = [kind.__name__ for kind in subclasses(Series).values()]
    for one in _as_list(config["series"]):
        module, _, name = one["class_path"].rpartition(".")
        # Only paths distinguish two classes with the same name.
        if module.startswith(_OWN_SERIES) and names.count(name) == 1:
            one["class_path"] = name
    return yaml_text.dump(config)


def _as_list(series: Any) -> list[Any]:  # noqa: ANN401
    return series if isinstance(series, list) else [series]


def _folder(config: Namespace, text: str) -> Path:
    """Return the newest version that measures the same, or a new version's folder."""
    configs = [os.fspath(path) for path in config.get("config") or [] if path is not None]
    name = run_name(config.run or (None if configs else "probe"), configs, None)
    runs = RunFolder(Path(config.root or DEFAULT_ROOT), name)
    for version in reversed(runs.versions()):
        if _measures_the_same(runs.version_folder(version) / CONFIG, text):
            return runs.version_folder(version)
    return runs.version_folder(runs.next_version())


def _measures_the_same(path: Path, text: str) -> bool:
    if not path.is_file():
        return False
    earlier, now = yaml.safe_load(path.read_text(encoding="utf-8")), yaml.safe_load(text)
    if not isinstance(earlier, dict) or any(
        earlier.get(k, default) != now.get(k) for k, default in _MEASURING.items()
    ):
        return False
    before, after = _origins(earlier.get("series")), _origins(now["series"])
    return all(before[model] <= after[model] for model in before.keys() & after.keys())


def _origins(series: Any) -> dict[str, set[str]]:  # noqa: ANN401
    """Return the origins of each model's checkpoints, if its name does not contain the origin."""
    origins: dict[str, set[str]] = {}
    for one in _as_list(series):
        arguments = (one or {}).get("init_args") or {}
        name, pattern = arguments.get("name"), arguments.get("pattern") or ""
        if "repo" in arguments:
            # Different patterns for a repository may be different stages of training.
            origins.setdefault(arguments["repo"], set()).add(pattern)
        elif name and pattern:
            patterns = pattern if isinstance(pattern, list) else [pattern]
            origins.setdefault(name, set()).update(str(Path(one).parent) for one in patterns)
    return origins


def _texts(built: Namespace) -> TextSet:
    if built.texts is not None:
        texts: TextSet = built.texts
        return texts
    of_callbacks: list[Any] = [getattr(callback, "texts", None) for callback in built.callbacks]
    # The attribute ``texts`` of a user's callback may have any type.
    return next((texts for texts in of_callbacks if isinstance(texts, TextSet)), TextSet())


def _list(checkpoints: Sequence[Checkpoint], measured: Sequence[Checkpoint]) -> None:
    """Print the files that a walk would download, and the checkpoints that are done."""
    # A file that two revisions share is downloaded once, but counted twice here.
    total = 0
    for checkpoint in checkpoints:
        if checkpoint in measured:
            state, size = "measured already", 0
        else:
            state, size = _to_fetch(checkpoint)
        total += size
        sys.stdout.write(f"{state:>22}  {checkpoint.label}\n")
    sys.stdout.write(
        f"{total / _GIGABYTE:9.3f} GB ({total} bytes) in all, {len(checkpoints)} checkpoints\n"
    )


def _to_fetch(checkpoint: Checkpoint) -> tuple[str, int]:
    """Return the state of a checkpoint in words, and the bytes to download."""
    try:
        files = checkpoint.missing()
    except MissingCheckpointError:
        if getattr(checkpoint, "strict", True):
            raise
        return "not there", 0
    size = sum(file.size for file in files)
    return f"{size / _GIGABYTE:.3f} GB in {len(files)} files" if files else "here already", size
