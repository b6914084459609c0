"""Shared input checks of the public functions: one-line errors, half precision lifted."""

import torch
from torch import Tensor


def finite_float(name: str, tensor: Tensor, *, dims: tuple[int, ...] = (2,)) -> Tensor:
    """Return ``tensor`` detached as float32 or float64, or say in one line what is wrong with it.

    Args:
        name: The public argument's name, used in the message.
        tensor: Any real tensor. Half precision is lifted to float32, integers to float64.
        dims: Allowed numbers of dimensions.

    Raises:
        TypeError: If ``tensor`` is no tensor.
        ValueError: If it is complex or boolean, has another number of dimensions, is empty, or
            holds non-finite values.
    """
    return lift(finite_real(name, tensor, dims=dims))


def finite_real(name: str, tensor: Tensor, *, dims: tuple[int, ...] = (2,)) -> Tensor:
    """Check like `finite_float`, but keep the dtype: nothing of the tensor's size is allocated."""
    values = real_tensor(name, tensor, dims=dims)
    # The extremes carry every NaN and infinity along, without a mask the size of the tensor.
    if not all(torch.isfinite(extreme) for extreme in torch.aminmax(values)):
        chunks = torch.split(values, 1024)
        num_bad = sum(int((~torch.isfinite(chunk)).sum()) for chunk in chunks)
        raise ValueError(
            f"{name}: expected finite values, got {num_bad} non-finite of {values.numel()}; "
            "repair or drop them first"
        )
    return values


def real_tensor(name: str, tensor: Tensor, *, dims: tuple[int, ...] = (2,)) -> Tensor:
    """Check like `finite_float`, but let non-finite values pass and keep the dtype."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name}: expected real numbers, got dtype {tensor.dtype}")
    if tensor.ndim not in dims:
        wanted = " or ".join(str(number) for number in dims)
        raise ValueError(
            f"{name}: expected {wanted} dimensions, got shape {tuple(tensor.shape)}; reshape it"
        )
    if tensor.numel() == 0:
        raise ValueError(f"{name}: expected at least one value, got shape {tuple(tensor.shape)}")
    if tensor.is_meta:
        raise ValueError(f"{name}: expected values, got a tensor on the meta device; load it first")
    return tensor.detach()


def lift(tensor: Tensor) -> Tensor:
    """Lift half precision to float32 and integers to float64; leave float32 and float64 alone."""
    if not tensor.is_floating_point():
        return tensor.double()
    return tensor.float() if tensor.dtype.itemsize < torch.float32.itemsize else tensor


def integer_at_least(name: str, value: int, minimum: int) -> int:
    """Return ``value``, or raise a ValueError if it is no integer of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ValueError(f"{name}: expected an integer of at least {minimum}, got {value!r}")
    return value
