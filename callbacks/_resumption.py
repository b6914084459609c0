"""Start of a training in its folder, as a new run or from a checkpoint."""

import lightning as L

from callbacks._recorder import Recorder


class Resumption:
    """Distinguishes new from continued trainings, and cuts the table of a continued training."""

    def __init__(self) -> None:
        self._is_continued = False
        self._has_validated = False

    def note_validation(self) -> None:
        """Note a validation by the same trainer; a training may add to its rows."""
        self._has_validated = True

    def begin(self, trainer: L.Trainer, recorder: Recorder | None) -> None:
        """Refuse a used folder for a new run; drop the later rows of a continued run.

        Raises:
            ValueError: If a new run has the folder of an earlier run.
        """
        self._is_continued = trainer.global_step > 0
        if recorder is None or not trainer.is_global_zero:
            return
        if self._is_continued and recorder.table:
            recorder.table.drop_after(trainer.global_step)
        elif not self._is_continued and not self._has_validated:
            recorder.check_unused()

    def is_first_batch(self, trainer: L.Trainer) -> bool:
        """Return True once: on rank zero, at the first batch of a continued run."""
        # The points after a killed run's checkpoint are removed before the first batch.
        is_first, self._is_continued = self._is_continued, False
        return is_first and trainer.is_global_zero
