"""The parser of commands with configurations: the order of values, and their targets."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, NoReturn

from jsonargparse import ActionConfigFile, Namespace  # type: ignore[attr-defined]
from lightning.pytorch.cli import LightningArgumentParser
from typing_extensions import override

from toolkit.console import yaml_text
from toolkit.console.jsonargparse_private import OpenParser
from toolkit.console.parser import DID_YOU_MEAN, did_you_mean, with_nearest

yaml_text.install()
_CONFIG = ("-c", "--config")
# Other options take parts of a configuration, too: --trainer trainer.yaml.
_CONFIG_SUFFIXES = (".yaml", ".yml", ".json")
# Options of a single command: they show which command a configuration is for.
_TELLING = {"trainer": "fit", "model": "fit", "checkpoint": "fit", "series": "probe"}


class RunParser(OpenParser, LightningArgumentParser):
    """A parser for which the command line wins over configuration files, wherever it stands.

    Options have no abbreviations. An option of a list of classes changes the last class of the
    list, and standard error names that class. With a class name, as in
    ``--trainer.callbacks.ScalingLaw.schedule=5``, the option changes that class; a number after
    the name (``.SubspacePGA.2.k=5``) chooses among several, counted from 1.

    Args:
        command: Name of the command; None for the parsers of a class's arguments, which
            jsonargparse creates.
        **kwargs: Arguments of jsonargparse's parser.
    """

    def __init__(self, *, command: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**{"allow_abbrev": False, **kwargs})
        self.command = command

    @override
    def parse_args(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        *rest: Any,
        **kwargs: Any,
    ) -> Namespace:
        """Parse the arguments, configuration files first."""
        if self.command is not None and args is not None:
            names = self.names()
            classes = [name for name in names if self._takes_class(name)]
            groups = [name for name in names if _is_group(name, names)]
            args = files_first(args, classes, groups)
        config: Namespace = super().parse_args(args, *rest, **kwargs)
        return config

    @override
    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Add the most similar option to the message about an unknown option, and end."""
        names = self.names()
        if (
            DID_YOU_MEAN not in message
        ):  # The parser of a command passes its errors to the main parser.
            message = with_nearest(message, [f"--{name}" for name in names])
        if isinstance(ex, KeyError) and message.startswith("Option '"):
            message += did_you_mean(message.split("'")[1], names)
        super().error(message, ex)

    def names(self) -> list[str]:
        """Return the names of all options, without dashes."""
        options = (name for name in self.option_strings() if name.startswith("--"))
        return [name[2:] for name in options if not name.endswith(("+", ".help"))]

    def _takes_class(self, name: str) -> bool:
        return f"--{name}.help" in self.option_strings()

    def check_keys(self, content: Any, above: str = "") -> None:  # noqa: ANN401
        """Check that each key of a configuration is an option.

        Args:
            content: The content of the file.
            above: The key of the level above, with a dot at its end.

        Raises:
            ValueError: If a key is no option.
        """
        if not isinstance(content, dict):
            return
        names = self.names()
        for key, value in content.items():
            full = f"{above}{key}".removesuffix("+")
            if _is_group(full, names):
                self.check_keys(value, f"{full}.")
            elif key != "$schema" and not _is_option(full, names):
                raise ValueError(f"there is no option {full!r}{did_you_mean(full, names)}")

    @override
    def action_to_call(self, action: argparse.Action | None) -> argparse.Action | None:
        # An option that sets a single argument reports which class it has changed.
        if action is None or action.nargs is not None or isinstance(action, ActionConfigFile):
            return action
        return _Watched(action)


def files_first(
    args: Sequence[str], classes: Sequence[str] = (), groups: Sequence[str] = ()
) -> list[str]:
    """Return the arguments of a command with configuration files before everything else.

    Args:
        args: Options and values; files keep their order, and so do other values.
        classes: Names of options whose values are classes. They are repeated before the files: a
            file may give the arguments of a class that the command line names.
        groups: Names of options that stand for a class's arguments. Groups and classes also take
            files, which are parts of the configuration.

    Example:
        >>> files_first(["--trainer.max_steps=7", "--config", "toy.yaml"])
        ['--config', 'toy.yaml', '--trainer.max_steps=7']
    """
    units: list[list[str]] = []
    for argument in args:
        if argument[:1] == "-" or not units:
            units.append([argument])
        else:
            units[-1].append(argument)
    kinds = [_kind(unit, classes, groups) for unit in units]
    order = [
        [unit for unit, kind in zip(units, kinds, strict=True) if kind in chosen]
        for chosen in (("class",), ("config",), ("part",), ("class", "other"))
    ]
    return [argument for part in order for unit in part for argument in unit]


def _kind(unit: list[str], classes: Sequence[str], groups: Sequence[str]) -> str:
    """Return the kind of an option: a file, a part of a file, a class, or other."""
    option, _, value = " ".join(unit).replace("=", " ", 1).partition(" ")
    if option in _CONFIG or (option.startswith("-c") and not option.startswith("--")):
        return "config"
    name = option.removeprefix("--")
    if PurePath(value).suffix in _CONFIG_SUFFIXES and (name in classes or name in groups):
        return "part"
    return "class" if name in classes else "other"


def command_of(content: Any) -> str | None:  # noqa: ANN401
    """Return the command that a configuration is for, None if it fits every command."""
    keys = content if isinstance(content, dict) else {}
    return next((command for key, command in _TELLING.items() if key in keys), None)


def say_dropped(before: Namespace, after: Namespace) -> None:
    """Write to standard error, one line for each class, the arguments that its change dropped."""
    for line in _dropped(before, after, ""):
        sys.stderr.write(f"{line}\n")


