"""What is left out, and that everything else is heard."""

import logging
import warnings

import pytest
from lightning.pytorch.utilities import rank_zero_info

from toolkit.console.noise import said_once, without_noise

AWARE = "Be aware that when using `ckpt_path`, add the following callbacks: "


@pytest.mark.parametrize(
    ("message", "category", "heard"),
    [
        ("`isinstance(treespec, LeafSpec)` is deprecated", FutureWarning, False),
        ("`isinstance(treespec, LeafSpec)` is deprecated", UserWarning, True),
        ("Checkpoint directory a/b exists and is not empty.", UserWarning, False),
        ("The dirpath has changed from 'a' to 'b', therefore", UserWarning, False),
        ("\n    ``instantiate_classes`` was deprecated in\n    v4.49.0", DeprecationWarning, False),
        ("something was deprecated in torch 2", DeprecationWarning, True),
        ("The 'train_dataloader' does not have many workers", UserWarning, True),
        (f"{AWARE}[\"RunCheckpoint{{'mode': 'min'}}\"].", UserWarning, False),
        (f"{AWARE}['ScalingLaw', \"RunCheckpoint{{'mode': 'min'}}\"].", UserWarning, True),
    ],
)
def test_warnings(message: str, category: type[Warning], heard: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with without_noise():
            warnings.warn(message, category, stacklevel=1)
        assert [str(warning.message) for warning in caught] == [message] * heard
        warnings.warn(message, category, stacklevel=1)
        assert len(caught) == heard + 1


@pytest.mark.parametrize(
    ("message", "heard"),
    [
        ("💡 Tip: For seamless cloud logging", False),
        ("TPU available: False, using: 0 TPU cores", False),
        ("\nDetected KeyboardInterrupt, attempting graceful shutdown ...", False),
        ("GPU available: False, used: False", True),
    ],
)
def test_infos(message: str, heard: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), without_noise():
        rank_zero_info(message)
    assert caplog.messages == [message] * heard
    with caplog.at_level(logging.INFO):
        rank_zero_info(message)
    assert caplog.messages == [message] * (heard + 1)


def test_a_message_is_heard_once_while_the_body_runs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), said_once():
        for message in ("GPU available: False", "another", "GPU available: False", "another"):
            rank_zero_info(message)
    assert caplog.messages == ["GPU available: False", "another"]


def test_after_the_body_a_message_is_heard_again(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    filters = list(logger.filters)

    def twice() -> None:
        rank_zero_info("GPU available: False")
        rank_zero_info("GPU available: False")

    with caplog.at_level(logging.INFO):
        with said_once():
            twice()
        assert logger.filters == filters
        twice()
        with pytest.raises(ValueError, match="no luck"), said_once():
            raise ValueError("no luck")
        twice()
    assert caplog.messages == 5 * ["GPU available: False"]
