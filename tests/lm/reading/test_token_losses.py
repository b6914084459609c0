"""Losses that come from the pass of the hidden states are those of the model itself."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.lm.tiny_models import (
    _GATED,
    FAMILY_NAMES,
    NUM_ROWS,
    TEXTS,
    _causal,
    tiny_model,
    tiny_tokenizer,
)
from toolkit.lm.reading import token_losses
from toolkit.lm.reading.hidden_states import hidden_states
from toolkit.lm.reading.token_losses import LossMeter

# Heads that scale what they read or write, beside Gemma's soft-capping among the families.
SCALED: dict[str, tuple[str, dict[str, Any]]] = {
    "cohere": ("Cohere", _GATED | {"logit_scale": 0.3}),
    "granite": ("Granite", _GATED | {"logits_scaling": 3.0}),
    "gemma2_uncapped": ("Gemma2", _GATED | {"head_dim": 8, "final_logit_softcapping": None}),
}
UNKNOWN = ("cohere", "granite")
PATHS = {"blocks": "model.layers", "final_norm": "model.norm"}


def model_of(name: str) -> Any:
    if name not in SCALED:
        return tiny_model(name)
    torch.manual_seed(0)
    model = _causal(*SCALED[name])()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model.eval()


def own_loss(model: Any, texts: tuple[str, ...]) -> float:
    """The mean over all predicted tokens by the model's own logits, one text at a time."""
    total, count = 0.0, 0
    for text in texts:
        ids = torch.tensor([tiny_tokenizer()(text)["input_ids"]])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, :-1].double()
        total += float(F.cross_entropy(logits, ids[0, 1:], reduction="sum")) if len(logits) else 0
        count += len(logits)
    return total / count


@pytest.fixture
def separable(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each check has found the head to be enough."""
    found: list[bool] = []
    plain = LossMeter._is_separable

    def check(self: LossMeter, *args: Any) -> bool:
        found.append(plain(self, *args))
        return found[-1]

    monkeypatch.setattr(LossMeter, "_is_separable", check)
    return found


@pytest.mark.parametrize("name", [*FAMILY_NAMES, *SCALED, "phi3_longrope", "llama_dynamic"])
@pytest.mark.parametrize("chunk", [3, None])
def test_the_loss_of_the_same_pass_is_the_models_own(
    name: str, chunk: int | None, separable: list[bool]
) -> None:
    model = model_of(name)
    meter = LossMeter(model, chunk=chunk)
    options: dict[str, Any] = {"batch_size": 4, "paths": PATHS if name in UNKNOWN else None}
    with_loss = hidden_states(model, tiny_tokenizer(), TEXTS, losses=meter, **options)
    assert meter.complete
    assert meter.mean == pytest.approx(own_loss(model, TEXTS), rel=1e-5)
    assert set(separable) == {True}
    # The hidden states are the same to the last bit.
    without = hidden_states(model, tiny_tokenizer(), TEXTS, **options)
    assert all(torch.equal(without[layer], with_loss[layer]) for layer in without)
    assert not any(m._forward_hooks for m in model.modules())


def test_no_logits_of_a_whole_batch_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = tiny_model()
    sizes: list[int] = []
    model.get_output_embeddings().register_forward_hook(
        lambda _module, _args, output: sizes.append(output.numel() // NUM_ROWS)
    )
    hidden_states(model, tiny_tokenizer(), TEXTS, losses=LossMeter(model, chunk=8))
    # All tokens but each text's first are predicted; the longest text is checked once.
    predicted = sum(len(tiny_tokenizer()(text)["input_ids"]) - 1 for text in TEXTS)
    longest = max(len(tiny_tokenizer()(text)["input_ids"]) for text in TEXTS)
    assert max(sizes) == longest
    assert sum(sizes) == predicted + longest + (longest - 1)
    assert sorted(sizes)[-3] <= 8


@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model, "forward", _scaled_forward(model)),
        lambda model: setattr(model, "forward", _counting_forward(model)),
    ],
    ids=["another loss", "refuses"],
)
def test_a_head_that_is_not_enough_falls_back_to_the_models_own_logits(
    change: Callable[[Any], None], separable: list[bool]
) -> None:
    model: Any = tiny_model()
    change(model)
    meter = LossMeter(model)
    hidden_states(model, tiny_tokenizer(), TEXTS, losses=meter)
    assert set(separable) == {False}
    assert meter.mean == pytest.approx(own_loss(model, TEXTS), rel=1e-5)


def _scaled_forward(model: Any) -> Callable[..., Any]:
    """Logits that depend on the tokens, too, which a head alone does not see."""
    plain = model.forward

    def forward(input_ids: Tensor, **options: Any) -> Any:
        output = plain(input_ids=input_ids, **options)
        output.logits = output.logits * (1 + input_ids[..., None] / 10)
        return output

    return forward


def _counting_forward(model: Any) -> Callable[..., Any]:
    plain = model.forward

    def forward(input_ids: Tensor, **options: Any) -> Any:
        if not input_ids.any():
            raise ValueError("no text is all zeros")
        return plain(input_ids=input_ids, **options)

    return forward


def test_batches_of_ones_own_are_read_by_the_body_alone(separable: list[bool]) -> None:
    model: Any = tiny_model()
    ids = torch.tensor([[3, 5, 7, 4], [6, 4, 0, 0]])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
        "labels": torch.tensor([[3, 5, -100, 4], [6, 4, 0, 0]]),
    }
    with torch.no_grad():
        losses = LossMeter(model, chunk=1).read(inputs)
        logits = model(input_ids=ids, attention_mask=inputs["attention_mask"]).logits
    wanted = [
        F.cross_entropy(logits[row, place], ids[row, place + 1])
        for row, place in ((0, 0), (0, 2), (1, 0))
    ]
    torch.testing.assert_close(losses, torch.stack(wanted))
    assert separable == [True]


def test_nothing_to_predict_has_no_loss() -> None:
    model = tiny_model()
    meter = LossMeter(model)
    hidden_states(model, tiny_tokenizer(), ["dog", "cat"], losses=meter)
    assert meter.complete
    assert str(meter.mean) == "nan"


def test_a_pass_that_fails_is_not_complete() -> None:
    model: Any = tiny_model()
    meter = LossMeter(model)
    hidden_states(model, tiny_tokenizer(), TEXTS, losses=meter)
    model.gpt_neox.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        hidden_states(model, tiny_tokenizer(), TEXTS, losses=meter)
    assert not meter.complete


def test_half_precision_is_compared_at_its_own_rounding(separable: list[bool]) -> None:
    model: Any = tiny_model("gemma2").to(torch.bfloat16)  # type: ignore[arg-type]
    meter = LossMeter(model)
    hidden_states(model, tiny_tokenizer(), TEXTS, losses=meter)
    assert set(separable) == {True}
    assert meter.mean == pytest.approx(own_loss(model, TEXTS), rel=1e-2)


def test_the_default_chunk_follows_from_the_vocabulary() -> None:
    assert LossMeter(tiny_model())._chunk == token_losses._LOGITS_AT_ONCE // NUM_ROWS
