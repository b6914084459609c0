"""Command lines of fit, validate, test and predict that have to be refused."""

from tests.adversarial.command_lines import Line, refused

_QUIET = (
    "--trainer.max_steps=2",
    "--trainer.enable_progress_bar=false",
    "--trainer.log_every_n_steps=1",
)
PACKING = ("fit", "--model=VectorPacking", "--model.num_vectors=8", "--model.dim=3", *_QUIET)
TOY = (
    "fit",
    "--model=SuperpositionAutoencoder",
    "--model.num_features=12",
    "--model.widths=[2, 3]",
    "--data=SparseFeatures",
    "--data.num_features=12",
    "--data.batch_size=8",
    "--data.num_held_out=2",
    *_QUIET,
)

_PACKING_VALUES = {
    "num_vectors": ("0", "-1", "1.5", "x", "null", "1e999", "nan", "true", "[1]", "{}"),
    "dim": ("0", "-1", "1.5", "x", "null", "[3]"),
    "exponent": ("0", "-1", "x", "nan", "inf", "[4]", "[4, 400, 5]", "[x, 4]", "null", "[-1, 4]"),
    "lr": ("0", "-1", "nan", "inf", "x", "null", "[1]", "1e400"),
    "warmup_fraction": ("-0.1", "1.5", "nan", "x"),
    "lr_floor": ("-0.1", "1.5", "nan", "x"),
    "betas": ("[0.9]", "[0.9, 1]", "[-0.1, 0.9]", "[nan, 0.9]", "x", "0.9", "[0.9, 0.9, 0.9]"),
    "optimizer": ("nope", "5", "torch.optim.Nope", "torch.nn.Linear"),
}
_TOY_VALUES = {
    "num_features": ("0", "-1", "1.5", "x", "null"),
    "widths": ("[]", "[0]", "[-1]", "[2, 2]", "x", "5", "[1.5]", "null", "[[2]]", "{}"),
    "lr": ("0", "-1", "nan", "inf", "x"),
    "bias_lr": ("0", "-1", "nan", "x"),
    "weight_decay": ("nan", "inf", "x"),
    "decay_mode": ("x", "5", "null"),
    "betas": ("[1, 0.9]", "x", "[0.9]"),
    "weight_init_scale": ("nan", "x", "inf"),
    "bias_init_scale": ("nan", "x", "inf"),
    "loss_scale": ("0", "-1", "nan", "x"),
    "step": ("x", "5", "null"),
    "width_scaled_lr": ("x", "5"),
}
_DATA_VALUES = {
    "num_features": ("0", "-1", "1.5", "x", "null", "11"),
    "batch_size": ("0", "-1", "1.5", "x", "nan"),
    "num_held_out": ("0", "-1", "1.5", "x"),
    "density": ("0", "-1", "nan", "x", "inf"),
    "steps_per_epoch": ("0", "-1", "1.5", "x"),
    "seed": ("-1", "1.5", "x"),
    "frequencies": ("Nope", "5", "torch.nn.Linear"),
}
_TRAINER_VALUES = {
    "max_steps": ("x", "-2", "1.5", "nan", "null"),
    "max_epochs": ("x", "-2", "1.5"),
    "min_steps": ("x", "-1"),
    "min_epochs": ("x", "-1"),
    "accumulate_grad_batches": ("0", "-1", "x", "1.5"),
    "gradient_clip_val": ("x", "-1", "nan"),
    "gradient_clip_algorithm": ("x", "5"),
    "val_check_interval": ("0", "-1", "x", "nan"),
    "check_val_every_n_epoch": ("0", "-1", "x"),
    "limit_train_batches": ("-1", "1.5", "x", "nan"),
    "limit_val_batches": ("-1", "1.5", "x", "nan"),
    "limit_test_batches": ("-1", "1.5", "x", "nan"),
    "limit_predict_batches": ("-1", "1.5", "x", "nan"),
    "log_every_n_steps": ("-1", "0", "x", "1.5"),
    "num_sanity_val_steps": ("-2", "x", "1.5"),
    "reload_dataloaders_every_n_epochs": ("-1", "x"),
    "devices": ("0", "-5", "x", "1.5"),
    "num_nodes": ("0", "-1", "x"),
    "accelerator": ("x", "tpu", "5"),
    "precision": ("x", "3", "16-tru"),
    "strategy": ("x", "5"),
    "logger": ("x", "5", "NopeLogger"),
    "callbacks": ("x", "5", "PackingGeometri", "SparseFeatures"),
    "profiler": ("x", "5"),
    "max_time": ("x", "-1", "5", "00:00"),
    "overfit_batches": ("-1", "x", "1.5", "nan"),
    "fast_dev_run": ("x", "-1"),
    "deterministic": ("x", "5"),
    "enable_checkpointing": ("x", "5"),
    "barebones": ("x", "5"),
}
_CHECKPOINT_VALUES = {
    "every_n_train_steps": ("-1", "x", "1.5"),
    "every_n_epochs": ("-1", "x", "1.5"),
    "train_time_interval": ("x", "5"),
    "save_top_k": ("-2", "x", "1.5"),
    "mode": ("x", "5"),
    "save_last": ("x", "5"),
}
_OTHER_VALUES = {
    "seed_everything": ("-1", "x", "1.5", "99999999999999999999"),
    "run": ("../x", "/x", ".", "a/../../x"),
    "ckpt_path": (
        "none.ckpt",
        "last",
        "{files}/empty.ckpt",
        "{files}/text.ckpt",
        "{files}/number.ckpt",
        "{files}/list.ckpt",
        "{files}/no_state.ckpt",
    ),
    "config": (
        "none.yaml",
        "{files}",
        "{files}/list.yaml",
        "{files}/word.yaml",
        "{files}/tabs.yaml",
        "{files}/broken.yaml",
        "{files}/binary.yaml",
        "{files}/unknown_key.yaml",
        "{files}/wrong_type.yaml",
    ),
    "modle": ("5",),
    "trainer.max_stepz": ("5",),
    "checkpoint.nope": ("5",),
}
# What an option needs that this model cannot give.
_FOREIGN_CALLBACKS = (
    "ScalingLaw",
    "SuperpositionGeometry",
    "EmbeddingDeviation",
    "UnembeddingOverlap",
)
_SCHEDULES = ("0", "-1", "x", "[]", "[-1]", "[x]", "1.5", "[1.5]")

