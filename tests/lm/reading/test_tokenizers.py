"""What a text becomes: special tokens, empty texts, and the tokenizer left as it was."""

import logging
from typing import Any

import pytest
import torch
from tokenizers import processors
from transformers import ByT5Tokenizer

from tests.lm.tiny_models import NUM_BLOCKS, TEXTS, VOCABULARY, tiny_model, tiny_tokenizer
from toolkit.lm.reading.hidden_states import hidden_states, layer_names
from toolkit.lm.reading.tokenizers import token_ids

END, BEGIN = VOCABULARY.index("<end>"), VOCABULARY.index("<begin>")
CAT, DOG = VOCABULARY.index("cat"), VOCABULARY.index("dog")


@pytest.mark.parametrize(
    ("bos", "text", "expected"),
    [
        pytest.param(False, "cat dog", [CAT, DOG], id="none wanted"),
        pytest.param(True, "cat dog", [BEGIN, CAT, DOG], id="added"),
        pytest.param(True, "<begin> cat dog", [BEGIN, CAT, DOG], id="not doubled"),
        pytest.param(False, "<begin> cat", [BEGIN, CAT], id="the text's own"),
        pytest.param(True, "", [BEGIN], id="alone"),
        pytest.param(False, "cat <end>", [CAT, END], id="padding's id"),
        pytest.param(True, "cat dog cat dog cat", [BEGIN, CAT, DOG, CAT], id="cut"),
    ],
)
def test_special_tokens_are_those_the_tokenizer_adds(
    bos: bool, text: str, expected: list[int]
) -> None:
    assert token_ids(tiny_tokenizer(bos=bos), [text], max_length=4) == [expected]


@pytest.mark.parametrize("pad", ["<end>", None])
def test_the_tokenizer_is_left_as_it_was_and_does_not_warn(
    pad: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer: Any = tiny_tokenizer(padding_side="left", pad=pad)
    tokenizer.backend_tokenizer.enable_truncation(5, strategy="only_first", direction="left")
    tokenizer.backend_tokenizer.enable_padding(length=7, pad_id=3, pad_token="cat")
    before = tokenizer.backend_tokenizer.to_str(), tokenizer.padding_side, tokenizer.truncation_side
    # transformers keeps its messages from other loggers' handlers.
    root = logging.getLogger("transformers")
    root.addHandler(caplog.handler)
    long = " ".join(["cat"] * 100)
    ids = token_ids(tokenizer, [long, "dog"], max_length=90)
    root.removeHandler(caplog.handler)
    assert [len(one) for one in ids] == [90, 1]
    after = tokenizer.backend_tokenizer.to_str(), tokenizer.padding_side, tokenizer.truncation_side
    assert after == before
    assert not caplog.records


def test_a_tokenizer_written_in_python_serves_as_well() -> None:
    # Its ids are bytes after three special tokens, of which it adds the end.
    ids = token_ids(ByT5Tokenizer(), ["ab"], max_length=8)
    assert ids == [[ord("a") + 3, ord("b") + 3, 1]]


def test_the_end_is_kept_by_a_tokenizer_that_cuts_the_start() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.truncation_side = "left"
    assert token_ids(tokenizer, ["cat cat dog"], max_length=2) == [[CAT, DOG]]


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        pytest.param("cat", TypeError, "texts: expected a list of strings", id="one string"),
        pytest.param([b"cat"], TypeError, "texts: expected a list of strings", id="bytes"),
        pytest.param([], ValueError, "texts: expected at least one text, got none", id="none"),
        pytest.param(
            ["dog", "", "cat", " "], ValueError, r"got 0 in text 1 \(2 such texts\)", id="empty"
        ),
    ],
)
def test_refuses_what_is_no_text(texts: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        hidden_states(tiny_model(), tiny_tokenizer(), texts)


def test_refuses_fewer_tokens_than_the_special_ones() -> None:
    tokenizer: Any = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<begin> $A <end>", special_tokens=[("<begin>", BEGIN), ("<end>", END)]
    )
    assert token_ids(tokenizer, ["cat dog cat"], max_length=3) == [[BEGIN, CAT, END]]
    with pytest.raises(ValueError, match="max_length: expected room for the special tokens"):
        token_ids(tokenizer, ["cat dog cat"], max_length=1)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_skip_first_pools_the_others_only(pooling: Any) -> None:
    model, tokenizer = tiny_model("gemma2"), tiny_tokenizer(bos=True)
    every = hidden_states(model, tokenizer, TEXTS, pooling="mean")
    first = hidden_states(model, tokenizer, [""], pooling="mean")
    skipped = hidden_states(model, tokenizer, TEXTS, pooling=pooling, skip_first=True)
    for layer in layer_names(NUM_BLOCKS):
        if pooling == "last":
            expected = hidden_states(model, tokenizer, TEXTS, layers=[layer])[layer]
        else:
            counts = torch.tensor([len(text.split()) + 1.0 for text in TEXTS])[:, None]
            expected = (every[layer] * counts - first[layer]) / (counts - 1)
        torch.testing.assert_close(skipped[layer], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_skip_first_needs_a_second_token(pooling: Any) -> None:
    texts = ["cat dog", "cat"]
    with pytest.raises(ValueError, match=r"at least 2 .* got 1 in text 1"):
        hidden_states(tiny_model(), tiny_tokenizer(), texts, pooling=pooling, skip_first=True)


def test_padding_tokens_inside_a_text_count() -> None:
    """The padding token equals the end token: only the mask tells them apart."""
    model, tokenizer = tiny_model("gpt2"), tiny_tokenizer(padding_side="left")
    texts = ["cat <end>", "<end>", "<end> dog", "cat dog cat dog cat"]
    together = hidden_states(model, tokenizer, texts, pooling="mean")
    for index, text in enumerate(texts):
        alone = hidden_states(model, tokenizer, [text], pooling="mean")
        for layer, vectors in together.items():
            torch.testing.assert_close(vectors[index], alone[layer][0], atol=1e-4, rtol=1e-4)
