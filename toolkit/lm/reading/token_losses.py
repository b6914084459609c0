"""Token losses of a language model, without the logits of all tokens in memory at once."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import nan
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toolkit.functional._checks import instance, integer_at_least
from toolkit.lm.architecture.search import find_language_model, output_embedding
from toolkit.lm.reading.capture import accepted_arguments

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NOT_PREDICTED = -100
# Logits of one chunk, 64 MiB in float32: small enough for memory, large enough for speed.
_LOGITS_AT_ONCE = 1 << 24
_TOLERANCE = 1e-5
# Whether the head alone reproduces the loss of each model; tested once per model.
_SEPARABLE: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def labels_of(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the labels, shape (B, T): the tokens, and `NOT_PREDICTED` for padding.

    Args:
        inputs: ``input_ids``, and optionally ``labels`` and ``attention_mask``.
    """
    labels = inputs.get("labels", inputs["input_ids"])
    mask = inputs.get("attention_mask")
    return labels if mask is None else labels.masked_fill(mask == 0, NOT_PREDICTED)


class LossMeter:
    """Adds up the losses of predicted tokens during passes that have another purpose.

    The model's own head, with its bias, scaling and soft-capping, computes logits from the hidden
    states of a chunk of tokens at a time. The first text shows, once for each model, whether this
    reproduces the model's own loss to 1e-5. If not, the model runs again and keeps all logits.

    Args:
        model: A Hugging Face causal language model, or a module that holds one.
        chunk: Number of tokens in a chunk; by default the logits of a chunk take 64 MiB.

    Attributes:
        complete: Whether all texts of a pass have been counted.
    """

    def __init__(self, model: nn.Module, *, chunk: int | None = None) -> None:
        self.model = find_language_model(model)
        self.complete = False
        self._base = _base(self.model)
        if chunk is not None:
            integer_at_least("chunk", chunk, 1)
        self._chunk = chunk or max(1, _LOGITS_AT_ONCE // _num_rows(self.model))
        self._hidden: Tensor | None = None
        self._loss_sum = 0.0
        self._num_predicted = 0

    @property
    def mean(self) -> float:
        """Mean loss in nats per predicted token, NaN without predicted tokens."""
        return self._loss_sum / self._num_predicted if self._num_predicted else nan

    @contextmanager
    def whole_pass(self) -> Iterator[None]:
        """Reset the sum, and set ``complete`` when the ``with`` block ends without an error."""
        self._loss_sum, self._num_predicted, self.complete = 0.0, 0, False
        yield
        self.complete = True

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep the input of the head from the pass inside the ``with`` block."""

        def keep(_module: nn.Module, _args: object, output: Any) -> None:  # noqa: ANN401
            self._hidden = output if isinstance(output, Tensor) else output[0]

        self._hidden = None
        handle = None if self._base is None else self._base.register_forward_hook(keep)
        try:
            yield
        finally:
            if handle is not None:
                handle.remove()

    def add(self, inputs: Mapping[str, Tensor]) -> None:
        """Add the losses of the batch from the last watched pass."""
        self.count(self._token_losses(inputs))

    def count(self, losses: Tensor) -> None:
        """Add losses of tokens to the sum."""
        self._loss_sum += float(losses.double().sum())
        self._num_predicted += len(losses)

    def read(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Run the model on a batch.

        Args:
            inputs: ``input_ids`` of shape (B, T), and optionally ``attention_mask`` and
                ``labels``.

        Returns:
            The loss of each predicted token, float32, one dimension.
        """
        with self.watching():
            if self._base is not None:
                self._base(**_accepted(self._base, inputs))
        return self._token_losses(inputs)

    def last_states(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the input of the head at each text's last token; without a body, the logits."""
        with self.watching():
            module = self.model if self._base is None else self._base
            output = module(**_accepted(module, inputs))
        states = output.logits if self._hidden is None else self._hidden
        self._hidden = None
        last = inputs["attention_mask"].sum(1) - 1
        return states[torch.arange(len(last), device=last.device), last].float().cpu()

    def _token_losses(self, inputs: Mapping[str, Tensor]) -> Tensor:
        hidden, self._hidden = self._hidden, None
        targets = labels_of(inputs)[:, 1:]
        predicted = targets != NOT_PREDICTED
        wanted = targets[predicted]
        if not len(wanted):
            return torch.zeros(0)
        if not self._is_separable(inputs, hidden, predicted):
            return _losses(self._own_logits(inputs)[:, :-1][predicted], wanted)
        states = cast("Tensor", hidden)[:, :-1][predicted]
        chunks = zip(
            torch.split(states, self._chunk), torch.split(wanted, self._chunk), strict=True
        )
        return torch.cat([_losses(self._logits(part), labels) for part, labels in chunks])

    def _is_separable(
        self, inputs: Mapping[str, Tensor], hidden: Tensor | None, predicted: Tensor
    ) -> bool:
        """Whether head and hidden states alone reproduce the model's own loss."""
        if hidden is None or hidden.shape[:2] != inputs["input_ids"].shape:
            return False
        if self.model not in _SEPARABLE:
            row = int(predicted.sum(1).argmax())
            chosen = predicted[row]
            own = self._own_logits({name: value[row : row + 1] for name, value in inputs.items()})
            goals = labels_of(inputs)[row, 1:][chosen]
            try:
                logits = self._logits(hidden[row, :-1][chosen])
                ours = _losses(logits, goals).mean()
            except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
                _SEPARABLE[self.model] = False
                return False
            tolerance = max(_TOLERANCE, torch.finfo(hidden.dtype).eps)
            mean = _losses(own[0, :-1][chosen], goals).mean()
            close = torch.isclose(ours, mean, rtol=tolerance, atol=0, equal_nan=True)
            _SEPARABLE[self.model] = bool(close)
        return _SEPARABLE[self.model]

    def _logits(self, states: Tensor) -> Tensor:
        """Return the logits of states of shape (n, d), which the model gets as one text."""
        with _returning(cast("nn.Module", self._base), states[None]):
            tokens = torch.zeros(1, len(states), dtype=torch.long, device=states.device)
            logits: Tensor = self.model(**_accepted(self.model, {"input_ids": tokens})).logits
        return logits[0]

    def _own_logits(self, inputs: Mapping[str, Tensor]) -> Tensor:
        logits: Tensor = self.model(**_accepted(self.model, inputs)).logits
        return logits


def is_meter(name: str, value: object) -> LossMeter:
    """Return ``value`` if it is a `LossMeter`, else raise a TypeError."""
    return instance(name, value, LossMeter)


def _accepted(module: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the arguments of a pass without labels that the module accepts."""
    arguments = {name: inputs[name] for name in ("input_ids", "attention_mask") if name in inputs}
    return accepted_arguments(module, arguments)


@contextmanager
def _returning(base: nn.Module, hidden: Tensor) -> Iterator[None]:
    """Let the body return these hidden states for any input."""

    def forward(*_args: object, **_options: object) -> _Output:
        return _Output(hidden)

    own = vars(base).get("forward")
    vars(base)["forward"] = forward
    try:
        yield
    finally:
        if own is None:
            del vars(base)["forward"]
        else:
            vars(base)["forward"] = own


class _Output(dict[str, Any]):
    """Output of a body: hidden states, and None under every other name."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__(last_hidden_state=hidden)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401
        return super().__getitem__(key) if isinstance(key, str) else tuple(self.values())[key]


def _losses(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), targets.to(logits.device), reduction="none")


def _base(model: "PreTrainedModel") -> nn.Module | None:
    """Return the innermost model that holds the embedding; None if it holds the head as well."""
    from transformers import PreTrainedModel  # noqa: PLC0415

    embedding, head = model.get_input_embeddings(), output_embedding(model)
    inner: nn.Module = model
    for module in model.modules():
        if isinstance(module, PreTrainedModel) and embedding in set(module.modules()):
            inner = module
    return None if inner is model or head in set(inner.modules()) else inner


def _num_rows(model: "PreTrainedModel") -> int:
    weight = getattr(output_embedding(model), "weight", None)
    return len(weight) if isinstance(weight, Tensor) and len(weight) else 1 << 16
