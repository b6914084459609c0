"""The origin of a number: fingerprints of weights and texts, and versions of packages."""

import hashlib
import json
import platform
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version

import torch
from torch import Tensor

from toolkit import __version__

_DIGEST_BYTES = 16


def weights_hash(named_tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Return a BLAKE2 fingerprint of names, shapes and bytes, independent of the order.

    Tensors are consumed one at a time, so that an iterator may load them lazily.

    Args:
        named_tensors: Pairs of a name and a tensor of any dtype and device.

    Returns:
        32 hexadecimal digits.

    Raises:
        ValueError: If there is no tensor, or a tensor has no values (meta device).
    """
    digests = sorted(_digest(name, tensor) for name, tensor in named_tensors)
    if not digests:
        raise ValueError("named_tensors: expected at least one tensor, got none")
    return hashlib.blake2b(b"".join(digests), digest_size=_DIGEST_BYTES).hexdigest()


def matrix_hash(matrix: Tensor) -> str:
    """Return a BLAKE2 fingerprint of a tensor's dtype, shape and bytes, without its name.

    Two models that share a single matrix have equal fingerprints of it, while their
    `weights_hash` differ.

    Args:
        matrix: A tensor of any dtype and device.

    Returns:
        32 hexadecimal digits.

    Raises:
        ValueError: If it has no values (meta device).
    """
    if matrix.is_meta:
        raise ValueError("matrix: expected values, got a tensor on the meta device")
    return _digest(dtype_names([matrix]), matrix).hex()


def _digest(name: str, tensor: Tensor) -> bytes:
    if tensor.is_meta:
        raise ValueError(f"named_tensors: expected values, got {name} on the meta device")
    digest = hashlib.blake2b(f"{name}\0{tuple(tensor.shape)}\0".encode(), digest_size=_DIGEST_BYTES)
    # numpy has no bfloat16: the bytes are read as integers.
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    digest.update(flat.view(torch.uint8).numpy().data)
    return digest.digest()


def texts_hash(texts: Iterable[str]) -> str:
    """Return a BLAKE2 fingerprint of the texts in their order, 32 hexadecimal digits."""
    return hashlib.blake2b(json.dumps(list(texts)).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def dtype_names(tensors: Iterable[Tensor]) -> str:
    """Return the different names of the tensors' dtypes, in order."""
    return " ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors}))


@cache
def versions(*packages: str) -> dict[str, str]:
    """Return the versions of the toolkit, Python, torch and further installed ``packages``.

    Raises:
        importlib.metadata.PackageNotFoundError: If a package is not installed.
    """
    installed = {name: version(name) for name in ("torch", *packages)}
    return {"toolkit": __version__, "python": platform.python_version(), **installed}
