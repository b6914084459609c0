"""Different models side by side, as a series."""

from pathlib import Path

from typing_extensions import override

from toolkit.functional._checks import flag, strings
from toolkit.lm.checkpoints.base import Checkpoint, Series, in_order
from toolkit.lm.checkpoints.hub import published_checkpoint
from toolkit.lm.checkpoints.local import is_gguf, local_checkpoint
from toolkit.lm.paths import check_different, model_name


class Models(Series):
    """Different models side by side, such as the sizes of a family.

    Args:
        names: Folders, GGUF files, or names on the Hub, as ``name@revision`` if the revision is
            not ``main``. The step is read from the revision, such as ``step1000``, otherwise 0.
        allow_pickle: Whether to load pickled weights if there are no safetensors.

    Raises:
        ValueError: If a name is none of these, or occurs twice.
    """

    def __init__(self, names: list[str], *, allow_pickle: bool = False) -> None:
        check_different("names", strings("names", names))
        self.names = [model_name(name) for name in names]
        self.allow_pickle = flag("allow_pickle", allow_pickle)

    @override
    def checkpoints(self) -> list[Checkpoint]:
        """Return one checkpoint for each name, in the order of the names."""
        return in_order(self._checkpoint(name) for name in self.names)

    def _checkpoint(self, name: str) -> Checkpoint:
        path = Path(name).expanduser()
        if path.is_dir() or is_gguf(path):
            return local_checkpoint(path, name=name, step=0, allow_pickle=self.allow_pickle)
        if path.suffix == ".gguf":
            raise ValueError(f"names: expected an existing GGUF file, got {name}")
        return published_checkpoint(name, allow_pickle=self.allow_pickle)
