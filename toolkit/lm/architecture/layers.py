"""Names of a language model's layers."""

from collections.abc import Sequence

FINAL = "final"


def layer_names(num_blocks: int) -> list[str]:
    """Return the names of the layers of a model, from input to output.

    ``layer_00`` is the input of the first block, ``layer_01`` and so on are the residual stream
    after each block, ``final`` is the input of the unembedding. The index i of Hugging Face's
    ``output_hidden_states`` is ``layer_i``, except for its last entry, which is ``final``.

    Example:
        >>> layer_names(2)
        ['layer_00', 'layer_01', 'layer_02', 'final']
    """
    return [f"layer_{index:02d}" for index in range(num_blocks + 1)] + [FINAL]


def check_layers(layers: Sequence[str], num_blocks: int, *, argument: str = "layers") -> None:
    """Raise a ValueError unless all ``layers`` exist in a model with ``num_blocks`` blocks."""
    known = layer_names(num_blocks)
    unknown = [layer for layer in layers if layer not in known]
    if unknown:
        raise ValueError(
            f"{argument}: expected {known[0]} to {known[-2]} or {FINAL}, got {', '.join(unknown)}"
        )
