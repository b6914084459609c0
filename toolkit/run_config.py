"""Configuration files of a run: the ones that are read, and the one that is kept."""

from argparse import ArgumentError
from pathlib import Path

import lightning as L
from jsonargparse import ActionConfigFile, Namespace  # type: ignore[attr-defined]
from lightning.pytorch.cli import LightningArgumentParser, SaveConfigCallback
from typing_extensions import override

from toolkit.parser_messages import shortened
from toolkit.run_folder import CONFIG, LAST_CHECKPOINT, log_folder, read_checkpoint


class NamedConfigFile(ActionConfigFile):
    """``--config`` that names the file when it is no configuration."""

    @staticmethod
    def apply_config(
        parser: LightningArgumentParser, cfg: Namespace, dest: str, value: str
    ) -> None:
        """Read the file into ``cfg``."""
        try:
            ActionConfigFile.apply_config(parser, cfg, dest, value)
        except (ArgumentError, TypeError) as error:
            text = shortened(str(error)).removeprefix(f"{dest}: ")
            raise ValueError(f"{dest} {value}: {text}") from error


class SaveRunConfig(SaveConfigCallback):
    """Writes the whole configuration into the version folder, all of it or nothing.

    ``fit --config`` on the file repeats the run from its start: the checkpoint that a run
    continued is not part of it. Where a continued run has another configuration, the earlier one
    is kept beside it.

    Raises:
        ValueError: If an earlier run wrote into the folder and is not continued.
    """

    @override
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Write the file on rank zero."""
        if self.already_saved or not trainer.is_global_zero:
            return
        config = self.config.clone()
        config["ckpt_path"] = None
        text = self.parser.dump(config, skip_none=False, format="yaml")
        path = log_folder(trainer) / CONFIG
        if path.exists() and path.read_text(encoding="utf-8") != text:
            _keep_earlier(path, self.config.ckpt_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
        self.already_saved = True


def _keep_earlier(path: Path, continued: str | None) -> None:
    """Rename the configuration of the first part of a run that is continued."""
    checkpoint = path.parent / LAST_CHECKPOINT
    if continued != str(checkpoint):
        raise ValueError(
            f"trainer.logger: expected a folder without an earlier run, got {path.parent}; "
            "give it another name or version"
        )
    step = read_checkpoint(checkpoint)["global_step"]
    path.replace(path.with_stem(f"{path.stem}_before_step_{step}"))
