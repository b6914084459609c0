"""Names of the two embedding matrices in weight files, and whether a model ties them."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

from toolkit.functional._checks import one_of

Matrix = Literal["input", "output"]

# The last part of the name. Names of modules without a number may precede it (a number means a
# block): `model.`, `language_model.`, an attribute of a LightningModule, `_orig_mod.`, ...
_KNOWN = MappingProxyType(
    {
        "input": (
            "embed_tokens",  # Llama, OPT, Qwen, Gemma, OLMo, Phi
            "embed_in",  # GPT-NeoX
            "wte",  # GPT-2, GPT-J, MPT
            "word_embeddings",  # BLOOM, Falcon
            "tok_embeddings",  # Llama as published by Meta, InternLM
            "token_embd",  # GGUF
        ),
        "output": (
            "lm_head",
            "embed_out",  # GPT-NeoX before transformers 5.13
            "output_layer",  # ChatGLM
            "output",  # GGUF, Llama as published by Meta, InternLM
        ),
    }
)
_PACKED = ("qweight", "weight_packed", "weight.absmax", "SCB")
_TEXT_PARTS = ("text_config", "llm_config", "language_config")
_TIED_KEYS = ("tie_word_embeddings", "weight_tying")  # the second: OLMo's original code
# Defaults of the families' configuration classes, for configurations without the key.
UNTIED_BY_DEFAULT = frozenset(
    {"afmoe", "apertus", "arcee", "bamba", "bitnet", "codegen", "cwm", "dbrx", "deepseek_v2"}
    | {"deepseek_v3", "diffllama", "doge", "dots1", "exaone4", "falcon_h1", "flex_olmo", "glm"}
    | {"glm4", "glm4_moe", "gpt_neox", "gpt_oss", "gptj", "granite", "granitemoe", "helium"}
    | {"hunyuan_v1_dense", "hunyuan_v1_moe", "jamba", "llama", "llama4", "llama4_text"}
    | {"longcat_flash", "mamba2", "minimax", "ministral", "ministral3", "mistral", "mixtral"}
    | {"nemotron", "nemotron_h", "olmo", "olmo2", "olmo3", "olmoe", "persimmon", "phi", "phi3"}
    | {"phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_5", "qwen3_5_text", "qwen3_moe"}
    | {"qwen3_next", "rwkv", "seed_oss", "stablelm"}
)
TIED_BY_DEFAULT = frozenset(
    {"biogpt", "bloom", "cohere", "cohere2", "ctrl", "ernie4_5", "ernie4_5_moe", "falcon"}
    | {"falcon_mamba", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text"}
    | {"gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox_japanese", "jetmoe", "lfm2", "mamba", "mpt"}
    | {"openai-gpt", "opt", "paligemma", "recurrent_gemma", "smollm3", "starcoder2"}
    | {"vaultgemma", "xglm", "zamba", "zamba2"}
)
# Classes of models without an output matrix: bare models and classifiers.
_HEADLESS = re.compile(
    r"\w+?(?:(?<!LMHead)(?<!Heads)(?<!Chat)Model"
    r"|For\w*(?:Classification|MultipleChoice|QuestionAnswering))"
)
_NUMBERED = re.compile(r"(?:^|\.)\d+\.")
# Wrappers that torch.compile, sharding and data parallelism add to the name of a weight.
WRAPPED = re.compile(r"(?<![^.])(?:_orig_mod|_fsdp_wrapped_module|module)\.")
_COMPILED = re.compile(r"(?<![^.])_orig_mod\.")


def check_matrix(matrix: str) -> None:
    """Raise a ValueError unless ``matrix`` is ``input`` or ``output``."""
    one_of("matrix", matrix, *get_args(Matrix))


def names_of(matrix: Matrix, names: Iterable[str]) -> list[str]:
    """Return the ``names`` that are known names of the matrix."""
    return _matching(matrix, names, ("weight",))


def packed_names_of(matrix: Matrix, names: Iterable[str]) -> list[str]:
    """Return the ``names`` that belong to the matrix and show storage as packed integers."""
    return _matching(matrix, names, _PACKED)


def known_parts(matrix: Matrix) -> str:
    """Return the known names of the matrix as text for messages."""
    return ", ".join(_KNOWN[matrix])


def is_outside_blocks(name: str) -> bool:
    """Whether a weight lies outside the numbered blocks of the model."""
    return name.endswith("weight") and _NUMBERED.search(name) is None


def without_wrappers(name: str) -> str:
    """Return the name of a weight without the names of wrappers around its module."""
    return WRAPPED.sub("", name)


def rename_weights(state: dict[str, Any], names: Iterable[str]) -> None:
    """Rename weights in place to the names of a module, of which parts may be compiled.

    Args:
        state: Weights by name, from a module with the same, other or no compiled parts.
        names: Names of the weights in the module. A weight that is not among them gets the name
            that it has in an uncompiled module.
    """
    own = {_COMPILED.sub("", name): name for name in names}
    for name in list(state):
        plain = _COMPILED.sub("", name)
        if own.get(plain, plain) != name:
            state[own.get(plain, plain)] = state.pop(name)


def ties_matrices(config: Mapping[str, Any] | None) -> bool | None:
    """Whether a model ties its two matrices according to its ``config.json``; None if unknown.

    A multimodal model may have the key in its text part or at the top level: both are read.
    Without the key, the default of the family counts.
    """
    parts = _parts_of(config)
    if not parts or _is_headless(parts):
        return None
    stated = stated_ties(config)
    if stated is not None:
        return stated
    families = [part["model_type"] for part in parts if isinstance(part.get("model_type"), str)]
    if not families:
        return None
    defaults = {True: TIED_BY_DEFAULT, False: UNTIED_BY_DEFAULT}
    return next((tied for tied, known in defaults.items() if families[-1] in known), None)


def stated_ties(config: Mapping[str, Any] | None) -> bool | None:
    """Whether a ``config.json`` states that the matrices are tied; None if it has no such key."""
    values = (part.get(key) for part in _parts_of(config) for key in _TIED_KEYS)
    stated = [value for value in values if isinstance(value, bool)]
    return any(stated) if stated else None


def _parts_of(config: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if not isinstance(config, dict):
        return []
    return [config, *(config[name] for name in _TEXT_PARTS if isinstance(config.get(name), dict))]


def _is_headless(parts: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all classes in ``architectures`` are classes of models without a head."""
    lists = [part["architectures"] for part in parts if isinstance(part.get("architectures"), list)]
    classes = [str(name) for names in lists for name in names]
    return bool(classes) and all(map(_HEADLESS.fullmatch, classes))


def _matching(matrix: Matrix, names: Iterable[str], endings: Iterable[str]) -> list[str]:
    # Without a prefix: `output` is also the name of the last layer inside many blocks.
    known = "|".join(part for part in _KNOWN[matrix] if part != "output")
    head = r"|(?:model\.)*output" if matrix == "output" else ""
    ending = "|".join(map(re.escape, endings))
    pattern = re.compile(rf"(?:(?:[A-Za-z_]\w*\.)*(?:{known}){head})\.(?:{ending})")
    return [name for name in names if pattern.fullmatch(without_wrappers(name))]
