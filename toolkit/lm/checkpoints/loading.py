"""Safe loading of causal language models from disk, with errors of one line."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import torch

from toolkit.console.bar import OtherBar, counting_bar
from toolkit.console.stages import stage
from toolkit.functional._checks import shown_list
from toolkit.lm.checkpoints.base import OpenedModel
from toolkit.lm.reading.tokenizers import folder_tokenizer, load_tokenizer
from toolkit.lm.weights.files import Weights
from toolkit.lm.weights.gguf import GgufWeights, gguf_package
from toolkit.lm.weights.names import WRAPPED
from toolkit.lm.weights.pickled import open_pickled
from toolkit.lm.weights.safetensors import open_safetensors
from toolkit.lm.weights.stores import Folder
from toolkit.lm.weights.zip_checksums import check_file

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_OTHER_WEIGHTS = (".bin", ".gguf")
_SHOWN_NAMES = 3
_GIB = 2**30


def load_folder(folder: Path, dtype: torch.dtype, *, label: str, allow_pickle: bool) -> OpenedModel:
    """Load the model and its tokenizer from a folder; no code in the folder is run.

    Args:
        folder: A folder of a Hugging Face model.
        dtype: Type of the loaded weights; the stored type may differ.
        label: Name of the model in messages.
        allow_pickle: Whether to load pickled weights if there are no safetensors.

    Raises:
        ValueError: If there are no weights of an allowed kind, they are damaged or lack a tensor,
            or the model needs code that `transformers` does not contain.
    """
    check_kind_of_weights(folder, label, allow_pickle=allow_pickle)
    try:
        options = _checked_names(folder, allow_pickle=allow_pickle)
    except ValueError as error:
        reason = str(error).removeprefix("source: ")
        raise ValueError(
            f"checkpoint: expected a whole model in {label}, got an unusable file ({reason})"
        ) from error
    options["use_safetensors"] = None if allow_pickle else True
    with stage(f"{label}: weights"):
        model = _complete_model(folder, dtype, label, **options)
    return OpenedModel(model, folder_tokenizer(folder))


def load_gguf(path: Path, dtype: torch.dtype) -> OpenedModel:
    """Load the model and the tokenizer from a GGUF file.

    Args:
        path: The file.
        dtype: Type of the loaded weights; the stored type may differ.

    Raises:
        ValueError: If the file is not GGUF, is one part of several or lacks a tensor,
            `transformers` cannot load its family from GGUF, or the ``gguf`` package is missing.
    """
    gguf_package(str(path))
    with stage(f"{path}: header"):
        weights = GgufWeights(path)
    if len(weights.paths) > 1:
        raise ValueError(
            f"checkpoint: expected a model in one GGUF file, got {path}, one of "
            f"{len(weights.paths)} parts; join them with llama.cpp's gguf-split --merge"
        )
    size = path.stat().st_size / _GIB
    with (
        stage(f"{path}: weights"),
        counting_bar(f"dequantising {path.name} ({size:.2f} GiB)") as advance,
        # The bar of transformers cannot be switched off here.
        redirect_stderr(OtherBar(advance)),
    ):
        model = _complete_model(path.parent, dtype, str(path), gguf_file=path.name, **_dense())
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None:
        # The weights are dequantised: a model with this setting could not be trained or saved.
        quantizer.remove_quantization_config(model)
    if weights.vocab_size is None:
        return OpenedModel(model, None)
    with stage(f"{path}: tokenizer"):
        return OpenedModel(model, load_tokenizer(str(path.parent), gguf_file=path.name))


@contextmanager
def without_bars() -> Iterator[None]:
    """Hide progress bars and reports on unused weights, which each checkpoint would print."""
    logging: Any = importlib.import_module("transformers.utils.logging")
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _complete_model(
    folder: Path,
    dtype: torch.dtype,
    label: str,
    **options: Any,  # noqa: ANN401
) -> "PreTrainedModel":
    from safetensors import SafetensorError  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    broken = (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError)
    try:
        with without_bars():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                trust_remote_code=False,
                output_loading_info=True,
                local_files_only=True,
                **options,
            )
    except UnpicklingError as error:
        raise ValueError(
            f"checkpoint: expected plain tensors in {label}, got a pickle that asks for code; "
            "refused, nothing in it was run"
        ) from error
    except broken as error:
        reason = str(error).strip().split("\n", maxsplit=1)[0]
        raise ValueError(f"checkpoint: expected a whole model in {label}, got {reason}") from error
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        names = shown_list(missing, _SHOWN_NAMES)
        raise ValueError(
            f"checkpoint: expected all weights in {label}, got none for {names}; they would be "
            "random"
        )
    model.eval()
    complete: PreTrainedModel = model
    return complete


def _checked_names(folder: Path, *, allow_pickle: bool) -> dict[str, Any]:
    """Check the files, and return the option that removes wrappers from names of weights."""
    store = Folder(folder)
    weights: Weights | None = open_safetensors(store)
    if weights is None and allow_pickle:
        for path in sorted(folder.glob("pytorch_model*.bin")):
            check_file(path)
        weights = open_pickled(store)
    names = () if weights is None else weights.names
    depth = max((len(WRAPPED.findall(name)) for name in names), default=0)
    # Each renaming removes one wrapper; the comment in each pattern makes the keys different.
    patterns = (f"{WRAPPED.pattern}(?#{number})" for number in range(depth))
    return {"key_mapping": dict.fromkeys(patterns, "")} if depth else {}


def _dense() -> dict[str, Any]:
    """Return the option that dequantises weights; some versions of transformers need it."""
    config = getattr(importlib.import_module("transformers"), "GgufConfig", None)
    return {} if config is None else {"quantization_config": config(dequantize=True)}


def check_kind_of_weights(folder: Path, label: str, *, allow_pickle: bool) -> None:
    """Refuse a folder without safetensors, unless other formats are allowed.

    Args:
        folder: A folder of a Hugging Face model.
        label: Name of the model in messages.
        allow_pickle: Whether other formats are accepted.

    Raises:
        ValueError: If the folder holds no safetensors.
    """
    if allow_pickle or any(folder.glob("*.safetensors")):
        return
    others = sorted(path.name for path in folder.glob("*") if path.suffix in _OTHER_WEIGHTS)
    advice = "; convert them, name a GGUF file itself, or set allow_pickle" if others else ""
    raise ValueError(
        f"checkpoint: expected safetensors in {label}, got {', '.join(others) or 'no weights'}"
        f"{advice}"
    )
