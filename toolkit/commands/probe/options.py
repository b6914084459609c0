"""Options of ``python -m toolkit probe``, without imports of their types."""

from typing import Any, NamedTuple

from toolkit.console.parser import OneLineParser

PROG = "python -m toolkit probe"
DESCRIPTION = (
    "Measure the checkpoints of language models, each at its own training step. A walk that was "
    "interrupted goes on when it is started again."
)
# `toolkit.commands.probe.command` has the types: it may import them.
_DTYPES = ("float32", "bfloat16", "float16")


class Option(NamedTuple):
    """An option.

    Attributes:
        name: Its name without dashes.
        help: Its meaning.
        value: Name of its value in ``--help``, None for a switch.
        default: Its default.
        choices: All allowed values, empty if they are not a list.
    """

    name: str
    help: str
    value: str | None
    default: Any = None
    choices: tuple[str, ...] = ()


OPTIONS = (
    Option(
        "series",
        "HubRevisions, LocalFolders, LightningCheckpoints or Models; one or several. "
        "--series.help=NAME tells its arguments.",
        "NAME",
    ),
    Option(
        "callbacks",
        "What measures, as in fit, with --callbacks+=NAME one after the other. "
        "--callbacks.help=NAME tells its arguments.",
        "NAME",
        [],
    ),
    Option(
        "texts",
        "Texts for loss and perplexity, by default those of the first callback that has any.",
        "TEXTS",
    ),
    Option("data", "Batches for loss and perplexity instead of texts.", "NAME"),
    Option("loss", "Whether to measure loss and perplexity.", "true|false", default=True),
    Option("dtype", "Of the weights.", "NAME", "float32", _DTYPES),
    Option("accelerator", "Where to measure: auto, cpu, gpu, mps.", "NAME", "auto"),
    Option(
        "max_disk_gb",
        "Limit on what is downloaded, in 10^9 bytes: what is done is removed from the cache.",
        "NUMBER",
    ),
    Option("root", "Folder of all runs, by default checkpoints.", "FOLDER"),
    Option("run", "Name of the run, by default the config's.", "NAME"),
    Option("dry_run", "List what would be fetched, and fetch nothing.", None, default=False),
)


def help_text() -> str:
    """Return the text of ``--help``."""
    parser = OneLineParser(prog=PROG, description=DESCRIPTION)
    parser.add_argument("-c", "--config", metavar="FILE", help="Path of a YAML file.")
    parser.add_argument(
        "--print_config", action="store_true", help="Print the whole configuration and exit."
    )
    for option in OPTIONS:
        shown = "" if option.default in (None, False, []) else f" Default: {option.default}."
        settings: dict[str, Any] = {"action": "store_true"}
        if option.value is not None:
            value = f"{{{','.join(option.choices)}}}" if option.choices else option.value
            settings = {"metavar": value}
        parser.add_argument(f"--{option.name}", help=option.help + shown, **settings)
    return parser.format_help()
