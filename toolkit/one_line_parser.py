"""Options of a command, refused in one line."""

import argparse
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """A parser that raises a ValueError instead of printing its usage and leaving."""

    def error(self, message: str) -> NoReturn:
        """Leave it to the caller to say in one line what is wrong."""
        raise ValueError(message.removeprefix("argument --"))
