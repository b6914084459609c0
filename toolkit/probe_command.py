"""``python -m toolkit probe``: measure a series of checkpoints, each at its own step."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
import yaml  # type: ignore[import-untyped]
from jsonargparse import Namespace
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.cli import LightningArgumentParser

from toolkit.atomic import write_atomically
from toolkit.diagnostics import HeldStderr
from toolkit.lm.checkpoints import Checkpoint, Series, joined
from toolkit.measures.text_set import TextSet
from toolkit.noise import without_noise
from toolkit.probe_options import DESCRIPTION, OPTIONS, PROG
from toolkit.run_config import NamedConfigFile
from toolkit.run_folder import CONFIG, RunFolder, run_name
from toolkit.trainer_cli import DEFAULT_ROOT
from toolkit.walk import Walk
from toolkit.walk_report import report

_TYPES: dict[str, Any] = {
    "series": Series | list[Series],
    "callbacks": list[Callback],
    "texts": TextSet | None,
    "data": L.LightningDataModule | None,
    "accelerator": str,
    "max_disk_gb": float | None,
    "root": str | None,
    "run": str | None,
}
# What the numbers depend on: a run whose configuration differs in these is another version.
_MEASURING = ("callbacks", "texts", "data", "dtype")
_GIGABYTE = 10**9


def main(args: Sequence[str], held: HeldStderr) -> int:
    """Walk over the checkpoints that the options name, or say what would be fetched.

    Args:
        args: The options, without the command itself.
        held: Standard error, told when the first measurement begins.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: If the options make no walk, or a checkpoint cannot be had or measured.
    """
    with without_noise():
        parser = _parser()
        config = parser.parse_args(list(args))
        if not config.series:
            raise ValueError("series: expected at least one, got none; give --series or --config")
        built = parser.instantiate_classes(config)
        checkpoints = joined(built.series)
        if config.dry_run:
            _list(checkpoints)
            return 0
        folder = _folder(config, parser)
        walk = Walk(
            folder=folder,
            callbacks=built.callbacks,
            texts=_texts(built),
            data=built.data,
            dtype=getattr(torch, config.dtype),
            accelerator=config.accelerator,
            max_disk_gb=config.max_disk_gb,
            begin=held.start,
        )
        record = walk.run(checkpoints)
        report(walk, record, list(dict.fromkeys(c.name for c in checkpoints)))
    sys.stdout.write(f"tensorboard --logdir {folder.parent}\n")
    return 0


def _parser() -> LightningArgumentParser:
    parser = LightningArgumentParser(prog=PROG, description=DESCRIPTION, exit_on_error=False)
    parser.add_argument("-c", "--config", action=NamedConfigFile, help="Path of a YAML file.")
    for name, text, value, default, choices in OPTIONS:
        settings: dict[str, Any] = {"action": "store_true"}
        if choices:
            settings = {"choices": list(choices), "default": default}
        elif value is not None:
            settings = {"type": _TYPES[name], "default": default}
        parser.add_argument(f"--{name}", help=text, **settings)
    return parser


def _folder(config: Namespace, parser: LightningArgumentParser) -> Path:
    """Return the version of the run that measures the same, or a new one."""
    configs = [os.fspath(path) for path in config.get("config") or [] if path is not None]
    name = run_name(config.run or (None if configs else "probe"), configs, None)
    runs = RunFolder(Path(config.root or DEFAULT_ROOT), name)
    text = parser.dump(config, skip_none=False, format="yaml")
    versions = runs.versions()
    newest = runs.version_folder(versions[-1]) if versions else None
    if newest is None or not _measures_the_same(newest / CONFIG, text):
        newest = runs.version_folder(runs.next_version())
    write_atomically(newest / CONFIG, text.encode())
    return newest


def _measures_the_same(path: Path, text: str) -> bool:
    if not path.is_file():
        return False
    earlier, now = yaml.safe_load(path.read_text(encoding="utf-8")), yaml.safe_load(text)
    return isinstance(earlier, dict) and all(earlier.get(k) == now.get(k) for k in _MEASURING)


def _texts(built: Namespace) -> TextSet:
    if built.texts is not None:
        texts: TextSet = built.texts
        return texts
    of_callbacks: list[Any] = [getattr(callback, "texts", None) for callback in built.callbacks]
    return next((texts for texts in of_callbacks if texts is not None), TextSet())


def _list(checkpoints: Sequence[Checkpoint]) -> None:
    """Print what is not on this machine yet."""
    # Two revisions may share a file, which is then downloaded once; a listing cannot tell.
    total = 0
    for checkpoint in checkpoints:
        files = checkpoint.missing()
        size = sum(file.size for file in files)
        total += size
        state = (
            f"{size / _GIGABYTE:9.3f} GB in {len(files)} files" if files else "     here already"
        )
        sys.stdout.write(f"{state}  {checkpoint.label}\n")
    sys.stdout.write(
        f"{total / _GIGABYTE:9.3f} GB ({total} bytes) in all, {len(checkpoints)} checkpoints\n"
    )
