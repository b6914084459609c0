"""Configuration files that a command reads."""

from argparse import ArgumentError

from jsonargparse import ActionConfigFile, Namespace  # type: ignore[attr-defined]
from lightning.pytorch.cli import LightningArgumentParser

from toolkit.parser_messages import shortened


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
