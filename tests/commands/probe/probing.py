"""What tests of ``python -m toolkit probe`` share."""

from pathlib import Path
from typing import Any

# Its first import sets environment variables, which must not look like a test's.
import lightning as L
import torch
import yaml  # type: ignore[import-untyped]

from callbacks import TextSet
from tests.callbacks.events import scalars
from tests.callbacks.language import small_texts
from toolkit.cli import main
from toolkit.data.batch_stream import FixedBatches
from toolkit.lm.reading.tokenizers import load_tokenizer

TOKENS = torch.tensor([[1, 2, 3, 4, 5, 6, 7], [7, 5, 3, 1, 2, 4, 6]])
REPOSITORY = "someone/tiny-neox"


def probe(folder: Path, series: Any, *args: str, **settings: Any) -> int:
    """Run the command on a series with three quick callbacks; the run is called walk."""
    config = write_config(folder / "walk.yaml", small_texts(folder), series=series, **settings)
    return main(["probe", f"--config={config}", f"--root={folder / 'runs'}", *args])


class TokenBatches(L.LightningDataModule):
    """One batch of token ids, and the tokenizer in a folder, as a data module of a user has it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.folder = folder
        self.tokenizer: Any = None

    def prepare_data(self) -> None:
        self.tokenizer = load_tokenizer(str(self.folder))

    def val_dataloader(self) -> Any:
        return FixedBatches(lambda _: {"input_ids": TOKENS}, 1)


def write_config(path: Path, texts: TextSet, **settings: Any) -> Path:
    draw = {"source": texts.source, "num_train": texts.num_train, "num_test": texts.num_test}
    callbacks = [
        {"class_path": "SubspacePGA", "init_args": {"k": 3, "num_null": 4, "texts": draw}},
        {"class_path": "LinearProbe", "init_args": {"texts": draw}},
        {"class_path": "EmbeddingDeviation"},
    ]
    config = {"callbacks": callbacks, "accelerator": "cpu", **settings}
    path.write_text(yaml.safe_dump(config))
    return path


def local(pattern: str | list[str], **options: Any) -> dict[str, Any]:
    return {"class_path": "LocalFolders", "init_args": {"pattern": pattern, **options}}


def published(**options: Any) -> dict[str, Any]:
    return {"class_path": "HubRevisions", "init_args": {"repo": REPOSITORY, **options}}


def curves_of(folder: Path) -> dict[str, list[tuple[int, str]]]:
    """Scalars in a form in which NaN equals itself."""
    return {
        tag: [(step, repr(value)) for step, value in points]
        for tag, points in scalars(folder).items()
    }
