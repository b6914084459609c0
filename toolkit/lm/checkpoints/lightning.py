"""Lightning checkpoints of the toolkit's own runs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from toolkit.functional._checks import optional, strings, valid_text
from toolkit.lm.checkpoints.base import Checkpoint, OpenedModel, Series, in_order
from toolkit.lm.paths import matching_paths
from toolkit.lm.reading.tokenizers import load_tokenizer
from toolkit.lm.weights.names import without_wrappers
from toolkit.lm.weights.pickled import load_plain
from toolkit.lm.weights.zip_checksums import check_file

_PREFIX = "model."
# Lightning adds a number to a second file of the same name.
_LAST = re.compile(r"last(?:-v\d+)?\.ckpt")


@dataclass(frozen=True, kw_only=True)
class LightningCheckpoint(Checkpoint):
    """A ``.ckpt`` file of a run of `toolkit.models.LanguageModel`.

    Attributes:
        path: The file.
        tokenizer: Name or folder of a tokenizer; the file contains none.
    """

    path: Path
    tokenizer: str | None = None

    @override
    def open(self, dtype: torch.dtype = torch.float32) -> OpenedModel:
        from toolkit.lm.architecture.configurations import new_language_model  # noqa: PLC0415

        check_file(self.path)
        content = _read(self.path)
        with torch.random.fork_rng(devices=[]):
            model = new_language_model(content["hyper_parameters"]["config"], dtype=dtype)
        state = {
            without_wrappers(name).removeprefix(_PREFIX): value
            for name, value in content["state_dict"].items()
            if without_wrappers(name).startswith(_PREFIX)
        }
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(
                f"checkpoint: expected the weights of a LanguageModel in {self.path}, got other "
                f"weights ({str(error).splitlines()[-1].strip()})"
            ) from error
        tokenizer = None if self.tokenizer is None else load_tokenizer(self.tokenizer)
        model.eval()  # type: ignore[no-untyped-call]
        return OpenedModel(model, tokenizer)


class LightningCheckpoints(Series):
    """Files ``*.ckpt`` of runs of `toolkit.models.LanguageModel`; the files contain the step.

    Args:
        pattern: Path with wildcards, or a list of them.
        name: Name of the model, by default the path of the folder of the files.
        tokenizer: Name or folder of the tokenizer for all files.
    """

    def __init__(
        self, pattern: str | list[str], *, name: str | None = None, tokenizer: str | None = None
    ) -> None:
        self.pattern = strings("pattern", [pattern] if isinstance(pattern, str) else pattern)
        self.name = optional(valid_text, "name", name)
        self.tokenizer = optional(valid_text, "tokenizer", tokenizer)

    @override
    def checkpoints(self) -> list[Checkpoint]:
        """Return the matching files; ``last.ckpt`` only if no other file has its step."""
        paths = sorted(matching_paths(self.pattern), key=_is_last)
        if not paths:
            raise ValueError(f"pattern: expected checkpoint files, got none at {self.pattern}")
        return in_order(self._without_copies(paths))

    def _without_copies(self, paths: list[Path]) -> Iterator[Checkpoint]:
        seen = set()
        for path in paths:
            step = int(_read(path)["global_step"])
            if _is_last(path) and (path.parent, step) in seen:
                continue
            seen.add((path.parent, step))
            name = self.name or str(path.parent)
            yield LightningCheckpoint(name=name, step=step, path=path, tokenizer=self.tokenizer)


def _is_last(path: Path) -> bool:
    return _LAST.fullmatch(path.name) is not None


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file; the tensors stay on disk until they are used."""
    content = load_plain(path)
    wanted = {"global_step", "state_dict", "hyper_parameters"}
    is_run = isinstance(content, dict) and wanted <= content.keys()
    if not is_run or not isinstance(content["hyper_parameters"].get("config"), dict):
        raise ValueError(
            f"checkpoint: expected a file of a LanguageModel's run, got {path}; save it as a "
            "Hugging Face folder and use LocalFolders"
        )
    loaded: dict[str, Any] = content
    return loaded