def _is_group(name: str, names: Sequence[str]) -> bool:
    """Return whether a name has options below it, as trainer and checkpoint have."""
    return any(known.startswith(f"{name}.") for known in names)


def _is_option(name: str, names: Sequence[str]) -> bool:
    """Return whether a key is an option, or an argument of a class that an option names."""
    parts = name.split(".")
    above = [".".join(parts[:end]) for end in range(1, len(parts))]
    return name in names or any(key in names and not _is_group(key, names) for key in above)


class _AsTyped(str):
    """A value that reaches the parser of a class exactly as it was typed.

    Otherwise jsonargparse would read it and pass on Python's form of it: None for null.
    """

    __slots__ = ()


class _Watched(argparse.Action):
    """Reports the class that an option changed and the arguments it dropped; wraps an action."""

    def __init__(self, action: argparse.Action) -> None:
        names = ("option_strings", "dest", "nargs", "const", "default", "type", "choices")
        super().__init__(**{name: getattr(action, name) for name in names})
        self._action = action

    @override
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Run the wrapped action for the right entry of a list."""
        config: Any = namespace
        before = config.clone()
        key = self._key(option_string)
        target = config.get(self.dest)
        if key and isinstance(target, list) and target:
            self._set_member(parser, config, values, key)
        elif key and _is_class(target):
            self._set(parser, config, values, key)
        elif "." in key and isinstance(target, dict):
            # jsonargparse would drop the other entries.
            content: Any = _with_entry(target, key, values)
            self._action(parser, config, content, self.option_strings[0])
        else:
            self._action(parser, config, values, option_string)
        if getattr(parser, "command", None) is not None:
            say_dropped(before, config)

    def _set_member(
        self, parser: argparse.ArgumentParser, config: Namespace, values: str, key: str
    ) -> None:
        """Set the value in one entry of a list."""
        members = config[self.dest]
        chosen, key = _chosen(members, key, self.dest)
        others = [member for i, member in enumerate(members) if i != chosen]
        # jsonargparse sets the value in the last entry.
        config[self.dest] = [*others, members[chosen]]
        self._set(parser, config, values, key)
        *others, changed = config[self.dest]
        config[self.dest] = [*others[:chosen], changed, *others[chosen:]]

    def _set(
        self, parser: argparse.ArgumentParser, config: Namespace, values: str, key: str
    ) -> None:
        """Set an argument of a class."""
        if "." in key:
            values = _AsTyped(values)
        self._action(parser, config, values, f"{self.option_strings[0]}.{key}")

    def _key(self, option_string: str | None) -> str:
        """Return the part of an option after this option's name."""
        for name in self.option_strings:
            if option_string is not None and option_string.startswith(f"{name}."):
                return option_string.removeprefix(f"{name}.").removeprefix("init_args.")
        return ""


def _chosen(members: Sequence[Namespace], key: str, dest: str) -> tuple[int, str]:
    """Return the position in the list that an option changes, and the key there."""
    names = [_class_name(member) for member in members]
    name, _, key_there = key.partition(".")
    if name not in names:
        if name[:1].isupper():
            known = ", ".join(dict.fromkeys(names))
            hint = did_you_mean(name, names)
            raise ValueError(f"{dest}.{name}: expected one of {known}, got {name}{hint}")
        if len(members) > 1:
            sys.stderr.write(
                f"{dest}.{key}: reaches {names[-1]} alone, the last of {len(members)}; "
                f"--{dest}.NAME.{key} reaches the one named\n"
            )
        return len(members) - 1, key
    positions = [i for i, other in enumerate(names) if other == name]
    number, _, behind = key_there.partition(".")
    if not number.isdecimal():
        number, behind = "1", key_there
        if len(positions) > 1:
            raise ValueError(
                f"{dest}.{key}: expected one {name}, found {len(positions)}; "
                f"--{dest}.{name}.1.{key_there} reaches the first"
            )
    if not 1 <= int(number) <= len(positions):
        raise ValueError(
            f"{dest}.{name}: expected a number from 1 to {len(positions)}, got {number}"
        )
    return positions[int(number) - 1], behind


def _with_entry(content: dict[str, Any], key: str, text: str) -> dict[str, Any]:
    """Return a copy of nested mappings with an entry added or replaced."""
    name, _, behind = key.partition(".")
    inner = content.get(name)
    if not behind:
        return {**content, name: yaml_text.load(text)}
    return {**content, name: _with_entry(inner if isinstance(inner, dict) else {}, behind, text)}


def _is_class(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, dict | Namespace) and "class_path" in value


def _class_name(member: Any) -> str:  # noqa: ANN401
    return str(member["class_path"] if _is_class(member) else member).rpartition(".")[2]


def _dropped(before: Any, after: Any, key: str) -> Iterator[str]:  # noqa: ANN401
    """Yield a line for each class that has changed and lost arguments."""
    if not (isinstance(before, Namespace) and isinstance(after, Namespace)):
        return
    old, new = vars(before), vars(after)
    if "class_path" in old and "class_path" in new:
        arguments, kept = (_arguments(spec) for spec in (old, new))
        lost = [name for name in arguments if name not in kept]
        if old["class_path"] != new["class_path"] and lost:
            names = (_class_name(old), _class_name(new))
            yield f"{key}: the change from {names[0]} to {names[1]} drops {', '.join(lost)}"
        old, new = arguments, kept
    for name in old.keys() & new.keys():
        yield from _dropped(old[name], new[name], f"{key}.{name}" if key else name)


def _arguments(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a class."""
    given = spec.get("init_args")
    return {**(vars(given) if given else {}), **(spec.get("dict_kwargs") or {})}
