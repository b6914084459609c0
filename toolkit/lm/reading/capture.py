"""Hidden states of each layer from one forward pass of a language model."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from toolkit.evaluation_mode import evaluation_mode
from toolkit.lm.architecture.layers import FINAL
from toolkit.lm.architecture.parts import LanguageModelParts

_Store = Callable[[object], None]


def captured_layers(
    parts: LanguageModelParts,
    layers: Sequence[str],
    inputs: Mapping[str, Tensor],
    pool: Callable[[Tensor], Tensor],
) -> dict[str, Tensor]:
    """Run the model once and return the pooled hidden states of each layer.

    Args:
        parts: The model's parts.
        layers: Names of the layers to capture; other layers get no hook.
        inputs: The batch, by the names of the model's arguments.
        pool: Function that pools the states of a layer. It is called during the pass, so that the
            states of all tokens are not kept.

    Raises:
        ValueError: If a layer is not run exactly once, or the shape of its hidden states is not
            (texts, tokens, d).
    """
    captured = _Captured(tuple(inputs["input_ids"].shape), pool)
    handles: list[RemovableHandle] = []
    try:
        for layer in layers:
            handles += [_hooked(parts, layer, partial(captured.store, layer))]
        run_body(parts, inputs)
    finally:
        for handle in handles:
            handle.remove()
    silent = [layer for layer in layers if layer not in captured.states]
    if silent:
        raise ValueError(
            f"{', '.join(silent)}: expected a pass through the module, got none; name the modules "
            "that this model runs with paths"
        )
    return captured.states


def run_body(parts: LanguageModelParts, inputs: Mapping[str, Tensor]) -> None:
    """Run embedding and blocks on a batch, given as arguments of the model by name."""
    parts.body(**accepted_arguments(parts.body, inputs))


class _Captured:
    """Pooled hidden states of one pass; each pass needs a new object."""

    def __init__(self, shape: tuple[int, ...], pool: Callable[[Tensor], Tensor]) -> None:
        self.states: dict[str, Tensor] = {}
        self._shape = shape
        self._pool = pool

    def store(self, layer: str, hidden: object) -> None:
        """Pool the hidden states of a layer; raise a ValueError if they are of another shape."""
        if layer in self.states:
            raise ValueError(f"{layer}: expected one pass through it, got two; name other blocks")
        shape = tuple(hidden.shape) if isinstance(hidden, Tensor) else type(hidden).__name__
        if not isinstance(hidden, Tensor) or hidden.ndim != 3 or shape[:2] != self._shape:
            expected = ", ".join(map(str, self._shape))
            raise ValueError(
                f"{layer}: expected hidden states of shape ({expected}, d), got {shape}; "
                "name the modules with paths"
            )
        self.states[layer] = self._pool(hidden)


@contextmanager
def reading_mode(model: nn.Module) -> Iterator[None]:
    """Use eval mode inside the ``with`` block, without compilation, autocast or gradients."""
    device = next(model.parameters()).device.type
    with (
        evaluation_mode(model),
        # A compiled model does not call hooks that were added after its compilation.
        torch.compiler.set_stance("force_eager"),
        torch.autocast(device, enabled=False),
    ):
        yield


def _hooked(parts: LanguageModelParts, layer: str, store: _Store) -> RemovableHandle:
    """Register ``store`` as a hook that gets the layer's hidden states in the next pass."""
    if layer == FINAL:
        if parts.unembedding in set(parts.body.modules()):
            return _before(parts.unembedding, store)
        return _after(parts.body, store)
    index = int(layer.rpartition("_")[2])
    return _after(parts.blocks[index - 1], store) if index else _before(parts.blocks[0], store)


def _before(module: nn.Module, store: _Store) -> RemovableHandle:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        store(args[0] if args else kwargs.get("hidden_states"))

    return module.register_forward_pre_hook(hook, with_kwargs=True)


def _after(module: nn.Module, store: _Store) -> RemovableHandle:
    def hook(_module: nn.Module, _args: object, output: Tensor | Sequence[object]) -> None:
        store(output if isinstance(output, Tensor) else output[0])

    return module.register_forward_hook(hook)


def accepted_arguments(body: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the arguments of a pass, without arguments that the model does not accept."""
    arguments: dict[str, Any] = {**inputs, "use_cache": False}
    # The configuration of a model may request these outputs; they would only use memory.
    arguments |= {"output_hidden_states": False, "output_attentions": False}
    names = inspect.signature(body.forward).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in names.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in names}
