"""Parts of known families of language models: module names of blocks and final norm."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from toolkit.lm.architecture.parts import LanguageModelParts
from toolkit.lm.architecture.search import find_language_model, named_submodule, output_embedding

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_NAMEABLE = ("embedding", "blocks", "final_norm", "unembedding", "project_out")


class Family(NamedTuple):
    """Module names of the parts that no accessor of the model returns.

    The names are relative to the module that holds the blocks.

    Attributes:
        blocks: The list of blocks.
        final_norm: The norm after the last block.
        project_out: The projection between final norm and unembedding, None without one.
    """

    blocks: str = "layers"
    final_norm: str = "norm"
    project_out: str | None = None


# Keys: `model_type` in the configuration of the text model.
FAMILIES: Mapping[str, Family] = {
    "gpt_neox": Family(final_norm="final_layer_norm"),
    "gpt2": Family(blocks="h", final_norm="ln_f"),
    "opt": Family(final_norm="final_layer_norm", project_out="project_out"),
    "llama": Family(),
    "mistral": Family(),
    "qwen2": Family(),
    "qwen3": Family(),
    "gemma": Family(),
    "gemma2": Family(),
    "gemma3_text": Family(),
    "olmo": Family(),
    "olmo2": Family(),
    "phi": Family(final_norm="final_layernorm"),
    "phi3": Family(),
}


def language_model_parts(
    model: nn.Module, *, paths: Mapping[str, str] | None = None
) -> LanguageModelParts:
    """Return the parts of a language model, from its accessors and the table of families.

    Args:
        model: A Hugging Face causal language model, or a module that holds one.
        paths: Names of modules inside the language model, for families that are not in the table
            or to override it: ``embedding``, ``blocks``, ``final_norm``, ``unembedding``,
            ``project_out``.

    Raises:
        ValueError: If a part is neither known nor named, or a name matches no module.
    """
    language_model = find_language_model(model, argument="model")
    named = _named_parts(language_model, paths or {})
    family = FAMILIES.get(_model_type(language_model))
    found = _accessible_parts(language_model)
    body = _smallest_model_around(found["embedding"], language_model)
    knows_final_norm = "final_norm" in named or (
        family is not None and hasattr(body, family.final_norm)
    )
    if family:
        found |= _parts_of_family(body, family)
    found |= named
    _check_found(found, language_model)
    return LanguageModelParts(
        **found,
        # An unknown head may change its input first: only a run of the whole model shows this.
        body=body if family and not named else language_model,
        knows_final_norm=knows_final_norm,
    )


def _model_type(model: "PreTrainedModel") -> str:
    return str(model.config.get_text_config().model_type)


def _named_parts(model: nn.Module, paths: Mapping[str, str]) -> dict[str, nn.Module]:
    unknown = sorted(set(paths) - set(_NAMEABLE))
    if unknown:
        raise ValueError(f"paths: expected the keys {', '.join(_NAMEABLE)}, got {unknown}")
    return {
        key: named_submodule(model, name, argument=f"paths[{key!r}]") for key, name in paths.items()
    }


def _accessible_parts(model: "PreTrainedModel") -> dict[str, Any]:
    """Return every part by name, None if the model's accessors do not return it."""
    parts = dict.fromkeys(_NAMEABLE)
    try:
        embedding = model.get_input_embeddings()
    except NotImplementedError:
        return parts
    return parts | {"embedding": embedding, "unembedding": output_embedding(model)}


def _smallest_model_around(embedding: nn.Module | None, model: nn.Module) -> nn.Module:
    """Return the innermost Hugging Face model with the embedding: the body of the text model."""
    from transformers import PreTrainedModel  # noqa: PLC0415

    inner = model
    for module in model.modules():
        if isinstance(module, PreTrainedModel) and embedding in set(module.modules()):
            inner = module
    return inner


def _parts_of_family(body: nn.Module, family: Family) -> dict[str, Any]:
    names = {"blocks": family.blocks, "final_norm": family.final_norm}
    names |= {"project_out": family.project_out} if family.project_out else {}
    return {part: getattr(body, name, None) for part, name in names.items()}


def _check_found(found: Mapping[str, nn.Module | None], model: "PreTrainedModel") -> None:
    missing = [part for part in ("embedding", "blocks", "unembedding") if found[part] is None]
    if missing:
        raise ValueError(
            f"model: expected a causal language model of a known family ({', '.join(FAMILIES)}), "
            f"got {type(model).__name__} without known {' and '.join(missing)}; load it "
            "with its head and name what is missing, such as paths={'blocks': 'transformer.h'}"
        )
    blocks = found["blocks"]
    if not isinstance(blocks, nn.ModuleList | nn.Sequential) or len(blocks) == 0:
        raise ValueError(
            f"paths['blocks']: expected a ModuleList of blocks, got {type(blocks).__name__}; "
            "name the list itself"
        )
