"""Frequencies of the toy model's features: the families of arXiv 2505.10465."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from toolkit.functional._checks import (
    integer_at_least,
    number_at_least,
    positive,
    require_memory,
    shown,
)
from toolkit.subclasses import class_path, subclasses

_ROUNDING = 1e-12


class Frequencies(ABC):
    """Relative activity of features 1..n, most frequent first."""

    @abstractmethod
    def relative(self, num_features: int) -> Tensor:
        """Return unnormalised frequencies, shape ``(num_features,)``, float64."""

    def probabilities(self, num_features: int, *, density: float = 1.0) -> Tensor:
        """Return the probability that each feature is active in a sample.

        Args:
            num_features: Number of features n.
            density: Expected number of active features in one sample, sum of the result.

        Returns:
            Shape ``(num_features,)``, float64, summing to ``density``.

        Raises:
            ValueError: If n < 1, the density is not positive, or a probability would exceed 1.
        """
        integer_at_least("num_features", num_features, 1)
        require_memory("num_features", num_features, itemsize=8)
        positive("density", density)
        relative = self.relative(num_features)
        probabilities = relative * (density / relative.sum())
        largest = probabilities.max().item()
        # A published run has p_1 = 1 exactly: rounding must neither make this density an error nor
        # leave a probability of 1 - 1e-16.
        if largest > 1 + _ROUNDING:
            raise ValueError(
                f"density: expected every probability at most 1, got {largest:.4g} for the most "
                f"frequent of {num_features} features; lower density to {density / largest:.6g}"
            )
        return torch.where(probabilities > 1 - _ROUNDING, 1.0, probabilities)

    def as_config(self) -> dict[str, Any]:
        """Return this object as plain types, in the form of a configuration file."""
        return {
            "class_path": class_path(type(self)),
            "init_args": dict(vars(self)),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Frequencies":
        """Build the object from the result of `as_config`; its class must already be imported.

        Raises:
            ValueError: If no imported class has this ``class_path``.
        """
        kinds: dict[str, type[Frequencies]] = subclasses(cls)
        wanted = config.get("class_path", "")
        if not isinstance(wanted, str) or wanted not in kinds:
            raise ValueError(
                f"frequencies: expected the class_path of one of {sorted(kinds)}, "
                f"got {shown(wanted)}"
            )
        return kinds[wanted](**config.get("init_args", {}))


def _ranks(num_features: int) -> Tensor:
    return torch.arange(1, num_features + 1, dtype=torch.float64)


@dataclass(frozen=True)
class PowerFrequencies(Frequencies):
    """Power law: p_i proportional to ``i ** -exponent``.

    Args:
        exponent: alpha of arXiv 2505.10465; its public code's variable is this minus 1.
    """

    exponent: float = 1.0

    def __post_init__(self) -> None:
        number_at_least("exponent", self.exponent, 0)

    @override
    def relative(self, num_features: int) -> Tensor:
        return _ranks(num_features) ** -self.exponent


@dataclass(frozen=True)
class ExponentialFrequencies(Frequencies):
    """Exponential decay: p_i proportional to ``exp(-i / scale)``.

    Args:
        scale: n_0, in features.
    """

    scale: float = 400.0

    def __post_init__(self) -> None:
        positive("scale", self.scale)

    @override
    def relative(self, num_features: int) -> Tensor:
        """Return ``exp(-i / scale)``, relative to the first feature so that no scale underflows."""
        return torch.exp(-(_ranks(num_features) - 1) / self.scale)


@dataclass(frozen=True)
class LinearFrequencies(Frequencies):
    """Linear decay: p_i proportional to ``(n - i) / n``; the last feature never occurs."""

    @override
    def relative(self, num_features: int) -> Tensor:
        if num_features < 2:
            raise ValueError(
                f"num_features: expected at least 2 for (n - i) / n, got {num_features}"
            )
        return (num_features - _ranks(num_features)) / num_features


@dataclass(frozen=True)
class UniformFrequencies(Frequencies):
    """Uniform frequencies: all p_i are equal."""

    @override
    def relative(self, num_features: int) -> Tensor:
        return torch.ones(num_features, dtype=torch.float64)
