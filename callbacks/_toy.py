"""What the toy model's callbacks have in common."""

import lightning as L

from toolkit.models import SuperpositionAutoencoder


def toy_model(pl_module: L.LightningModule, *, wanted_by: object) -> SuperpositionAutoencoder:
    """Return the module as the toy model, or say in one line that it is another."""
    if not isinstance(pl_module, SuperpositionAutoencoder):
        raise ValueError(  # noqa: TRY004 - the run is wrong, not a call
            f"model: expected a SuperpositionAutoencoder for {type(wanted_by).__name__}, got "
            f"{type(pl_module).__name__}; remove the callback"
        )
    return pl_module
