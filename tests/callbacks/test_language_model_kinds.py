"""Models that are not plain float32 ones: each works, or is refused in one line."""

import copy
import math
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn

from callbacks import EmbeddingDeviation, MeasurementCallback, Spectrum, SubspacePGA
from tests.callbacks.language import Module, all_callbacks, batches, small_texts
from tests.callbacks.toy import toy_trainer
from tests.lm import tiny_models


def tiny_model() -> Any:
    """Its type would forbid to look inside."""
    return tiny_models.tiny_model().train()


def measured(module: L.LightningModule, *watchers: MeasurementCallback) -> dict[str, float]:
    """What the callbacks find at step 0."""
    toy_trainer(*watchers, max_steps=1).fit(module, batches(num_batches=2))
    return {tag: value for watcher in watchers for tag, value in watcher.history[0].items()}


def quick(tmp_path: Path) -> list[MeasurementCallback]:
    return all_callbacks(small_texts(tmp_path), schedule=[0], on_error="raise")


# One update of Adam in float16 divides zero by its epsilon, which is zero there.
@pytest.mark.filterwarnings("ignore:pga. .* not finite at step 1:UserWarning")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(tmp_path: Path, dtype: torch.dtype) -> None:
    exact = measured(Module(tiny_model()), *quick(tmp_path))
    half = measured(Module(tiny_model().to(dtype)), *quick(tmp_path))
    assert half.keys() == exact.keys()
    for tag in ("spectrum/rankme/final", "epsilon/value/input", "unembedding/norm_mean/output"):
        assert half[tag] == pytest.approx(exact[tag], rel=0.05)
        assert half[tag] != exact[tag]


def test_a_weight_that_turns_nan_costs_points_and_no_exception(tmp_path: Path) -> None:
    class Breaks(Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            if trainer.global_step == 2:
                with torch.no_grad():
                    pl_module.net.gpt_neox.layers[1].mlp.dense_4h_to_h.bias[3] = math.nan

    watchers, module = all_callbacks(small_texts(tmp_path), schedule=1, on_error="raise"), Module()
    with pytest.warns(UserWarning, match=r"^pga: .* values in layer_02, .*not finite at step 2"):
        toy_trainer(Breaks(), *watchers, max_steps=3).fit(module, batches())
    pga = watchers[0].history
    assert len(module.losses) == 3
    assert math.isfinite(pga[1]["pga/z/layer_02"])
    assert math.isfinite(pga[2]["pga/z/layer_01"])
    assert math.isnan(pga[2]["pga/z/layer_02"])
    assert pga[2]["pga/num_nonfinite/layer_02"] > 0
    # One step of training has spread it to every weight.
    assert watchers[1].history[3]["epsilon/num_nonfinite/output"] > 0
    assert math.isnan(watchers[1].history[3]["epsilon/value/output"])


def test_compiled(tmp_path: Path) -> None:
    plain = measured(Module(tiny_model()), *quick(tmp_path))
    wrapped: Any = torch.compile(tiny_model(), backend="eager")
    assert measured(Module(wrapped), *quick(tmp_path)) == plain
    in_place = tiny_model()
    in_place.compile(backend="eager")
    assert measured(Module(in_place), *quick(tmp_path)) == plain


def test_a_model_that_is_built_in_setup(tmp_path: Path) -> None:
    class Late(Module):
        def __init__(self) -> None:
            super().__init__(nn.Identity())
            self.head = nn.Linear(2, 2)

        def configure_model(self) -> None:
            self.net = tiny_model()

    # Other weights than the language model's may be there before.
    assert measured(Late(), *quick(tmp_path)) == measured(Module(tiny_model()), *quick(tmp_path))
    refused = SubspacePGA(texts=small_texts(tmp_path), k=17)
    with pytest.raises(ValueError, match="k: expected at most d = 16"):
        measured(Late(), refused)


def test_a_model_without_weights_is_refused() -> None:
    with torch.device("meta"):
        module = Module(tiny_models.tiny_model())
    watcher = EmbeddingDeviation()
    # By hand: the Trainer's own clean-up fails on such a model, whatever ended the run.
    with pytest.raises(ValueError, match="meta") as caught:
        watcher.setup(toy_trainer(watcher), module, "fit")
    assert "\n" not in str(caught.value)


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    module = Module(tiny_model())
    codes = torch.zeros(24, 16, dtype=torch.int8)
    module.net.gpt_neox.layers[0].mlp.dense_h_to_4h.weight = nn.Parameter(
        codes, requires_grad=False
    )
    with pytest.raises(ValueError, match="int8") as caught:
        measured(module, Spectrum(texts=small_texts(tmp_path)))
    assert "\n" not in str(caught.value)


# PEFT asks the model by a name of older versions.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_adapted(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.LoraConfig(target_modules=["query_key_value"], r=2, init_lora_weights=False)
    torch.manual_seed(0)
    adapted = peft.get_peft_model(tiny_model(), config)
    whole = copy.deepcopy(adapted).merge_and_unload().train().requires_grad_()
    found = measured(Module(adapted), *quick(tmp_path))
    plain = measured(Module(tiny_model()), *quick(tmp_path))
    merged = measured(Module(whole), *quick(tmp_path))
    assert found.keys() == plain.keys()
    # The adapters count in the hidden states, the matrices are the model's own.
    assert found["epsilon/value/input"] == plain["epsilon/value/input"]
    assert found["spectrum/rankme/final"] != pytest.approx(plain["spectrum/rankme/final"], rel=1e-4)
    assert found["spectrum/rankme/final"] == pytest.approx(
        merged["spectrum/rankme/final"], rel=1e-3
    )


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("number", range(6), ids=lambda number: f"callback {number}")
def test_a_matrix_under_an_adapter_is_refused_before_the_first_step(
    tmp_path: Path, number: int
) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.LoraConfig(target_modules=["embed_in"], r=2)
    module = Module(peft.get_peft_model(tiny_model(), config))
    watcher = all_callbacks(small_texts(tmp_path), schedule=[0])[number]
    with pytest.raises(ValueError, match="matrix with an adapter on it; merge it first") as caught:
        measured(module, watcher)
    assert "\n" not in str(caught.value)
    assert not module.losses
