"""Fixtures every test gets: no network, nothing left behind."""

import gc
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

# Tests work on tiny tensors, where waiting threads cost more than they compute; subprocesses, too.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)

# Fuzzing: the same few examples in every default run, many new ones where a profile asks for it.
# What hypothesis caches stays out of the checkout.
set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "hypothesis")
settings.register_profile("quick", max_examples=5, derandomize=True, database=None, deadline=None)
settings.register_profile("long", max_examples=300, database=None, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

ROOT = Path(__file__).parent.parent
LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}


def pytest_collection_finish() -> None:
    """Keep the imported modules out of later garbage collections, which a walk asks for often."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that reaches for the network, also when it swallows the refusal."""
    attempts: list[Any] = []
    connect = socket.socket.connect
    resolve = socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and address[0] not in LOCAL_HOSTS:
            attempts.append(address)
            raise OSError(f"tests have no network, got {address}")
        connect(self, address)

    def guarded_resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in LOCAL_HOSTS | {None, "", socket.gethostname()}:
            attempts.append(host)
            raise OSError(f"tests have no network, got {host}")
        return resolve(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_resolve)
    yield
    assert not attempts, f"the test tried to reach {attempts}"


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaks environment variables or writes into the checkout."""
    # Lightning and torch set these themselves when a Trainer runs or a seed is set.
    own = {"PL_GLOBAL_SEED", "PL_SEED_WORKERS", "PYTEST_CURRENT_TEST", "KMP_INIT_AT_FORK"}
    own |= {"KMP_DUPLICATE_LIB_OK", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "NODE_RANK"}
    own |= {"WORLD_SIZE", "PYTORCH_NVML_BASED_CUDA_CHECK", "TORCHINDUCTOR_CACHE_DIR"}
    environment = dict(os.environ)
    files = set(ROOT.iterdir()) | set((ROOT / "checkpoints").iterdir())
    yield
    changed = {
        k for k in os.environ.keys() | environment if os.environ.get(k) != environment.get(k)
    }
    for key in changed & own:
        os.environ.pop(key, None)
        if key in environment:
            os.environ[key] = environment[key]
    assert not changed - own, f"the test changed the environment: {sorted(changed - own)}"
    created = (set(ROOT.iterdir()) | set((ROOT / "checkpoints").iterdir())) - files
    created = {
        path
        for path in created
        if not path.name.startswith((".pytest_cache", ".coverage", ".hypothesis"))
    }
    assert not created, f"the test left files behind: {sorted(map(str, created))}"


@pytest.fixture
def generator() -> torch.Generator:
    """A seeded generator for inputs."""
    return torch.Generator().manual_seed(0)
