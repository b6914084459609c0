"""All private names of jsonargparse that the toolkit uses, behind public ones.

Both come from argparse, so that this module needs nothing else. A test looks for each entry of
`NAMES` and says which one is missing in a new version.
"""

import argparse
from collections.abc import Callable
from typing import Any

from typing_extensions import override

# Attributes by the object that they belong to.
NAMES: dict[str, tuple[str, ...]] = {
    "parser": ("_option_string_actions", "_parse_optional"),
    # Public by its name but not documented; `toolkit.runs.config` overrides it.
    "config_action": ("apply_config",),
}


class OpenParser(argparse.ArgumentParser):
    """A parser that lists its options and lets a subclass replace an action for one call."""

    def option_strings(self) -> list[str]:
        """Return all options, with their dashes."""
        return list(self._option_string_actions)

    def action_to_call(self, action: argparse.Action | None) -> argparse.Action | None:
        """Return the action that is called for an option of the command line.

        Args:
            action: The parser's own action, None for an unknown option.
        """
        return action

    @override
    def _parse_optional(self, arg_string: str) -> Any:
        parse_optional: Callable[[str], Any] = super()._parse_optional
        found = parse_optional(arg_string)
        # Some versions of Python return a list of actions, others a single action.
        if isinstance(found, list):
            return [(self.action_to_call(action), *rest) for action, *rest in found]
        return found if found is None else (self.action_to_call(found[0]), *found[1:])
