"""A Hugging Face causal language model, trained from scratch or from published weights."""

from collections.abc import Mapping
from math import nan
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from toolkit.functional._checks import (
    at_most,
    finite,
    one_of,
    optional,
    positive,
    valid_text,
)
from toolkit.lightning_private import trainer_of
from toolkit.lm.reading.batches import num_positions
from toolkit.lm.reading.token_losses import NOT_PREDICTED, labels_of
from toolkit.lm.weights.names import rename_weights
from toolkit.lm.weights.vocabulary import tokenizer_rows
from toolkit.models.scheduled import ScheduledModule
from toolkit.runs.identity import WeightsIdentity

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_SOURCE = "weights_source"


class LanguageModel(ScheduledModule):
    """Trains a causal language model to predict the next token.

    Logs ``lm/loss`` (nats per token), ``lm/perplexity`` and the same under ``lm_val`` and
    ``lm_test``, at the step whose weights they belong to. The training loss is that of one batch
    on one process, before the update. Checkpoints hold the whole configuration, so that they load
    without network.

    Args:
        config: Configuration of a model with random weights: ``model_type`` and any settings that
            type has. Where ``vocab_size`` is missing, the data module's tokenizer gives it.
        pretrained: Instead of ``config``: folder of a model, or its name on the Hub, whose weights
            training starts from.
        revision: Branch, tag or commit of ``pretrained`` on the Hub.
        dtype: Of the weights; the loss is always computed in float32.
        lr: Learning rate.
        betas: Decay rates of Adam's moments.
        weight_decay: Decoupled, on matrices alone.
        warmup_fraction: Share of the run with linear warm-up; then a cosine follows.
        lr_floor: Where the cosine ends, as a share of the learning rate.
        optimizer: Replaces AdamW with its lr, betas and decay; the schedule stays.

    Attributes:
        model: The language model; it exists from the start, or from ``configure_model`` on if the
            data module's tokenizer decides its size.
        tokenizer: Its tokenizer, None where it is not known.
        source: Where its first weights come from, None for random ones.
        on_bar: Values of the last batch for the progress bar, by name.

    Raises:
        ValueError: If a number is out of range, or the model cannot be loaded.
    """

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase | None"
    source: WeightsIdentity | None

    def __init__(
        self,
        config: dict[str, Any] | None = None,
        *,
        pretrained: str | None = None,
        revision: str | None = None,
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.1,
        warmup_fraction: float = 0.1,
        lr_floor: float = 0.1,
        optimizer: OptimizerCallable | None = None,
    ) -> None:
        super().__init__(
            betas=betas, warmup_fraction=warmup_fraction, lr_floor=lr_floor, optimizer=optimizer
        )
        _check_origin(config, pretrained, revision)
        one_of("dtype", dtype, "float32", "bfloat16", "float16")
        self.config = config
        self.weights_dtype: torch.dtype = getattr(torch, dtype)
        self.lr = positive("lr", lr)
        self.weight_decay = finite("weight_decay", weight_decay)
        self.save_hyperparameters(ignore=["optimizer"])
        self.tokenizer = None
        self.source = None
        self._loss_sum, self._num_predicted = 0.0, 0
        if pretrained is not None:
            self._load(pretrained, revision)
        elif config is not None and "vocab_size" in config:
            self._build(config)

    @property
    def is_built(self) -> bool:
        """Whether the language model exists."""
        return "model" in self._modules

    @override
    def setup(self, stage: str) -> None:
        if self.tokenizer is None:
            self.tokenizer = getattr(_data_module(self), "tokenizer", None)

    @override
    def configure_model(self) -> None:
        if not self.is_built:
            if self.tokenizer is None:
                raise ValueError(
                    "config: expected vocab_size, or a data module with a tokenizer that tells it, "
                    "got neither"
                )
            rows = tokenizer_rows(self.tokenizer)
            special = {
                name: getattr(self.tokenizer, name) for name in ("bos_token_id", "eos_token_id")
            }
            self._build({"vocab_size": rows, **special, **(self.config or {})})
        self._check_vocabulary()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the logits of the next token.

        Args:
            input_ids: Token ids, shape (B, T).
            attention_mask: 1 for tokens, 0 for padding, shape (B, T).

        Returns:
            Shape (B, T, V), in the model's dtype.
        """
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        logits: Tensor = output.logits
        return logits

    def token_losses(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the loss of each predicted token, float32, one dimension.

        Args:
            batch: ``input_ids`` of shape (B, T), and where there is padding ``attention_mask`` or
                ``labels``, -100 for tokens without a prediction.

        Raises:
            ValueError: If the batch has no token ids, or is longer than the model can read.
        """
        inputs = self.checked(batch)
        logits = self(inputs["input_ids"], inputs.get("attention_mask"))[:, :-1].float()
        targets = labels_of(inputs)[:, 1:].flatten()
        losses = F.cross_entropy(
            logits.flatten(0, 1), targets, ignore_index=NOT_PREDICTED, reduction="none"
        )
        return losses[targets != NOT_PREDICTED]

    def checked(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a batch as `token_losses` takes it.

        Raises:
            ValueError: If the batch has no token ids, or is longer than the model can read.
        """
        length, most = _token_ids(batch).shape[1], num_positions(self.model.config)
        if most is not None:
            limit, advice = f"{most} tokens in a text", "make the data's block_size smaller"
            at_most("input_ids", length, most, limit=limit, advice=advice)
        return dict(batch)

    @override
    def training_step(self, batch: Mapping[str, Tensor], batch_idx: int) -> Tensor:
        loss = self.token_losses(batch).mean()
        self.on_bar = {"loss": loss.detach()}
        if self.begins_logged_step():
            self._log_training(loss.detach())
        return loss

    @override
    def on_validation_epoch_start(self) -> None:
        self._loss_sum, self._num_predicted = 0.0, 0

    @override
    def validation_step(self, batch: Mapping[str, Tensor], batch_idx: int) -> None:
        losses = self.token_losses(batch)
        self._loss_sum += float(losses.sum())
        self._num_predicted += len(losses)

    @override
    def on_validation_epoch_end(self) -> None:
        self._log_evaluation("lm_val")

    on_test_epoch_start = on_validation_epoch_start
    test_step = validation_step

    @override
    def on_test_epoch_end(self) -> None:
        self._log_evaluation("lm_test")

    @override
    def predict_step(self, batch: Mapping[str, Tensor], batch_idx: int) -> Tensor:
        return self.token_losses(batch)

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        from toolkit.lm.architecture.configurations import plain_configuration  # noqa: PLC0415

        # With the whole configuration, loading needs no other file.
        checkpoint[self.CHECKPOINT_HYPER_PARAMS_KEY] = {
            **checkpoint[self.CHECKPOINT_HYPER_PARAMS_KEY],
            "config": plain_configuration(self.model.config),
            "pretrained": None,
            "revision": None,
        }
        checkpoint[_SOURCE] = None if self.source is None else tuple(self.source)
        rename_weights(checkpoint["state_dict"], ())

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        # Modules may have been compiled when the checkpoint was saved, and may be compiled now.
        rename_weights(checkpoint.get("state_dict", {}), self.state_dict())
        source = checkpoint.get(_SOURCE)
        self.source = None if source is None else WeightsIdentity(*source)

    def _build(self, config: Mapping[str, Any]) -> None:
        from toolkit.lm.architecture.configurations import new_language_model  # noqa: PLC0415

        self.model = new_language_model(config, dtype=self.weights_dtype)

    def _load(self, name: str, revision: str | None) -> None:
        from toolkit.lm.checkpoints.models import Models  # noqa: PLC0415

        (checkpoint,) = Models([name if revision is None else f"{name}@{revision}"]).checkpoints()
        checkpoint.fetch(checkpoint.missing())
        opened = checkpoint.open(self.weights_dtype)
        # The loaded model is in eval mode, and Lightning does not change the mode.
        self.model = opened.model.train()
        self.tokenizer = opened.tokenizer
        self.source = checkpoint.identity

    def _check_vocabulary(self) -> None:
        tokenizer = getattr(_data_module(self), "tokenizer", None)
        rows = len(cast("Tensor", self.model.get_input_embeddings().weight))
        needed = 0 if tokenizer is None else tokenizer_rows(tokenizer)
        if needed > rows:
            raise ValueError(
                f"tokenizer: expected at most {rows} tokens, the model's vocabulary, got a data "
                f"module with {needed}; give data and model the same tokenizer"
            )

    @override
    def parameter_groups(self) -> list[dict[str, Any]]:
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return [
            {
                "params": [p for p in trained if (p.ndim >= 2) == is_matrix],
                "weight_decay": self.weight_decay if is_matrix else 0.0,
            }
            for is_matrix in (True, False)
        ]

    def _log_training(self, loss: Tensor) -> None:
        self.log("loss", loss, prog_bar=True, logger=False, batch_size=1)
        self.log_at_step({"lm/loss": float(loss), "lm/perplexity": float(loss.exp())})

    def _log_evaluation(self, metric: str) -> None:
        sums = torch.tensor([self._loss_sum, self._num_predicted], device=self.device)
        loss_sum, count = self.trainer.strategy.reduce(sums, reduce_op="sum").tolist()
        loss = loss_sum / count if count else nan
        perplexity = float(torch.tensor(loss).exp())
        self.log_evaluation({f"{metric}/loss": loss, f"{metric}/perplexity": perplexity})


def _data_module(module: LanguageModel) -> object:
    return getattr(trainer_of(module), "datamodule", None)


def _token_ids(batch: object) -> Tensor:
    tokens = batch.get("input_ids") if isinstance(batch, Mapping) else None
    if not isinstance(tokens, Tensor) or tokens.ndim != 2:
        raise ValueError(
            "batch: expected a mapping with input_ids of shape (B, T), got "
            f"{type(batch).__name__}; let the data module return that"
        )
    return tokens


def _check_origin(config: object, pretrained: str | None, revision: str | None) -> None:
    if (config is None) == (pretrained is None):
        raise ValueError(
            "config, pretrained: expected one of them, got "
            f"{'neither' if config is None else 'both'}"
        )
    if config is not None:
        if not isinstance(config, Mapping):
            raise TypeError(f"config: expected a mapping, got {type(config).__name__}")
        from toolkit.lm.architecture.configurations import check_configuration  # noqa: PLC0415

        check_configuration(config)
    optional(valid_text, "pretrained", pretrained)
    optional(valid_text, "revision", revision)
    if revision is not None and pretrained is None:
        raise ValueError(f"revision: expected pretrained with it, got {revision!r} alone")
