"""Configuration files of a command."""

from argparse import ArgumentError
from pathlib import Path

from jsonargparse import ActionConfigFile, Namespace  # type: ignore[attr-defined]

from toolkit.console import yaml_text
from toolkit.console.parser_messages import shortened
from toolkit.console.run_parser import RunParser, command_of, say_dropped


class NamedConfigFile(ActionConfigFile):
    """``--config`` with errors that name the file."""

    @staticmethod
    def apply_config(parser: RunParser, cfg: Namespace, dest: str, value: str) -> None:
        """Read the file into ``cfg``."""
        before = cfg.clone()
        try:
            if Path(value).is_file():
                _check_content(parser, Path(value))
            ActionConfigFile.apply_config(parser, cfg, dest, value)
        except (ArgumentError, TypeError, ValueError) as error:
            from_parser = not isinstance(error, ValueError)
            text = shortened(str(error), from_parser=from_parser).removeprefix(f"{dest}: ")
            raise ValueError(f"{dest} {value}: {text}") from error
        say_dropped(before, cfg)


def _check_content(parser: RunParser, path: Path) -> None:
    """Check that the file is a configuration of this command without unknown keys."""
    try:
        content = yaml_text.load(path.read_text(encoding="utf-8"))
    except yaml_text.YAMLError:
        return  # The parser's own message is better.
    meant = command_of(content)
    if meant is not None and (meant == "probe") != (parser.command == "probe"):
        raise ValueError(
            f"expected a configuration of {parser.command}, got one of {meant}; "
            f"start it with python -m toolkit {meant} --config {path}"
        )
    parser.check_keys(content)