_SCHEDULED = (*PACKING, "--trainer.callbacks=PackingGeometry")
_SAVED = (*PACKING, "--trainer.callbacks=CheckpointSchedule")
_POWER = (*TOY, "--data.frequencies=PowerFrequencies")
_EXPONENTIAL = (*TOY, "--data.frequencies=ExponentialFrequencies")


def _each(base: tuple[str, ...], group: str, table: dict[str, tuple[str, ...]]) -> list[Line]:
    return [line for name, bad in table.items() for line in refused(base, f"--{group}{name}", bad)]


FIT = [
    *_each(PACKING, "model.", _PACKING_VALUES),
    *_each(TOY, "model.", _TOY_VALUES),
    *_each(TOY, "data.", _DATA_VALUES),
    *_each(PACKING, "trainer.", _TRAINER_VALUES),
    *_each(PACKING, "checkpoint.", _CHECKPOINT_VALUES),
    *_each(PACKING, "", _OTHER_VALUES),
    *refused(PACKING, "--trainer.callbacks", _FOREIGN_CALLBACKS, named="model"),
    *refused(_SCHEDULED, "--trainer.callbacks.schedule", _SCHEDULES),
    *refused(_SCHEDULED, "--trainer.callbacks.on_error", ("x", "5")),
    *refused(_SCHEDULED, "--trainer.callbacks.nope", ("5",)),
    *refused(_SAVED, "--trainer.callbacks.schedule", _SCHEDULES),
    *refused(_POWER, "--data.frequencies.exponent", ("nan", "x", "inf")),
    *refused(_EXPONENTIAL, "--data.frequencies.scale", ("0", "-1", "nan", "x")),
    Line(_SAVED, "model"),
    Line((*TOY, "--trainer.callbacks=PackingGeometry"), "model"),
    Line(("fit", *_QUIET), "model"),
    Line(("fit", "--model=Nope", *_QUIET), "Nope"),
    Line(("fit", "--model=SparseFeatures", *_QUIET), "model"),
    Line(("fit", "--model=VectorPacking", "--model.dim=3", *_QUIET), "num_vectors"),
    Line((*PACKING, "--ckpt_path={files}"), "{files}"),
    Line((*PACKING, "stray"), "stray"),
    Line((*PACKING, "--"), "--"),
]

