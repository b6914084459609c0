"""The public functions that take a language model: right arguments, and what they refuse."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from transformers import PreTrainedModel

from tests.adversarial.bad_values import (
    anything_but,
    choice,
    draws,
    flag,
    integer,
    integers,
    names,
    number,
    numbers,
    seed,
    text,
)
from tests.adversarial.constructor_calls import PATHS as ANY_PATHS
from tests.adversarial.constructor_calls import optional
from tests.adversarial.functional_calls import WIDE_RANKS, Call
from tests.lm.tiny_models import TEXTS, tiny_model, tiny_tokenizer
from toolkit.data.labelled_texts import LabelledTexts
from toolkit.lm.reading.hidden_states import hidden_states
from toolkit.lm.reading.tokenizers import load_tokenizer
from toolkit.lm.weights.embedding import read_embedding
from toolkit.measure import measure
from toolkit.measures import MEASURES, Subject


@cache
def model() -> PreTrainedModel:
    """Built once: no call changes it."""
    return tiny_model()


def labelled() -> LabelledTexts:
    """A few texts of two classes."""
    labels = torch.arange(len(TEXTS)) % 2
    train = [f"{text} cat" for text in TEXTS]
    return LabelledTexts(train, labels, list(TEXTS), labels, ("a", "b"), "by hand", 0)


@cache
def subject() -> Subject:
    """Its texts have been read once."""
    return Subject(model(), tiny_tokenizer(), labelled())


_MODEL = anything_but(model, torch.nn.Linear(2, 2))
_TOKENIZER = anything_but(tiny_tokenizer)
_TEXTS = anything_but(lambda: list(TEXTS), [], [1], {"a"})
PATHS = ANY_PATHS._replace(right=lambda: {"blocks": "gpt_neox.layers"})
_LAYERS = names(["final"], optional=True).refusing(unknown=["layer_99"])
_ENCODING: Call = {
    "pooling": choice("last"),
    "max_length": integer(4),
    "skip_first": flag(),
    "batch_size": integer(2),
}
_LOSSES = optional(anything_but(lambda: None))
_SUBJECT = anything_but(subject)

CALLS: dict[str, tuple[Callable[..., Any], Call]] = {
    "measure": (
        measure,
        {
            "model": _MODEL,
            "tokenizer": optional(_TOKENIZER),
            "texts": optional(_TEXTS),
            "metrics": names(["epsilon"], optional=True).refusing(
                unknown=["nope"],
                options={"epsilon": 5},
                option={"epsilon": {"nope": 1}},
            ),
            "layers": _LAYERS,
            "rows": choice("all"),
            "paths": PATHS,
            "step": integer(0, 0),
            **_ENCODING,
        },
    ),
    "hidden_states": (
        hidden_states,
        {
            "model": _MODEL,
            "tokenizer": _TOKENIZER,
            "texts": _TEXTS,
            "layers": _LAYERS,
            "paths": PATHS,
            "progress": flag(),
            "losses": _LOSSES,
            **_ENCODING,
        },
    ),
    "Subject": (
        Subject,
        {
            "model": _MODEL,
            "tokenizer": optional(_TOKENIZER),
            "texts": optional(_TEXTS),
            "layers": _LAYERS,
            "rows": choice("all"),
            "paths": PATHS,
            "losses": _LOSSES,
            "encoding": optional(
                anything_but(lambda: {"max_length": 4, "progress": True}, {"nope": 1})
            ),
        },
    ),
    "epsilon": (MEASURES["epsilon"], {"subject": _SUBJECT, "num_sigma": number(2.0, bad=(-1,))}),
    "pga": (
        MEASURES["pga"],
        {
            "subject": _SUBJECT,
            "k": integer(2, optional=True).refusing(above=10**6),
            "num_null": draws(2, 2),
            "remove": integers([0], 0, single=True).refusing(twice=[1, 1], all=10**6),
            "seed": seed(),
            "center_unembedding": flag(),
            "fold_norm": flag(),
        },
    ),
    "probe": (
        MEASURES["probe"],
        {"subject": _SUBJECT, "l2": numbers([0.1]), "max_iter": integer(5)},
    ),
    "spectrum": (MEASURES["spectrum"], {"subject": _SUBJECT, "fit_range": WIDE_RANKS}),
    "two_nn": (
        MEASURES["two_nn"],
        {"subject": _SUBJECT, "discarded_share": number(0.2, bad=(0, 1, -0.1, 1.5))},
    ),
    "unembedding": (MEASURES["unembedding"], {"subject": _SUBJECT}),
}
# Right arguments would take a file.
FILES: dict[str, tuple[Callable[..., Any], Call]] = {
    "read_embedding": (
        read_embedding,
        {
            "source": text("folder"),
            "matrix": choice("input"),
            "tensor_name": text("wte", optional=True),
            "revision": text("main", optional=True),
            "allow_pickle": flag(),
            "num_rows": integer(2, optional=True),
        },
    ),
    "load_tokenizer": (
        load_tokenizer,
        {"name": text("folder"), "revision": text("main", optional=True)},
    ),
}
TABLE = {name: arguments for name, (_, arguments) in {**CALLS, **FILES}.items()}
