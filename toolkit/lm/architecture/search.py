"""Search for the language model inside a larger module."""

from typing import TYPE_CHECKING

from torch import nn

from toolkit.functional._checks import instance

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def find_language_model(
    module: nn.Module, *, attribute: str | None = None, argument: str = "module"
) -> "PreTrainedModel":
    """Return the Hugging Face causal language model inside ``module``.

    The model may have any attribute name and be inside the wrappers of ``torch.compile``, PEFT and
    distributed training. Of several models, the only model with an unembedding is chosen.

    Args:
        module: Any module, such as a LightningModule, or the model itself.
        attribute: Dotted name of the submodule to search, needed when ``module`` holds several.
        argument: Name of the caller's argument, for messages.

    Returns:
        The model itself, not a copy.

    Raises:
        TypeError: If ``module`` is not a ``torch.nn.Module``.
        ValueError: If ``attribute`` matches no submodule, if there is no model or more than one,
            if the model is an encoder-decoder, or if PEFT adds virtual tokens to its input.
    """
    instance(argument, module, nn.Module)
    if attribute is not None:
        module = named_submodule(module, attribute, argument="attribute")
    found = _outermost_models(module)
    if len(found) > 1:
        found = {name: model for name, model in found.items() if output_embedding(model)} or found
    if len(found) != 1:
        listed = ", ".join(f"{name or 'itself'} ({_kind(m)})" for name, m in found.items())
        raise ValueError(
            f"{argument}: expected one Hugging Face language model inside {_kind(module)}, "
            f"got {listed or 'none'}; "
            + ("name one with attribute" if found else "keep it as an attribute of the module")
        )
    model = next(iter(found.values()))
    _refuse_other_architectures(module, model, argument)
    return model


def named_submodule(module: nn.Module, name: str, *, argument: str) -> nn.Module:
    """Return the submodule with a dotted name; raise a ValueError if it does not exist."""
    try:
        return module.get_submodule(name)
    except AttributeError:
        children = ", ".join(child for child, _ in module.named_children())
        raise ValueError(
            f"{argument}: expected the name of a submodule of {_kind(module)}, got {name!r}; "
            f"it starts with one of {children}"
        ) from None


def output_embedding(model: "PreTrainedModel") -> nn.Module | None:
    """Return the unembedding according to the model's own accessor."""
    module: nn.Module | None = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return module


def _outermost_models(module: nn.Module) -> dict[str, "PreTrainedModel"]:
    """Return the models by name, without models that are part of another model."""
    from transformers import PreTrainedModel  # noqa: PLC0415

    models = {name: m for name, m in module.named_modules() if isinstance(m, PreTrainedModel)}
    # A part may be registered before its model, under a name that does not show this.
    parts = {id(part) for model in models.values() for part in model.modules() if part is not model}
    return {name: model for name, model in models.items() if id(model) not in parts}


def _refuse_other_architectures(module: nn.Module, model: "PreTrainedModel", argument: str) -> None:
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(
            f"{argument}: expected a decoder-only language model, got {_kind(model)}, "
            "which is an encoder-decoder"
        )
    for wrapper in module.modules():
        adapters = getattr(wrapper, "peft_config", None) or {}
        if any(getattr(adapter, "is_prompt_learning", False) for adapter in adapters.values()):
            raise ValueError(
                f"{argument}: expected a model that reads its texts alone, got {_kind(wrapper)} "
                "that adds virtual tokens; measure the base model or use an adapter such as LoRA"
            )


def _kind(module: nn.Module) -> str:
    return type(module).__name__
