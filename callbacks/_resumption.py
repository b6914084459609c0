"""The beginning of a training in its folder: new, or continued from a checkpoint."""

import lightning as L

from callbacks._recorder import Recorder


class Resumption:
    """Knows whether a training continues an earlier one, and cleans its table."""

    def __init__(self) -> None:
        self._is_continued = False
        self._has_validated = False

    def note_validation(self) -> None:
        """Let a training write behind the rows of a validation of the same trainer."""
        self._has_validated = True

    def begin(self, trainer: L.Trainer, recorder: Recorder | None) -> None:
        """Refuse the used folder of a new run; drop the later rows of a continued one.

        Raises:
            ValueError: If the run starts anew in the folder of an earlier one.
        """
        self._is_continued = trainer.global_step > 0
        if recorder is None or not trainer.is_global_zero:
            return
        if self._is_continued and recorder.table:
            recorder.table.drop_after(trainer.global_step)
        elif not self._is_continued and not self._has_validated:
            recorder.check_unused()

    def is_first_batch(self, trainer: L.Trainer) -> bool:
        """Return whether this is rank zero's first batch of a continued run, true once."""
        # Not before the first batch: until then the superfluous points of a killed run go.
        is_first, self._is_continued = self._is_continued, False
        return is_first and trainer.is_global_zero
