"""Private names of Lightning and jsonargparse: each is there, and each stands in one module."""

import ast
import importlib
import inspect
import re
from collections.abc import Mapping
from pathlib import Path

import lightning as L
import pytest
from jsonargparse import ActionConfigFile  # type: ignore[attr-defined]
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, RichProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities import CombinedLoader, rank_zero

from tests.test_layering import modules
from toolkit import lightning_private
from toolkit.console import jsonargparse_private, noise

NAMES = lightning_private.NAMES | jsonargparse_private.NAMES
PRIVATE_MODULES = ("toolkit.lightning_private", "toolkit.console.jsonargparse_private")
PACKAGES = ("lightning", "jsonargparse", "argparse")
PRIVATE = re.compile(r"_[a-z]\w*")


@pytest.fixture(scope="module")
def owners() -> dict[str, object]:
    """The objects that `NAMES` speaks of."""
    trainer = L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    return {
        "cli": LightningCLI,
        "trainer": trainer,
        "logger_connector": trainer._logger_connector,
        "fit_loop": trainer.fit_loop,
        "epoch_loop": trainer.fit_loop.epoch_loop,
        "combined_loader": CombinedLoader({}),
        "module": L.LightningModule(),
        "callback": Callback(),
        "checkpoint": ModelCheckpoint(),
        "bar": RichProgressBar(),
        "parser": LightningArgumentParser(),
        "config_action": ActionConfigFile,
    }


def missing(names: Mapping[str, tuple[str, ...]], owners: Mapping[str, object]) -> list[str]:
    """The names that an installed version does not have, with the object that lacks each."""
    pairs = [(owner, name) for owner, several in names.items() for name in several]
    return [f"{owner}.{name}" for owner, name in pairs if not hasattr(owners[owner], name)]


def test_every_private_name_is_there(owners: dict[str, object]) -> None:
    assert missing(NAMES, owners) == []


def test_a_name_that_a_new_version_drops_is_named(owners: dict[str, object]) -> None:
    older = NAMES | {"fit_loop": (*NAMES["fit_loop"], "_dropped"), "bar": ("_also_dropped",)}
    assert missing(older, owners) == ["fit_loop._dropped", "bar._also_dropped"]


def test_saved_keys_are_there(owners: dict[str, object]) -> None:
    trainer = owners["trainer"]
    assert isinstance(trainer, L.Trainer)
    keys = {lightning_private.BATCH_PROGRESS, lightning_private.VALIDATION_PROGRESS}
    assert keys <= set(trainer.fit_loop.state_dict())
    assert f'"{lightning_private.CLASS_PATH}"' in inspect.getsource(LightningCLI)


def test_the_logger_that_is_filtered_is_lightnings() -> None:
    assert rank_zero.__name__ == noise._LOGGER


def private_names(node: ast.AST) -> set[str]:
    """Private attributes that are read, set or defined."""
    inner = list(ast.walk(node))
    names = {n.attr for n in inner if isinstance(n, ast.Attribute)}
    names |= {n.name for n in inner if isinstance(n, ast.FunctionDef)}
    return {name for name in names if PRIVATE.fullmatch(name)}


@pytest.mark.parametrize("module", PRIVATE_MODULES)
def test_the_list_is_that_of_the_module(module: str) -> None:
    listed = {name for names in importlib.import_module(module).NAMES.values() for name in names}
    used = private_names(ast.parse(modules()[module].read_text()))
    assert used == {name for name in listed if PRIVATE.fullmatch(name)}


def borrowed(module: str, path: Path) -> set[str]:
    """Private names that a module's classes take from, or share with, a package's class."""
    found = set()
    tree = ast.parse(path.read_text())
    contents = vars(importlib.import_module(module))
    for node in (n for n in tree.body if isinstance(n, ast.ClassDef)):
        bases = contents[node.name].__mro__
        packaged = [base for base in bases if base.__module__.split(".")[0] in PACKAGES]
        sources = "".join(map(inspect.getsource, packaged))
        theirs = set(re.findall(r"\bself\.(_[a-z]\w*)", sources)) | {
            name for base in packaged for name in vars(base)
        }
        found |= {f"{node.name}.{name}" for name in private_names(node) & theirs}
    return found


def of_other_objects(tree: ast.AST) -> set[str]:
    """Attributes of anything but ``self``."""
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {node.attr for node in attributes if ast.unparse(node.value) != "self"}


def test_no_other_module_takes_them() -> None:
    listed = {name for names in NAMES.values() for name in names if PRIVATE.fullmatch(name)}
    for module, path in modules().items():
        if module in PRIVATE_MODULES or module.endswith("__main__"):
            continue
        assert not of_other_objects(ast.parse(path.read_text())) & listed, module
        assert not borrowed(module, path), module


def test_the_search_can_fail() -> None:
    module = "toolkit.lightning_private"
    found = borrowed(module, modules()[module])
    assert "_data_fetcher" in of_other_objects(ast.parse(modules()[module].read_text()))
    assert {"OpenCLI._parse_ckpt_path", "OpenProgressBar._get_train_description"} <= found
