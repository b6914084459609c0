"""The pass itself: what is hooked and run, and that nothing of it stays behind."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.modeling_outputs import CausalLMOutput

from tests.lm.tiny_models import DIM, NUM_BLOCKS, NUM_ROWS, TEXTS, tiny_model, tiny_tokenizer
from toolkit.lm.reading.hidden_states import hidden_states, layer_names

NAMES = layer_names(NUM_BLOCKS)


class Unknown(transformers.PreTrainedModel):  # type: ignore[no-untyped-call]
    """A model of a user's own: the body is not separate, and the head scales what it gets."""

    config_class = transformers.PretrainedConfig

    def __init__(self, *, run: str = "stack") -> None:
        super().__init__(transformers.PretrainedConfig())
        self.read_in = nn.Embedding(NUM_ROWS, DIM)
        self.stack = nn.ModuleList([nn.Linear(DIM, DIM) for _ in range(2)])
        self.idle = nn.ModuleList([nn.Linear(DIM, DIM)])
        self.read_out = nn.Linear(DIM, NUM_ROWS)
        self.run = run
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, input_ids: Tensor) -> CausalLMOutput:
        hidden = self.read_in(input_ids)
        for block in getattr(self, self.run):
            hidden = hidden + block(hidden).tanh()
        return CausalLMOutput(logits=self.read_out(hidden / 4))

    def _init_weights(self, module: nn.Module) -> None:
        for parameter in module.parameters(recurse=False):
            nn.init.normal_(parameter)


PATHS = {"embedding": "read_in", "blocks": "stack", "unembedding": "read_out"}


def no_hooks(model: nn.Module) -> bool:
    return not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_unknown_family_runs_whole_and_final_is_what_the_head_multiplies() -> None:
    model = Unknown()
    states = hidden_states(model, tiny_tokenizer(), ["cat dog", "cat"], paths=PATHS)
    assert list(states) == ["layer_00", "layer_01", "layer_02", "final"]
    ids = torch.tensor([tiny_tokenizer()("cat dog")["input_ids"]])
    with torch.no_grad():
        entered = model.read_in(ids)[0, -1]
        logits = model(ids).logits[0, -1]
    torch.testing.assert_close(states["layer_00"][0], entered)
    torch.testing.assert_close(states["layer_01"][0], model.stack[0](entered).detach())
    torch.testing.assert_close(model.read_out(states["final"][0]).detach(), logits)


def test_a_layer_that_is_not_run_is_an_error() -> None:
    model = Unknown()
    with pytest.raises(ValueError, match=r"layer_00, layer_01: expected a pass .* got none"):
        hidden_states(model, tiny_tokenizer(), TEXTS, paths=PATHS | {"blocks": "idle"})
    assert no_hooks(model)


def test_a_layer_that_is_run_twice_is_an_error() -> None:
    model = Unknown()
    model.stack = nn.ModuleList([model.stack[0], model.stack[0]])
    with pytest.raises(ValueError, match="layer_00: expected one pass through it, got two"):
        hidden_states(model, tiny_tokenizer(), TEXTS, paths=PATHS)
    assert no_hooks(model)


def test_a_module_without_hidden_states_is_an_error() -> None:
    paths = PATHS | {"unembedding": "read_in"}
    with pytest.raises(ValueError, match=r"final: .* shape \(\d+, \d+, d\), got \(\d+, \d+\)"):
        hidden_states(Unknown(), tiny_tokenizer(), TEXTS, paths=paths, layers=["final"])


def test_one_pass_per_batch_without_logits_and_only_the_layers_asked_for() -> None:
    model: Any = tiny_model()
    hooked: list[set[str]] = []
    heads: list[nn.Module] = []

    def look(*_: object) -> None:
        modules = model.gpt_neox.layers.named_modules()
        hooked.append({name for name, m in modules if m._forward_hooks or m._forward_pre_hooks})

    model.gpt_neox.embed_in.register_forward_hook(look)
    model.get_output_embeddings().register_forward_hook(lambda head, *_: heads.append(head))
    states = hidden_states(model, tiny_tokenizer(), TEXTS, batch_size=4, layers=["layer_02"])
    assert list(states) == ["layer_02"]
    # Three batches, and before them a text alone and in a batch, which is to be the same.
    assert hooked == [{"1"}] * (2 + 3)
    assert not heads


