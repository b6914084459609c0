"""Damaged headers of weight files: a right reading or one line that names the file.

By default a few examples of each kind; ``-m slow`` tries many, ``FUZZ_EXAMPLES`` says how many.
"""

import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from torch import Tensor

gguf = pytest.importorskip("gguf")

from tests.adversarial.weight_files import (  # noqa: E402
    READ,
    WRITTEN,
    Sample,
    configuration,
    damaged,
    damages,
    gguf_file,
    json_values,
    matrices,
    replaced,
    safetensors_file,
    shard_index,
    tokenizer,
    with_pickle,
    zip_checkpoint,
)
from toolkit.lm.weights.embedding import EmbeddingTensor, Matrix, read_embedding  # noqa: E402

FEW, MANY = 60, int(os.environ.get("FUZZ_EXAMPLES", "4000"))
QUIET = settings(
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# Far more than the files need, far less than they may claim.
SPARE_BYTES = 2**29
SECONDS_BEFORE_IT_HANGS = 60
KINDS: dict[str, Callable[[Path], Sample]] = {
    "safetensors": safetensors_file,
    "gguf": gguf_file,
    "zip": zip_checkpoint,
    "index": shard_index,
    "config": configuration,
    "tokenizer": tokenizer,
}
MATRICES: tuple[Matrix, ...] = ("input", "output")


@contextmanager
def bounded() -> Iterator[None]:
    """Fail what allocates far beyond the file's size, and end what hangs."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + SPARE_BYTES
    signal.alarm(SECONDS_BEFORE_IT_HANGS)
    resource.setrlimit(resource.RLIMIT_AS, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.alarm(0)


def check(sample: Sample, content: bytes) -> None:
    """Read both matrices of the damaged file."""
    sample.file.write_bytes(content)
    for matrix in MATRICES:
        found = reading(sample.source, matrix)
        if isinstance(found, EmbeddingTensor):
            assert type(found.vocab_size) in {int, type(None)}, found.vocab_size
            assert found.tied in {True, False, None}
            assert is_right(sample, found), (found.name, found.tensor)
            continue
        message = str(found)
        assert message.isprintable(), message
        assert sample.source.name in message or sample.file.name in message, message
        assert not isinstance(found.__cause__, MemoryError), message


def reading(source: Path, matrix: Matrix) -> EmbeddingTensor | ValueError:
    """What is read, or the refusal; anything else goes through."""
    try:
        with bounded():
            return read_embedding(source, matrix)
    except ValueError as error:
        return error


def is_right(sample: Sample, found: EmbeddingTensor) -> bool:
    """Whether the values are those of the whole file, or what another reader finds now."""
    rows = found.tensor
    stored = {**matrices(), "token_embd.weight": matrices()[WRITTEN]}
    if found.name in stored and same(rows, stored[found.name]):
        return True
    other = other_reading(sample.source, found)
    return other is not None and same(rows, other)


def same(one: Tensor, other: Tensor) -> bool:
    """Bit by bit: a damaged value may be NaN."""
    return one.shape == other.shape and one.numpy().tobytes() == other.numpy().tobytes()


def other_reading(path: Path, found: EmbeddingTensor) -> Tensor | None:
    """The tensor as the format's own package reads it, None if that refuses the file."""
    if path.is_dir():
        path /= found.file
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, "pt") as file:
                return torch.as_tensor(file.get_tensor(found.name))
        except SafetensorError:
            return None
    if path.suffix == ".gguf":
        (tensor,) = [one for one in gguf.GGUFReader(path).tensors if one.name == found.name]
        with np.errstate(all="ignore"):
            return torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type))
    state = torch.load(path, weights_only=True)["state_dict"]
    return torch.as_tensor(state[found.name])


@pytest.fixture(scope="module", params=KINDS)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return KINDS[request.param](tmp_path_factory.mktemp(request.param))


def fuzz_bytes(sample: Sample, examples: int) -> None:
    @settings(QUIET, max_examples=examples)
    @given(damages(sample.header))
    def run(changes: list[tuple[str, int, int]]) -> None:
        check(sample, damaged(sample.content, changes))

    run()


def fuzz_json(sample: Sample, examples: int) -> None:
    """Whole JSON of another content, in place of a safetensors header or of an index."""
    is_index = sample.file.suffix == ".json"
    raw = sample.content if is_index else sample.content[8 : sample.header]
    places = st.lists(st.integers(0, 3), min_size=1, max_size=4)

    @settings(QUIET, max_examples=examples)
    @given(st.lists(st.tuples(places, json_values()), min_size=1, max_size=3))
    def run(changes: list[tuple[list[int], Any]]) -> None:
        value = json.loads(raw)
        for path, new in changes:
            value = replaced(value, path, new)
        text = json.dumps(value).encode()
        rest = sample.content[sample.header :]
        check(sample, text if is_index else len(text).to_bytes(8, "little") + text + rest)

    run()


def fuzz_pickle(sample: Sample, examples: int) -> None:
    """Damage that no checksum shows."""

    @settings(QUIET, max_examples=examples)
    @given(damages(400))
    def run(changes: list[tuple[str, int, int]]) -> None:
        check(sample, with_pickle(sample.content, lambda raw: damaged(raw, changes)))

    run()


def fuzz(sample: Sample, examples: int) -> None:
    fuzz_bytes(sample, examples)
    if sample.file.suffix in {".json", ".safetensors"}:
        fuzz_json(sample, examples)
    if sample.file.suffix == ".ckpt":
        fuzz_pickle(sample, examples)


def test_a_whole_file_is_read(sample: Sample) -> None:
    sample.file.write_bytes(sample.content)
    for matrix, name in zip(MATRICES, (WRITTEN, READ), strict=True):
        found = read_embedding(sample.source, matrix).tensor
        # Quantised values are off by half a step of 127 in the row's largest.
        torch.testing.assert_close(found, matrices()[name], rtol=0, atol=0.3)


FOUND: dict[str, tuple[str, list[tuple[str, int, int]]]] = {
    "zipfile asks whether it is a zip file with an error": ("zip", [("digit", 3315, 0)]),
    "a file name with a control character": ("index", [("digit", 109, 109)]),
    "a file name that is a path": ("index", [("flip", 148, 1)]),
    "scales that are no numbers": ("gguf", [("repeat", 303, 74)]),
}
FOUND_IN_PICKLES = {"a class of an unprintable name": 60, "a tensor of an unprintable name": 32}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name: str, tmp_path: Path) -> None:
    kind, changes = FOUND[name]
    sample = KINDS[kind](tmp_path)
    check(sample, damaged(sample.content, changes))


@pytest.mark.parametrize("name", FOUND_IN_PICKLES)
def test_what_was_found_in_pickles(name: str, tmp_path: Path) -> None:
    sample, change = zip_checkpoint(tmp_path), [("set", FOUND_IN_PICKLES[name], 0)]
    check(sample, with_pickle(sample.content, lambda raw: damaged(raw, change)))


def test_a_dtype_of_an_unprintable_name(tmp_path: Path) -> None:
    sample = safetensors_file(tmp_path)
    check(sample, sample.content.replace(b'"F32"', b'"\\t2"'))


def test_a_few_damaged_headers(sample: Sample) -> None:
    fuzz(sample, FEW)


@pytest.mark.slow
def test_many_damaged_headers(sample: Sample) -> None:
    fuzz(sample, MANY)
