"""The fingerprint of weights, and the versions."""

import hashlib

import pytest
import torch
from torch import Tensor

from toolkit import __version__
from toolkit.runs.provenance import matrix_hash, versions, weights_hash


def reference(name: str, shape: tuple[int, ...], raw: bytes) -> str:
    one = hashlib.blake2b(f"{name}\0{shape}\0".encode() + raw, digest_size=16).digest()
    return hashlib.blake2b(one, digest_size=16).hexdigest()


def test_hash_covers_name_shape_and_bytes() -> None:
    tensor = torch.tensor([[1.0, 2.0]])
    assert weights_hash([("w", tensor)]) == reference("w", (1, 2), tensor.numpy().tobytes())


BASE = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        pytest.param("v", BASE, id="name"),
        pytest.param("w", BASE.reshape(3, 2), id="shape"),
        pytest.param("w", BASE + torch.eye(2, 3) * 1e-6, id="one-bit"),
        pytest.param("w", BASE.double(), id="dtype"),
        pytest.param("w", BASE.flip(1), id="order-of-values"),
    ],
)
def test_any_change_changes_the_hash(name: str, tensor: Tensor) -> None:
    assert weights_hash([(name, tensor)]) != weights_hash([("w", BASE)])


def test_order_layout_and_gradients_do_not_matter() -> None:
    plain = {"a": BASE, "b": torch.ones(4)}
    other = {
        "b": torch.ones(8)[::2].requires_grad_(),
        "a": BASE.t().contiguous().t(),
    }
    assert weights_hash(plain.items()) == weights_hash(iter(other.items()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int8])
def test_every_dtype_and_shape(dtype: torch.dtype) -> None:
    scalar = torch.tensor(3, dtype=dtype)
    same = weights_hash([("s", scalar)]) == weights_hash([("s", scalar.clone())])
    assert same
    assert weights_hash([("s", scalar)]) != weights_hash([("s", scalar + 1)])
    assert len(weights_hash([("empty", torch.empty(0, 3, dtype=dtype))])) == 32


def test_nothing_to_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="named_tensors: expected at least one tensor"):
        weights_hash([])
    with pytest.raises(ValueError, match="named_tensors: expected values, got w on the meta"):
        weights_hash([("w", torch.empty(2, device="meta"))])


def test_the_hash_of_one_matrix_knows_no_name() -> None:
    tensor = torch.tensor([[1.0, 2.0]])
    raw = b"float32\0(1, 2)\0" + tensor.numpy().tobytes()
    assert matrix_hash(tensor) == hashlib.blake2b(raw, digest_size=16).hexdigest()
    assert matrix_hash(BASE) == matrix_hash(BASE.t().contiguous().t())
    others = (BASE.reshape(3, 2), BASE.double(), BASE.view(torch.int32), BASE + torch.eye(2, 3))
    assert len({matrix_hash(other) for other in (BASE, *others)}) == 5
    with pytest.raises(ValueError, match="matrix: expected values, got a tensor on the meta"):
        matrix_hash(BASE.to("meta"))


def test_versions() -> None:
    found = versions("lightning")
    assert list(found) == ["toolkit", "python", "torch", "lightning"]
    assert found["toolkit"] == __version__
    assert found["torch"] == torch.__version__
