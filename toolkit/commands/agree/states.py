"""Hidden states and readout bases of the models that are compared."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toolkit.console.held_stderr import one_line
from toolkit.functional._checks import at_most
from toolkit.lm.checkpoints.base import Checkpoint
from toolkit.lm.checkpoints.models import Models
from toolkit.lm.checkpoints.outline import Outline, read_outline
from toolkit.lm.reading.hidden_states import layer_names
from toolkit.measures import Subject, default_k
from toolkit.runs.points import num_nonfinite


class Candidate(NamedTuple):
    """A model without its weights: only its small files are read.

    Attributes:
        name: Name that the user gave.
        checkpoint: The checkpoint that is opened later.
        outline: Its shape.
    """

    name: str
    checkpoint: Checkpoint
    outline: Outline


class ModelStates(NamedTuple):
    """States and readout bases of a model that has read the texts.

    Attributes:
        name: Name that the user gave.
        commit: Commit of a published model, else empty.
        layers: Name of the layer at each depth.
        states: One float32 vector for each text, shape (N, d), by layer.
        bases: Readout basis, shape (d, k), by layer; none if the unembedding is not finite.
        num_nonfinite: Number of values of states and unembedding that are not finite, by layer.
    """

    name: str
    commit: str
    layers: Mapping[str, str]
    states: Mapping[str, Tensor]
    bases: Mapping[str, Tensor]
    num_nonfinite: Mapping[str, int]


def candidates(
    names: Sequence[str], texts: Sequence[str], *, max_length: int, allow_pickle: bool = False
) -> list[Candidate]:
    """Check several models without their weights.

    Args:
        names: Folders, or names on the Hub, those as ``name@revision`` where it is not ``main``.
        texts: The texts that the models will read.
        max_length: Longer texts are cut to this number of tokens.
        allow_pickle: Whether to load pickled weights where there are no safetensors.

    Raises:
        ValueError: If a model cannot be read; the message begins with its name.
    """
    found = []
    for name in names:
        with _named(name):
            # One series for each model: two revisions of a model may have the same step.
            (checkpoint,) = Models([name], allow_pickle=allow_pickle).checkpoints()
            outline = read_outline(checkpoint, texts, max_length=max_length)
        found.append(Candidate(name, checkpoint, outline))
    return found


def subspace_dimension(models: Sequence[Candidate], k: int | None) -> int:
    """Return the dimension of all readout subspaces, by default from the narrowest model.

    Raises:
        ValueError: If the unembedding of a model is too small for ``k``.
    """
    if k is None:
        return min(default_k(model.outline.dim) for model in models)
    for model in models:
        limit = min(model.outline.dim, model.outline.num_rows)
        at_most("k", k, limit, limit=f"{limit}, the rank of {model.name}")
    return k


def layer_at(depth: str, num_blocks: int) -> str:
    """Return the name of a model's layer at a depth, the same share of each model's blocks.

    Args:
        depth: A layer's name, or a share s: 0 is the input of the first block, 1 is ``final``, and
            between them s is the residual stream after the block nearest to s L.
        num_blocks: Number of blocks L.

    Raises:
        ValueError: If there is no such layer.

    Example:
        >>> [layer_at(depth, 7) for depth in ("0", "0.5", "1", "layer_02")]
        ['layer_00', 'layer_04', 'final', 'layer_02']
    """
    names = layer_names(num_blocks)
    if depth in names:
        return depth
    try:
        share = float(depth)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(
            f"layers: expected shares from 0 to 1, final, or layers up to {names[-2]}, got {depth}"
        )
    return names[-1] if share == 1 else names[int(share * num_blocks + 0.5)]


def chosen_layers(depths: Sequence[str], model: Candidate) -> dict[str, str]:
    """Return the name of a model's layer at each depth.

    Raises:
        ValueError: If there is no such layer; the message begins with the model's name.
    """
    with _named(model.name):
        return {depth: layer_at(depth, model.outline.num_blocks) for depth in depths}


def read_states(
    model: Candidate,
    texts: Sequence[str],
    layers: Mapping[str, str],
    *,
    k: int,
    dtype: torch.dtype,
    encoding: Mapping[str, Any],
) -> ModelStates:
    """Download and open a model, read the texts with it, and release its weights.

    Args:
        model: The model.
        texts: N texts.
        layers: Name of the layer at each depth.
        k: Dimension of the readout subspace.
        dtype: Type of the loaded weights.
        encoding: How a text becomes a vector: options of `toolkit.lm.reading.hidden_states`.

    Raises:
        ValueError: If that fails, or no layer of the model is finite together with its
            unembedding; the message begins with the model's name.
    """
    names = list(dict.fromkeys(layers.values()))
    with _named(model.name):
        model.checkpoint.fetch(model.checkpoint.missing())
        opened = model.checkpoint.open(dtype)
        subject = Subject(opened.model, opened.tokenizer, texts, layers=names, encoding=encoding)
        states = subject.states("test")
        bad = num_nonfinite(subject.matrices["output"])
        bases = {name: _readout_basis(subject, name, k) for name in names if not bad}
        counts = {name: bad + num_nonfinite(states[name]) for name in names}
        _check_some_finite(counts)
    return ModelStates(
        name=model.name,
        commit=model.checkpoint.commit,
        layers=layers,
        states=states,
        bases=bases,
        num_nonfinite=counts,
    )


def _readout_basis(subject: Subject, layer: str, k: int) -> Tensor:
    """Return a layer's readout basis; the rank suffices for all its columns."""
    basis, rank = subject.readout(layer, k, centered=False, fold_norm=False)
    limit = f"{rank}, the rank of the matrix that reads {layer} out"
    at_most("k", k, rank, limit=limit, advice="choose a smaller subspace")
    return basis


def _check_some_finite(counts: Mapping[str, int]) -> None:
    """Raise a ValueError if each layer has numbers that are not finite."""
    if all(counts.values()):
        found = ", ".join(f"{number} at {layer}" for layer, number in counts.items())
        raise ValueError(
            "weights: expected finite hidden states and unembedding at one of the layers, got "
            f"values that are NaN or infinite: {found}"
        )


@contextmanager
def _named(model: str) -> Iterator[None]:
    """Put the model's name in front of an error's message."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{model}: {one_line(error)}") from error
