"""Time and memory of `epsilon` on sharded models against loading the whole model.

The baseline is a simple script: `from_pretrained`, then the same measure on the input
embedding. Both run in separate processes, including imports, with one thread; each number is
the median over interleaved rounds, files in the page cache. Peak memory is the whole process's
(Linux); what importing torch alone needs is printed beside it. The models, random weights in
bfloat16, are written to a temporary folder, and deleted: less than 400 MiB at a time.

    python benchmarks/epsilon.py
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any


def neox() -> Any:  # noqa: ANN401
    """A configuration like Pythia-410M's, with a quarter of its blocks."""
    from transformers import GPTNeoXConfig  # noqa: PLC0415

    return GPTNeoXConfig(
        vocab_size=50304,
        hidden_size=1024,
        intermediate_size=4096,
        num_attention_heads=16,
        num_hidden_layers=6,
    )


def gemma() -> Any:  # noqa: ANN401
    """A configuration like Gemma 3 270M's, with a third of its blocks."""
    from transformers import Gemma3TextConfig  # noqa: PLC0415

    return Gemma3TextConfig(
        vocab_size=262144,
        hidden_size=640,
        intermediate_size=2048,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        num_hidden_layers=6,
    )


CONFIGS: dict[str, Callable[[], Any]] = {"50304 x 1024": neox, "262144 x 640": gemma}


def by_command(folder: str) -> dict[str, Any]:
    """Epsilon by the toolkit's command."""
    from toolkit.cli import main as command  # noqa: PLC0415

    output = StringIO()
    with redirect_stdout(output):
        command(["epsilon", folder, "--json"])
    (model,) = json.loads(output.getvalue())["models"]
    return {"epsilon": model["epsilon"], "bytes_read": model["bytes_read"]}


def by_model(folder: str) -> dict[str, Any]:
    """Epsilon of the loaded model."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    from toolkit.functional import embedding_deviation  # noqa: PLC0415

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    (name,) = {"model.embed_tokens.weight", "gpt_neox.embed_in.weight"} & model.state_dict().keys()
    return {"epsilon": embedding_deviation(model.get_parameter(name)).epsilon}


def by_nothing(folder: str) -> dict[str, Any]:
    """The imports that both need."""
    del folder
    import toolkit.functional  # noqa: F401, PLC0415

    return {}


SIDES = {"command": by_command, "model": by_model, "nothing": by_nothing}


def child(side: str, folder: str) -> None:
    """Print the side's epsilon and this process's peak memory in MiB."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    found = SIDES[side](folder)
    (line,) = (
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    print(json.dumps({**found, "memory": int(line.split()[1]) / 1024}))


def run(side: str, folder: Path) -> dict[str, Any]:
    """Run one side in a process of its own; add the seconds it took."""
    begun = time.perf_counter()
    command = [sys.executable, __file__, "--child", side, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**result, "seconds": time.perf_counter() - begun}


def write_model(name: str, folder: Path) -> None:
    """Write a model with random weights in shards."""
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        CONFIGS[name](), dtype=torch.bfloat16
    )
    model.save_pretrained(folder, max_shard_size="100MB")


def compare(name: str, rounds: int) -> None:
    """Print one line about a size."""
    with tempfile.TemporaryDirectory() as folder:
        # A separate process frees its memory at its end.
        write = [sys.executable, __file__, "--write", name, folder]
        subprocess.run(write, capture_output=True, check=True)
        shards = list(Path(folder).glob("*.safetensors"))
        stored = sum(path.stat().st_size for path in shards)
        rows = [{side: run(side, Path(folder)) for side in SIDES} for _ in range(rounds)]
    results = {side: [row[side] for row in rows] for side in SIDES}
    ours, theirs = results["command"], results["model"]
    if abs(ours[0]["epsilon"] - theirs[0]["epsilon"]) > 1e-6:
        raise ValueError(f"epsilon: expected {theirs[0]['epsilon']}, got {ours[0]['epsilon']}")
    seconds, memory = (
        {side: median(row[key] for row in rows) for side, rows in results.items()}
        for key in ("seconds", "memory")
    )
    num_rows, dim = map(int, name.split(" x "))
    print(
        f"{name}: {ours[0]['bytes_read'] / 2**20:.1f} MiB read of {stored / 2**20:.1f} in "
        f"{len(shards)} shards (the matrix: {num_rows * dim * 2 / 2**20:.1f}); seconds "
        f"{seconds['model']:.1f} -> {seconds['command']:.1f} (imports {seconds['nothing']:.1f}); "
        f"peak memory {memory['model']:.0f} -> {memory['command']:.0f} MiB (imports "
        f"{memory['nothing']:.0f})",
        flush=True,
    )


def main() -> None:
    """Print every row."""
    parser = argparse.ArgumentParser(description="epsilon from files against a loaded model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
    elif options.write:
        name, folder = options.write
        write_model(name, Path(folder))
    else:
        for name in CONFIGS:
            compare(name, options.rounds)


if __name__ == "__main__":
    main()
