"""Under which names weight files keep the two embedding matrices, and whether they are one."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

Matrix = Literal["input", "output"]

# The last part of the name; before it may stand any modules that are not numbered (a number means
# a block): `model.`, `language_model.`, a LightningModule's own attribute, `_orig_mod.`, ...
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
# Families whose configuration class says False; the others, and the common base class, say True.
UNTIED_BY_DEFAULT = frozenset(
    {"codegen", "deepseek_v2", "deepseek_v3", "exaone4", "glm", "glm4", "glm4_moe", "gpt_neox"}
    | {"gpt_oss", "gptj", "granite", "jamba", "llama", "mistral", "mixtral", "nemotron", "olmo"}
    | {"olmo2", "olmo3", "olmoe", "persimmon", "phi", "phi3", "phimoe", "qwen2", "qwen2_moe"}
    | {"qwen3", "qwen3_moe", "qwen3_next", "seed_oss", "stablelm"}
)


def check_matrix(matrix: str) -> None:
    """Raise a ValueError unless ``matrix`` is one of the two."""
    if matrix not in get_args(Matrix):
        raise ValueError(f"matrix: expected 'input' or 'output', got {matrix!r}")


def names_of(matrix: Matrix, names: Iterable[str]) -> list[str]:
    """Return those of ``names`` under which the matrix is known."""
    return _matching(matrix, names, ("weight",))


def packed_names_of(matrix: Matrix, names: Iterable[str]) -> list[str]:
    """Return those of ``names`` that say the matrix is stored as packed integers."""
    return _matching(matrix, names, _PACKED)


def known_parts(matrix: Matrix) -> str:
    """Return the known names, for messages."""
    return ", ".join(_KNOWN[matrix])


def ties_matrices(config: Mapping[str, Any] | None) -> bool | None:
    """Whether a model's two matrices are one by its ``config.json``, None if there is none.

    The text part of a model for several media decides together with the whole: files of such
    models say it in either place. Where nothing is said, the family's default counts.
    """
    if config is None:
        return None
    parts = [config, *(config[name] for name in _TEXT_PARTS if isinstance(config.get(name), dict))]
    said = [part["tie_word_embeddings"] for part in parts if "tie_word_embeddings" in part]
    if said:
        return any(said)
    families = [part["model_type"] for part in parts if "model_type" in part]
    return not families or families[-1] not in UNTIED_BY_DEFAULT


def _matching(matrix: Matrix, names: Iterable[str], endings: Iterable[str]) -> list[str]:
    # `output` alone is also what many a block calls its last layer.
    known = "|".join(part for part in _KNOWN[matrix] if part != "output")
    head = r"|(?:model\.|_orig_mod\.)*output" if matrix == "output" else ""
    ending = "|".join(map(re.escape, endings))
    pattern = re.compile(rf"(?:(?:[A-Za-z_]\w*\.)*(?:{known}){head})\.(?:{ending})")
    return [name for name in names if pattern.fullmatch(name)]
