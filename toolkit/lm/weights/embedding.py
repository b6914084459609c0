"""Read one embedding matrix of a language model without loading the model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor

from toolkit.functional._checks import flag, integer_at_least, optional, shown_list, valid_text
from toolkit.lm.hub import is_repository_name
from toolkit.lm.weights import gguf as _gguf
from toolkit.lm.weights import pickled as _pickled
from toolkit.lm.weights import safetensors as _safetensors
from toolkit.lm.weights.below import check_models_below
from toolkit.lm.weights.files import Weights, packed_error, shown_name
from toolkit.lm.weights.hub_store import HubRepository
from toolkit.lm.weights.names import (
    Matrix,
    check_matrix,
    is_outside_blocks,
    known_parts,
    names_of,
    packed_names_of,
    stated_ties,
    ties_matrices,
)
from toolkit.lm.weights.shards import names_of_set
from toolkit.lm.weights.stores import Folder, Store
from toolkit.lm.weights.vocabulary import vocabulary_size

__all__ = ["EmbeddingTensor", "Matrix", "read_embedding"]

_SHOWN_NAMES = 4


class EmbeddingTensor(NamedTuple):
    """An embedding matrix and its source.

    Attributes:
        tensor: The matrix (V, d), one row per token, in its stored dtype; float32 if it was
            dequantised. Only the first rows if ``num_rows`` was given.
        dtype: Stored type, such as ``bfloat16`` or, for quantised weights, ``Q8_0``.
        name: Name of the matrix in the file.
        tied: Whether the model ties its input and output matrix; None if the available files do
            not show it.
        vocab_size: Largest token id of the model's tokenizer plus one: rows beyond it were never
            trained. None without a tokenizer; may exceed V.
        source: Path or name of the model, with its revision.
        file: The file that holds the matrix.
        commit: Commit of a published model, otherwise empty.
        bytes_read: Bytes of weight files that were read, headers included.
    """

    tensor: Tensor
    dtype: str
    name: str
    tied: bool | None
    vocab_size: int | None
    source: str
    file: str
    commit: str
    bytes_read: int


def read_embedding(
    source: str | Path,
    matrix: Matrix = "input",
    *,
    tensor_name: str | None = None,
    revision: str | None = None,
    allow_pickle: bool = False,
    num_rows: int | None = None,
) -> EmbeddingTensor:
    """Read the input or output embedding of a language model, and no other weights.

    Args:
        source: A folder of a Hugging Face model, a ``.safetensors``, ``.gguf`` or ``.ckpt`` file,
            or the name of a model on the Hub. From the Hub, only the matrix is downloaded unless
            the weights are cached. ``HF_HUB_OFFLINE`` is respected. One part of a set of files
            stands for the whole set.
        matrix: ``input`` (embedding) or ``output`` (unembedding, W_U). In a tied model both are
            the same matrix; the configuration, the family or the files must show that it is tied.
        tensor_name: Name of the matrix in the file, for models in which none of the known names
            occurs, or several do.
        revision: Branch, tag or commit on the Hub, by default ``main``; ``source`` may contain it
            as ``name@revision``.
        allow_pickle: Whether to open ``.bin``, ``.pt`` and ``.pth`` files if there is no other
            format. No code in them, or in ``.ckpt`` files, is run.
        num_rows: Number of rows to read from the start; by default all.

    Raises:
        ValueError: If the source, the revision or the matrix cannot be found, parts of a set are
            missing, the weights are packed integers, several tensors match, or a file is damaged
            or contains code.
    """
    valid_text("source", str(source) if isinstance(source, Path) else source)
    check_matrix(matrix)
    optional(valid_text, "tensor_name", tensor_name)
    optional(valid_text, "revision", revision)
    flag("allow_pickle", allow_pickle)
    if num_rows is not None:
        integer_at_least("num_rows", num_rows, 1)
    weights, label = _open(str(source), revision, allow_pickle=allow_pickle)
    name, tied = _chosen(weights, matrix, tensor_name)
    shape = weights.shape(name)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"source: expected a matrix under {name} in {label}, got shape {shape}")
    tensor = weights.rows(name, 0, shape[0] if num_rows is None else min(num_rows, shape[0]))
    return EmbeddingTensor(
        tensor,
        weights.dtype_of(name),
        name,
        tied,
        weights.vocab_size,
        label,
        weights.file_of(name),
        weights.commit,
        weights.bytes_read,
    )


def _open(source: str, revision: str | None, *, allow_pickle: bool) -> tuple[Weights, str]:
    """Return the weights of a source, and the label of the source in messages."""
    path = Path(source).expanduser()
    if path.exists():
        if revision is not None:
            raise ValueError(
                f"revision: expected none for a local path, got {revision!r} for {source}"
            )
        opened = _open_folder if path.is_dir() else _open_file
        return opened(path, allow_pickle=allow_pickle), source
    name, at, named_revision = source.partition("@")
    if at and revision is not None:
        raise ValueError(f"revision: expected one revision, got {revision!r} and {source}")
    if path.suffix in _FILES or not is_repository_name(name):
        raise ValueError(f"source: expected a path or a model on the Hub, got {source!r}: no file")
    repository = HubRepository(name, named_revision if at else revision or "main")
    return _from_store(repository, _store_weights(repository, allow_pickle)), repository.label


def _open_folder(path: Path, *, allow_pickle: bool) -> Weights:
    store = Folder(path)
    # A file with an unusual name is accepted if it is the only file, or the only set of files.
    others = sorted([*path.glob("*.safetensors"), *path.glob("*.gguf")])
    usual = any(
        store.holds(name)
        for module in (_safetensors, _pickled)
        for name in (module.INDEX, module.SINGLE)
    )
    if not usual and not others:
        check_models_below(path)
    if usual or not others:
        return _from_store(store, _store_weights(store, allow_pickle))
    if len({tuple(names_of_set(other.name)) for other in others}) > 1:
        names = shown_list([other.name for other in others], _SHOWN_NAMES)
        raise ValueError(f"source: expected one weight file in {path}, got {names}; name one")
    return _open_file(others[0], allow_pickle=allow_pickle)


def _open_file(path: Path, *, allow_pickle: bool) -> Weights:
    if path.suffix not in _FILES:
        known = ", ".join(_FILES)
        raise ValueError(f"source: expected a folder or a file of {known}, got {path}")
    if path.suffix in _PICKLES and not allow_pickle:
        raise _pickle_error(str(path))
    return _FILES[path.suffix](path)


def _gguf_file(path: Path) -> Weights:
    weights = _gguf.GgufWeights(path)
    if weights.ties and _could_be_output(weights):
        weights.ties = None
    return weights


def _safetensors_file(path: Path) -> Weights:
    store = Folder(path.parent)
    return _from_store(store, _safetensors.open_safetensors_file(store, path.name))


def _pickle_file(path: Path) -> Weights:
    store = Folder(path.parent)
    return _from_store(store, _pickled.open_pickled_file(store, path.name))


def _checkpoint_file(path: Path) -> Weights:
    # Other files in the folder of a checkpoint belong to the run, not to the model.
    return _pickled.PickledWeights(Folder(path.parent), [path.name])


_PICKLES = (".bin", ".pt", ".pth")
_FILES: MappingProxyType[str, Callable[[Path], Weights]] = MappingProxyType(
    {".safetensors": _safetensors_file, ".gguf": _gguf_file, ".ckpt": _checkpoint_file}
    | dict.fromkeys(_PICKLES, _pickle_file)
)


def _store_weights(store: Store, allow_pickle: bool) -> Weights:  # noqa: FBT001
    weights = _safetensors.open_safetensors(store)
    if weights is not None:
        return weights
    pickles = [name for name in (_pickled.INDEX, _pickled.SINGLE) if store.holds(name)]
    if pickles and not allow_pickle:
        raise _pickle_error(f"{store.label}/{pickles[0]}")
    pickled = _pickled.open_pickled(store)
    if pickled is None:
        raise ValueError(
            f"source: expected {_safetensors.SINGLE} or its index in {store.label}, got neither"
        )
    return pickled


def _from_store(store: Store, weights: Weights) -> Weights:
    config = store.json("config.json")
    weights.ties = ties_matrices(config)
    # The default of a family may not hold here: another matrix of the same shape may be the head.
    if weights.ties and stated_ties(config) is None and _could_be_output(weights):
        weights.ties = None
    weights.vocab_size = vocabulary_size(store)
    return weights


def _could_be_output(weights: Weights) -> list[str]:
    """Return unknown tensors outside the blocks that have the shape of the input matrix."""
    inputs = names_of("input", weights.names)
    shape = weights.plain_shape(inputs[0]) if inputs else None
    if shape is None or names_of("output", weights.names):
        return []
    others = [name for name in weights.names if is_outside_blocks(name) and name not in inputs]
    return [name for name in others if weights.plain_shape(name) == shape]


def _chosen(weights: Weights, matrix: Matrix, tensor_name: str | None) -> tuple[str, bool | None]:
    """Return the name of the tensor to read, and whether the model ties its matrices."""
    if tensor_name is not None:
        if tensor_name not in weights.names:
            raise _unknown(weights, f"the tensor {tensor_name}")
        return tensor_name, weights.ties
    other: Matrix = "output" if matrix == "input" else "input"
    wanted, others = names_of(matrix, weights.names), names_of(other, weights.names)
    if len(wanted) > 1 and not all(weights.same(wanted[0], name) for name in wanted[1:]):
        raise ValueError(
            f"source: expected one {matrix} embedding in {weights.label}, got {', '.join(wanted)}; "
            "choose by tensor_name (--tensor)"
        )
    if wanted:
        return wanted[0], _are_tied(weights, wanted[0], others)
    packed = packed_names_of(matrix, weights.names)
    if packed:
        raise packed_error(packed[0], weights.label, "integers")
    if others and weights.ties:
        return others[0], True
    raise _missing(weights, matrix, found_other=bool(others))


def _are_tied(weights: Weights, name: str, others: Sequence[str]) -> bool | None:
    """Whether the matrix equals the other matrix; None if the available files do not show it."""
    if not others:
        return weights.ties
    # The configuration may call the matrices tied although the files hold different matrices.
    return weights.same(name, others[0]) if weights.is_there(others[0]) else None


def _missing(weights: Weights, matrix: Matrix, *, found_other: bool) -> ValueError:
    if not found_other or matrix == "input":
        return _unknown(weights, f"an {matrix} embedding ({known_parts(matrix)})")
    untied = "the configuration says that the model is untied"
    why = untied if weights.ties is False else "no file shows that the model is tied"
    candidates = _could_be_output(weights)
    advice = "give the whole model, or its name as tensor_name (--tensor)"
    if candidates:
        shown = shown_list([*map(shown_name, candidates)], _SHOWN_NAMES)
        advice = f"it could be {shown}: give its name as tensor_name (--tensor)"
    return ValueError(
        f"source: expected an output embedding ({known_parts('output')}) in {weights.label}, "
        f"got none, and {why}; {advice}"
    )


def _unknown(weights: Weights, wanted: str) -> ValueError:
    names = sorted(map(shown_name, weights.names))
    shown = shown_list(names, _SHOWN_NAMES)
    return ValueError(
        f"source: expected {wanted} in {weights.label}, got {len(names)} tensors: {shown}; "
        "give its name as tensor_name (--tensor)"
    )


def _pickle_error(file: str) -> ValueError:
    return ValueError(
        f"source: expected safetensors, got the pickled {file}; convert it, or allow it with "
        "allow_pickle (--allow-pickle)"
    )
