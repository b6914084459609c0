"""Weights have one identity in checkpoints, rows and modules."""

from pathlib import Path

from tests.runs.test_table import row
from toolkit.lm.checkpoints.local import FolderCheckpoint
from toolkit.runs.identity import WeightsIdentity


def test_a_checkpoint_and_its_row_have_the_same_identity() -> None:
    identity = WeightsIdentity("tiny", "step8", "abc", 8)
    checkpoint = FolderCheckpoint(
        name="tiny", step=8, revision="step8", commit="abc", folder=Path("here")
    )
    assert checkpoint.identity == identity
    columns = identity.columns()
    assert columns == {"model": "tiny", "revision": "step8", "commit": "abc", "step": 8}
    assert row(**columns).identity == identity


def test_a_model_in_training_has_neither_revision_nor_commit() -> None:
    assert WeightsIdentity("Toy", step=3) == ("Toy", "", "", 3)