def test_everything_is_restored_after_an_exception() -> None:
    model: Any = tiny_model().train()
    model.gpt_neox.layers[1].eval()
    flags = [module.training for module in model.modules()]
    assert no_hooks(model)

    def fail(*_: object) -> None:
        raise RuntimeError("from a block")

    handle = model.gpt_neox.layers[2].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="from a block"):
        hidden_states(model, tiny_tokenizer(), TEXTS)
    handle.remove()
    assert no_hooks(model)
    assert [module.training for module in model.modules()] == flags
    assert torch.is_grad_enabled()


def refusing_backend(*_: object) -> Any:
    raise AssertionError("it was compiled")


def compiled_outside(model: Any) -> Any:
    return torch.compile(model, backend=refusing_backend)


def compiled_inside(model: Any) -> Any:
    model.compile(backend=refusing_backend)
    model.base_model.compile(backend=refusing_backend)
    return model


def compiled_blocks(model: Any) -> Any:
    blocks = model.gpt_neox.layers
    for index, block in enumerate(blocks):
        blocks[index] = torch.compile(block, backend=refusing_backend)
    return model


def compiled_and_used(model: Any) -> Any:
    model.base_model.compile(backend="eager")
    model.base_model(torch.tensor([[3, 4]]))
    return model


@pytest.mark.parametrize(
    "compiled", [compiled_outside, compiled_inside, compiled_blocks, compiled_and_used]
)
def test_a_compiled_model_runs_eagerly(compiled: Any) -> None:
    expected = hidden_states(tiny_model(), tiny_tokenizer(), TEXTS)
    states = hidden_states(compiled(tiny_model()), tiny_tokenizer(), TEXTS)
    assert all(torch.equal(states[layer], expected[layer]) for layer in NAMES)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"output_hidden_states": True}, id="states"),
        pytest.param({"output_attentions": True}, id="attentions"),
        pytest.param({"return_dict": False}, id="tuples"),
        pytest.param({"use_cache": True}, id="cache"),
    ],
)
def test_settings_of_the_configuration_change_nothing(change: dict[str, bool]) -> None:
    expected = hidden_states(tiny_model(), tiny_tokenizer(), TEXTS)
    model: Any = tiny_model()
    model.config._attn_implementation = "eager"
    for name, value in change.items():
        setattr(model.config, name, value)
    states = hidden_states(model, tiny_tokenizer(), TEXTS)
    for layer in NAMES:
        torch.testing.assert_close(states[layer], expected[layer], atol=1e-5, rtol=1e-5)


def test_what_is_measured_under_inference_mode_and_autocast_is_plain_float32() -> None:
    model = tiny_model()
    expected = hidden_states(model, tiny_tokenizer(), TEXTS)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        states = hidden_states(model, tiny_tokenizer(), TEXTS)
    for layer in NAMES:
        assert torch.equal(states[layer], expected[layer])
        assert not states[layer].is_inference()
        assert not states[layer].requires_grad


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [pytest.param(0.0, True, id="long"), pytest.param(60.0, False, id="short")],
)
def test_the_bar_shows_only_when_it_takes_long(
    seconds: float, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("toolkit.console.bar._SECONDS_BEFORE_IT_SHOWS", seconds)
    with pytest.MonkeyPatch.context() as environment:
        # Makes rich take the captured stream for a terminal.
        environment.setenv("FORCE_COLOR", "1")
        hidden_states(tiny_model(), tiny_tokenizer(), TEXTS, batch_size=2, progress=True)
    output = capsys.readouterr()
    assert output.out == ""
    assert ("texts" in output.err) == shown


def test_no_bar_in_a_file_or_unasked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("toolkit.console.bar._SECONDS_BEFORE_IT_SHOWS", 0.0)
    hidden_states(tiny_model(), tiny_tokenizer(), TEXTS, progress=True)
    hidden_states(tiny_model(), tiny_tokenizer(), TEXTS)
    assert capsys.readouterr() == ("", "")
