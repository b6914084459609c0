"""Checkpoints at scheduled steps: Lightning files, and folders in Hugging Face's format."""

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import lightning as L
from typing_extensions import override

from callbacks._held import held_tokenizer
from callbacks.base import SHARDED
from callbacks.schedule import DueSteps, takes_no_step
from toolkit.atomic import replacing
from toolkit.functional._checks import flag, optional, valid_text
from toolkit.lightning_private import is_saved, note_saved_step, save_to, state_key_of
from toolkit.lm.checkpoints.saving import save_folder
from toolkit.runs.checkpoint import RunCheckpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NAME = "step-{:08d}"
_STEP = re.compile(r"\.?step-(\d{8,})(\..*)?")


class CheckpointSchedule(RunCheckpoint):
    """Saves a checkpoint at every scheduled step, and keeps them all.

    Step n means after n optimiser updates; step 0 and the last step are always saved. Each is a
    file ``step-00000512.ckpt``, from which a run can be continued, and a folder
    ``hf/step-00000512`` with weights, configuration and tokenizer, which
    ``AutoModelForCausalLM.from_pretrained`` loads. Neither is ever incomplete. A continued run
    keeps the checkpoints up to its step, and drops later checkpoints.

    Args:
        schedule: An integer n for every n steps, a list of steps, or ``"log"`` for
            0, 1, 2, 4, ..., 512, 1000, 2000, ...
        dirpath: Folder; by default ``checkpoints`` in the run's version folder.
        save_hf: Whether to write the folders, too; they require a Hugging Face language model
            in the LightningModule.

    Raises:
        ValueError: If ``schedule`` has another value. Before the first step: if the module holds
            no Hugging Face language model, if the weights are sharded or include an adapter, or
            if the folder holds another run's checkpoints.
    """

    def __init__(
        self,
        *,
        schedule: int | list[int] | Literal["log"] = "log",
        dirpath: str | None = None,
        save_hf: bool = True,
    ) -> None:
        self._due = DueSteps(schedule)
        optional(valid_text, "dirpath", dirpath)
        flag("save_hf", save_hf)
        # Lightning's own schedule of checkpoints is off: the hooks below save.
        super().__init__(dirpath=dirpath, save_last=False, save_top_k=0)
        self.schedule = schedule
        self.save_hf = save_hf
        self._given_dirpath = dirpath

    @property
    @override
    def state_key(self) -> str:
        """Name that differs between instances with different arguments."""
        return state_key_of(
            self, schedule=self.schedule, dirpath=self._given_dirpath, save_hf=self.save_hf
        )

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return an empty state: the files show which steps are saved."""
        return {}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Ignore the state."""

    @override
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Set the folder, and refuse models that cannot be saved completely."""
        super().setup(trainer, pl_module, stage)
        if stage == "fit" and self.save_hf and isinstance(trainer.strategy, SHARDED):
            raise ValueError(
                "save_hf: expected whole weights on every rank, got "
                f"{type(trainer.strategy).__name__}; set save_hf to false or use ddp"
            )

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Look for the model and for other checkpoints, before the first step."""
        if trainer.global_step == 0 and trainer.ckpt_path is None and self._saved():
            raise ValueError(
                "dirpath: expected a folder without checkpoints of an earlier run, got "
                f"{self.dirpath}; give another one, or continue that run"
            )
        if self.save_hf:
            _whole_model(pl_module)
        if takes_no_step(trainer):
            note_saved_step(self, -1)
            self._save(trainer, pl_module)

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save step 0; a continued run drops later checkpoints."""
        super().on_train_start(trainer, pl_module)
        self._due.begin(trainer)
        # Lightning's counter starts at 0, as if step 0 had been saved.
        note_saved_step(self, -1)
        if trainer.ckpt_path is not None and trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self._drop_after(trainer.global_step)
            self._complete(trainer, pl_module)
        if trainer.global_step == 0:
            self._save(trainer, pl_module)

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save scheduled steps and the last step."""
        if self._due.reached(trainer.global_step):
            self._save(trainer, pl_module)

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save nothing: an epoch's end is no step of the schedule."""

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save nothing: a validation's end is no step of the schedule."""

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save the last step of a run whose length was not known in advance."""
        self._save(trainer, pl_module)

    def _save(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the missing files; with accumulation a step occurs several times."""
        if is_saved(self, trainer):
            return
        name = _NAME.format(trainer.global_step)
        path = self._folder / f"{name}.ckpt"
        if not self.file_exists(str(path), trainer):
            save_to(self, trainer, path)
        note_saved_step(self, trainer.global_step)
        if self.save_hf and trainer.is_global_zero:
            self._save_folder(trainer, pl_module)

    def _save_folder(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        path = self._folder / "hf" / _NAME.format(trainer.global_step)
        save_folder(path, _whole_model(pl_module), held_tokenizer(trainer, pl_module))

    def _complete(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the files of the continued step that a kill prevented."""
        if trainer.global_step not in self._due:
            return
        path = self._folder / f"{_NAME.format(trainer.global_step)}.ckpt"
        source = Path(str(trainer.ckpt_path))
        # A copy of the loaded file: the counters of the loops have changed since the step's end.
        if not path.exists() and source.is_file():
            with replacing(path) as temporary:
                shutil.copyfile(source, temporary)
        if self.save_hf:
            self._save_folder(trainer, pl_module)

    @property
    def _folder(self) -> Path:
        return Path(str(self.dirpath))

    def _saved(self) -> list[tuple[int, Path]]:
        """Return step and path of all saved files, including those that a kill has left."""
        paths = (*self._folder.glob("*step-*"), *self._folder.glob("hf/*step-*"))
        matches = ((_STEP.fullmatch(path.name), path) for path in paths)
        return [(int(match[1]), path) for match, path in matches if match]

    def _drop_after(self, step: int) -> None:
        """Remove later checkpoints of a continued run."""
        for saved_step, path in self._saved():
            if saved_step <= step and path.suffix != ".tmp":
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _whole_model(pl_module: L.LightningModule) -> "PreTrainedModel":
    """Return the language model; refuse weights that belong to an adapter."""
    from toolkit.lm.architecture.search import find_language_model  # noqa: PLC0415

    model = find_language_model(pl_module)
    if any(".base_layer." in name for name, _ in model.named_parameters()):
        raise ValueError(
            "save_hf: expected a model of whole weights, got one with PEFT adapters; "
            "set save_hf to false, or merge the adapters first"
        )
    return model
