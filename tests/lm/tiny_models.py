"""Tiny language models with random weights and a small tokenizer, both built in code."""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedModel, PreTrainedTokenizerFast

NOUNS = ("cat", "dog", "mat", "tree", "river", "stone")
OTHERS = ("the", "a", "one", "two", "sat", "ran", "slept", "on", "under", "near", "and", "then")
SPECIAL = ("<end>", "<begin>", "<unknown>")
VOCABULARY = (*SPECIAL, *NOUNS, *OTHERS)
# More rows than the tokenizer has tokens, as in the published models.
NUM_ROWS = 32
# A width for residual streams and another for what is not, so that a mix-up shows.
DIM, NUM_BLOCKS = 16, 3

TEXTS = (
    "the cat sat on the mat",
    "dog",
    "one dog ran under a tree and then slept near the river",
    "two",
    "a stone and a river",
    "then the cat slept",
    "near the tree one cat and two dog sat on a stone and then ran under the mat near a river",
    "cat dog cat",
    "mat",
    "the the the the the",
)


def tiny_tokenizer(
    *, padding_side: str = "right", bos: bool = False, pad: str | None = "<end>"
) -> PreTrainedTokenizerFast:
    """A word-level tokenizer whose padding token is by default its end token.

    Args:
        padding_side: ``right`` or ``left``.
        bos: Whether it puts its first token before each text.
        pad: The padding token, or None.
    """
    vocabulary = {word: index for index, word in enumerate(VOCABULARY)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s+"), behavior="removed")
    if bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<begin> $A",
            pair="<begin> $A $B",
            special_tokens=[("<begin>", vocabulary["<begin>"])],
        )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        bos_token="<begin>",
        eos_token="<end>",
        unk_token="<unknown>",
        pad_token=pad,
        padding_side=padding_side,
        model_max_length=64,
    )


_SIZES = {
    "vocab_size": NUM_ROWS,
    "hidden_size": DIM,
    "num_hidden_layers": NUM_BLOCKS,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 0,
}
_GATED = _SIZES | {"intermediate_size": 24, "num_key_value_heads": 1}
_GEMMA = _GATED | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 8}
_OPT = _SIZES | {"ffn_dim": 24, "word_embed_proj_dim": DIM}


def _gemma3_with_images() -> PreTrainedModel:
    """A vision-language model: the text model sits inside it."""
    vision = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 8,
        "patch_size": 4,
    }
    config = transformers.Gemma3Config(
        text_config=_GEMMA | {"layer_types": None},
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=NUM_ROWS - 1,
        boi_token_index=NUM_ROWS - 2,
        eoi_token_index=NUM_ROWS - 3,
    )
    return transformers.Gemma3ForConditionalGeneration(config)


def _causal(name: str, sizes: dict[str, Any]) -> Callable[[], Any]:
    def build() -> Any:
        config = getattr(transformers, f"{name}Config")(**sizes)
        return transformers.AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]

    return build


_BUILDERS: dict[str, Callable[[], Any]] = {
    "gpt_neox": _causal("GPTNeoX", _SIZES | {"intermediate_size": 24}),
    "gpt2": _causal("GPT2", _SIZES),
    "opt": _causal("OPT", _OPT),
    "opt_projected": _causal("OPT", _OPT | {"word_embed_proj_dim": 12}),
    "opt_post_norm": _causal(
        "OPT", _OPT | {"word_embed_proj_dim": 12, "do_layer_norm_before": False}
    ),
    "llama": _causal("Llama", _GATED),
    "mistral": _causal("Mistral", _GATED | {"sliding_window": 8}),
    "qwen2": _causal("Qwen2", _GATED),
    "qwen3": _causal("Qwen3", _GATED | {"head_dim": 8}),
    "gemma": _causal("Gemma", _GATED | {"head_dim": 8}),
    "gemma2": _causal("Gemma2", _GEMMA | {"final_logit_softcapping": 0.5}),
    "gemma3": _causal("Gemma3Text", _GEMMA),
    "gemma3_with_images": _gemma3_with_images,
    "olmo": _causal("Olmo", _GATED),
    "olmo2": _causal("Olmo2", _GATED),
    "phi": _causal("Phi", _SIZES | {"intermediate_size": 24}),
    "phi3": _causal("Phi3", _GATED),
}
FAMILY_NAMES = tuple(_BUILDERS)

_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0, 3.0, 2.0, 8.0],
    "factor": 8.0,
    "original_max_position_embeddings": 8,
}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 8.0}
# The frequencies of their position encoding follow from the longest text of a batch.
_BUILDERS |= {
    "phi3_longrope": _causal(
        "Phi3", _GATED | {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 8}
    ),
    "llama_dynamic": _causal(
        "Llama", _GATED | {"rope_parameters": _DYNAMIC, "max_position_embeddings": 6}
    ),
}


# Families that the table leaves to the user's paths: the body's name, and the final norm's in it.
OTHER_FAMILY_PATHS = {
    "nemotron": ("model", "norm"),
    "qwen3_5_text": ("model", "norm"),
    "qwen3_next": ("model", "norm"),
    "recurrent_gemma": ("model", "final_norm"),
    "vaultgemma": ("model", "norm"),
}
OTHER_FAMILY_NAMES = tuple(OTHER_FAMILY_PATHS)
_LINEAR_ATTENTION = {
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "head_dim": 8,
}
_EXPERTS = {
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
}
_OTHER_SIZES: dict[str, dict[str, Any]] = {
    "nemotron": _GATED,
    "qwen3_5_text": _GATED | _LINEAR_ATTENTION,
    "qwen3_next": _GATED | _LINEAR_ATTENTION | _EXPERTS,
    "recurrent_gemma": _GATED | {"lru_width": DIM, "attention_window_size": 8},
    "vaultgemma": _GEMMA,
}


def other_family(name: str) -> PreTrainedModel | None:
    """A random model of a family that is not in the table, None if transformers lacks it."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if name not in CONFIG_MAPPING:
        return None
    config = CONFIG_MAPPING[name](**_OTHER_SIZES[name])
    return _random(lambda: transformers.AutoModelForCausalLM.from_config(config))  # type: ignore[no-untyped-call]


def tiny_model(name: str = "gpt_neox", *, seed: int = 0) -> PreTrainedModel:
    """A model of that family with `NUM_BLOCKS` blocks and `NUM_ROWS` rows, in eval mode.

    Every weight is random, gains and biases too: their usual start hides a part that is left out.
    The global generator is left as it was.
    """
    return _random(_BUILDERS[name], seed=seed)


def _random(build: Callable[[], Any], *, seed: int = 0) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = build()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    model.train(False)
    return model
