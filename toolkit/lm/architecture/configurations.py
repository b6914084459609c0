"""Language models from configurations of plain types."""

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from toolkit.functional._checks import shown

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

# Names of settings in older configurations; transformers translates them.
_TRANSLATED = {
    "partial_rotary_factor",
    "rope_scaling",
    "rope_theta",
    "rotary_emb_base",
    "rotary_pct",
    "torch_dtype",
}


def new_language_model(
    config: Mapping[str, Any], *, dtype: torch.dtype = torch.float32
) -> "PreTrainedModel":
    """Return a causal language model with random weights from torch's default generator.

    Args:
        config: ``model_type`` and any settings of that type, plain types.
        dtype: Type of the weights.

    Raises:
        ValueError: If type or settings are unknown or do not fit together.
    """
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    built = _configuration(config)
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            built, dtype=dtype
        )
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"config: expected a causal language model, got {config['model_type']} ({_last(error)})"
        ) from error
    except (RuntimeError, MemoryError, OverflowError, ArithmeticError) as error:
        # Sizes that torch or the memory cannot hold, such as a hidden_size of 10**12 or 0.
        raise ValueError(
            f"config: expected sizes of a model that fits into memory, got {shown(dict(config))} "
            f"({type(error).__name__})"
        ) from error
    return model


def check_configuration(config: Mapping[str, Any]) -> None:
    """Raise a ValueError unless type and settings are known and fit together."""
    _configuration(config)


def plain_configuration(config: "PreTrainedConfig") -> dict[str, Any]:
    """Return the argument of `new_language_model` that builds the same model."""
    known = _known_settings(config.model_type)
    return {name: value for name, value in config.to_dict().items() if name in known}


def _configuration(config: Mapping[str, Any]) -> "PreTrainedConfig":
    from huggingface_hub.errors import StrictDataclassError  # noqa: PLC0415
    from transformers import AutoConfig  # noqa: PLC0415

    settings = dict(config)
    model_type = settings.pop("model_type", None)
    known = _known_settings(model_type)
    unknown = next((name for name in settings if name not in known), None)
    if unknown is not None:
        close = difflib.get_close_matches(str(unknown), known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(f"config: expected settings of {model_type}, got {unknown!r}{hint}")
    try:
        built: PreTrainedConfig = AutoConfig.for_model(model_type, **settings)
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise ValueError(
            f"config: expected settings of {model_type} that fit together, got {shown(settings)} "
            f"({_last(error)})"
        ) from error
    return built


def _known_settings(model_type: Any) -> set[str]:  # noqa: ANN401
    from transformers import AutoConfig  # noqa: PLC0415

    try:
        default = AutoConfig.for_model(model_type)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            "config: expected model_type to be a type that transformers knows, such as gpt_neox, "
            f"got {shown(model_type)}"
        ) from error
    return {*default.to_dict(), *default.attribute_map, *_TRANSLATED}


def _last(error: Exception) -> str:
    """Return the last line of a message, which gives the reason."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