_EVALUATIONS = ("validate", "test", "predict")
EVALUATE = [
    Line((command, *rest), named)
    for command in _EVALUATIONS
    for rest, named in (
        (("--ckpt_path=none.ckpt",), "none.ckpt"),
        (("--ckpt_path={files}/text.ckpt",), "text.ckpt"),
        (("--ckpt_path={files}/number.ckpt",), "number.ckpt"),
        (("--ckpt_path=last", *TOY[1:3], "--model.widths=[2]"), "ckpt_path"),
        ((), "model"),
        (("--model=Nope",), "Nope"),
        (("--nope=5", *TOY[1:8]), "nope"),
        (("--trainer.devices=x", *TOY[1:8]), "devices"),
        (("--trainer.nope=5", *TOY[1:8]), "nope"),
        (("--data.batch_size=0", *TOY[1:6]), "batch_size"),
        ((*TOY[1:5], "--data.num_features=11"), "num_features"),
        (("--config={files}/broken.yaml",), "broken.yaml"),
    )
]

_HUGE = ("1000000000000", "1000000000000000000", "1000000000000000000000")
_LANGUAGE = (
    "fit",
    "--model=LanguageModel",
    "--data=TextCorpus",
    "--data.source={files}/corpus.txt",
    "--data.block_size=8",
    "--data.vocab_size=260",
    "--data.batch_size=2",
    "--data.held_out_fraction=0.3",
    *_QUIET,
)
_SIZES = "hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 8"
_CONFIGURED = (*_LANGUAGE, f"--model.config={{model_type: gpt_neox, {_SIZES}}}")
_LANGUAGE_VALUES = {
    "config": (
        "x",
        "5",
        "[]",
        "{}",
        "{model_type: nope}",
        "{hidden_size: 8}",
        "{model_type: gpt_neox, hidden_size: 7, num_attention_heads: 2}",
        "{model_type: gpt_neox, hidden_sizes: 8}",
    ),
    "pretrained": ("",),
    "dtype": ("x", "float64", "5"),
    "lr": ("0", "-1", "nan", "x"),
    "betas": ("[1, 0.9]", "x"),
    "weight_decay": ("nan", "x"),
    "warmup_fraction": ("-1", "2", "x"),
}
_CORPUS_VALUES = {
    "source": ("{files}/none", "{files}/empty_folder", "{files}/empty.csv", ""),
    "vocab_size": ("0", "-1", "x", "1.5", "10"),
    "block_size": ("0", "1", "-1", "x", "1.5"),
    "batch_size": ("0", "-1", "x", "1.5"),
    "held_out_fraction": ("-0.1", "1", "1.5", "nan", "x"),
    "tokenizer": ("{files}/none", "{files}/empty_folder"),
    "seed": ("-1", "x", "1.5"),
}
LANGUAGE = [
    *_each(_LANGUAGE, "model.", {"config": _LANGUAGE_VALUES["config"]}),
    *_each(_LANGUAGE, "model.", {"pretrained": _LANGUAGE_VALUES["pretrained"]}),
    *(
        Line((*_LANGUAGE, f"--model.pretrained={{files}}/{name}"), name)
        for name in ("none", "empty_folder", "bad_config")
    ),
    *_each(
        _CONFIGURED,
        "model.",
        {k: v for k, v in _LANGUAGE_VALUES.items() if k not in {"config", "pretrained"}},
    ),
    *_each(_CONFIGURED, "data.", _CORPUS_VALUES),
    *refused(_CONFIGURED, "--trainer.callbacks", ("ScalingLaw", "PackingGeometry"), named="model"),
    Line((*_CONFIGURED, "--data.block_size=1000000"), "block of 1000000 tokens"),
    *refused(_CONFIGURED, "--model.revision", ("main",)),
]
HUGE = [
    *refused(PACKING, "--model.num_vectors", _HUGE),
    *refused(PACKING, "--model.dim", _HUGE),
    *refused(TOY, "--model.widths", tuple(f"[{size}]" for size in _HUGE)),
    *refused(TOY, "--model.num_features", _HUGE),
    *refused(TOY, "--data.num_features", _HUGE),
    *refused(TOY, "--data.batch_size", _HUGE),
    *refused(_CONFIGURED, "--data.batch_size", _HUGE[1:]),
]
