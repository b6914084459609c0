"""Command lines of capacity, epsilon, agree and probe that have to be refused."""

from tests.adversarial.command_lines import Line, refused

_ASKED = ("capacity", "--dim=512")
_MATRIX_FILES = (
    "none.npy",
    "{files}",
    "{files}/text.npy",
    "{files}/empty.npy",
    "{files}/object.npy",
    "{files}/vector.npy",
    "{files}/cube.npy",
    "{files}/one_row.npy",
    "{files}/zeros.npy",
    "{files}/nan.npy",
    "{files}/complex.npy",
    "{files}/strings.npy",
    "{files}/no_rows.npy",
    "{files}/no_columns.npy",
    "{files}/text.pt",
    "{files}/dict.pt",
    "{files}/code.pt",
    "{files}/texts.csv",
)
_PACKING_FILES = (
    "none.csv",
    "{files}/empty_folder",
    "{files}/texts.csv",
    "{files}/no_rows.csv",
    "{files}/words.csv",
    "{files}/negative.csv",
    "{files}/zero.csv",
    "{files}/nan.csv",
    "{files}/short_line.csv",
    "{files}/huge.csv",
    "{files}/one_packing.csv",
    "{files}/binary.yaml",
)
CAPACITY = [
    *refused(
        (*_ASKED[:1], "--epsilon=0.1"),
        "--dim",
        ("0", "-5", "x", "1.5", "nan", "inf", "1e999999", "1:2", "3:1:0", ""),
    ),
    *refused(
        _ASKED,
        "--epsilon",
        (
            "0",
            "-0.1",
            "x",
            "nan",
            "inf",
            "1",
            "1.5",
            "0.01:1:1e-9",
            "0.1:0.2:0",
            "0.1:0.2:-1",
            "1:2:3:4",
            "",
        ),
    ),
    *refused(_ASKED, "--num_vectors", ("0", "-5", "x", "nan", "inf", "1:1e12:1")),
    *refused(("capacity",), "--embeddings", _MATRIX_FILES),
    Line(("capacity", "--embeddings={files}/integers.npy"), "epsilon"),
    *refused(("capacity",), "--fit", _PACKING_FILES),
    *refused(("capacity",), "--model", ("Nope", "", "llama")),
    *refused((*_ASKED, "--epsilon=0.1"), "--law", ("x", "", "full,jl")),
    *refused((*_ASKED, "--epsilon=0.1"), "--nope", ("5",)),
    Line(("capacity",), "epsilon"),
    Line(("capacity", "--dim=512"), "dim"),
    Line(("capacity", "--epsilon=0.1"), "dim"),
    Line((*_ASKED, "--epsilon=0.1", "--num_vectors=5"), "num_vectors"),
    Line((*_ASKED, "--epsilon=0.1", "--figure=a.png"), "figure"),
    Line(("capacity", "--fit={files}/packings.csv", "--figure=a.txt"), "figure"),
    Line(
        ("capacity", "--fit={files}/packings.csv", "--figure={files}/text.ckpt/new/a.png"),
        "text.ckpt",
    ),
    Line(("capacity", "--fit={files}/packings.csv", "--figure={files}/folder.png"), "folder.png"),
    Line((*_ASKED, "stray"), "stray"),
]

_MODEL = "{files}/model"
EPSILON = [
    Line(("epsilon", name), name)
    for name in (
        "{files}/none.safetensors",
        "{files}/none.gguf",
        "{files}/none.ckpt",
        "{files}/empty_folder",
        "{files}/empty.safetensors",
        "{files}/text.safetensors",
        "{files}/cut.safetensors",
        "{files}/nan.safetensors",
        "{files}/one_row.safetensors",
        "{files}/zeros.safetensors",
        "{files}/vector.safetensors",
        "{files}/integers.safetensors",
        "{files}/huge_header.safetensors",
        "{files}/empty.gguf",
        "{files}/text.gguf",
        "{files}/empty.ckpt",
        "{files}/text.ckpt",
        "{files}/number.ckpt",
        "{files}/list.ckpt",
        "{files}/no_state.ckpt",
        "{files}/texts.csv",
        "{files}/bad_config",
        "{files}/no_weights",
        "{files}/bad_weights",
    )
] + [
    Line(("epsilon",), "MODEL"),
    Line(("epsilon", ""), "source"),
    Line(("epsilon", "{files}/no_tensor.safetensors"), "tensor"),
    Line(("epsilon", _MODEL, "--rows=x"), "rows"),
    Line(("epsilon", _MODEL, "--rows"), "rows"),
    Line(("epsilon", _MODEL, "--tensor=nope"), "nope"),
    Line(("epsilon", _MODEL, "--tensor=gpt_neox.final_layer_norm.weight"), "final_layer_norm"),
    Line(("epsilon", _MODEL, "--figure=a.txt"), "figure"),
    Line(("epsilon", _MODEL, "--figure=a"), "figure"),
    Line(("epsilon", _MODEL, "--figure={files}/text.ckpt/new/a.png"), "text.ckpt"),
    Line(("epsilon", _MODEL, "--figure={files}/folder.png"), "folder.png"),
    Line(("epsilon", _MODEL, "--csv={files}/text.ckpt/new/a.csv"), "text.ckpt"),
    Line(("epsilon", _MODEL, "--csv={files}/empty_folder"), "empty_folder"),
    Line(("epsilon", _MODEL, "--csv={files}/text.ckpt/a.csv"), "text.ckpt"),
    Line(("epsilon", _MODEL, "--csv=a.csv", "--figure={files}/text.ckpt/new/a.png"), "text.ckpt"),
    Line(("epsilon", _MODEL, "--nope"), "nope"),
    Line(("epsilon", _MODEL, "--revision=x"), "revision"),
    Line(("epsilon", "a/b/c"), "a/b/c"),
]

_PAIR = ("agree", _MODEL, "{files}/other")
_TEXTS = "--texts={files}/texts.csv"
_QUICK = (*_PAIR, _TEXTS, "--num_texts=12", "--k=2", "--num_random=2")
AGREE = [
    *refused(_QUICK, "--num_texts", ("0", "-1", "3", "x", "1.5")),
    *refused(_QUICK, "--k", ("0", "-1", "x", "1.5", "1000000")),
    *refused(_QUICK, "--num_random", ("0", "1", "-1", "x", "1.5")),
    *refused(_QUICK, "--remove", ("-1", "x", "1.5", "12", "100000")),
    *refused(_QUICK, "--max_length", ("0", "-1", "x", "1.5")),
    *refused(_QUICK, "--seed", ("-1", "x", "1.5")),
    *refused(_QUICK, "--pooling", ("x", "first")),
    *refused(_QUICK, "--dtype", ("x", "float64")),
    *refused(
        _QUICK, "--layers", ("x", "2", "-0.1", "nan", "layer_99", "layer_-1", ""), named="layer"
    ),
    *refused(_QUICK, "--figure", ("a.txt", "{files}/text.ckpt/a.png", "{files}/folder.png")),
    *refused(_QUICK, "--csv", ("{files}/text.ckpt/a.csv", "{files}/empty_folder")),
    *refused(
        _PAIR,
        "--texts",
        (
            "none.csv",
            "{files}/empty_folder",
            "{files}/empty.csv",
            "{files}/binary.yaml",
            "{files}/no_rows.csv",
            "{files}/four_texts.csv",
            "nope",
        ),
        named="source",
    ),
    Line(("agree", _TEXTS), "MODEL"),
    Line(("agree", _MODEL, _TEXTS), "models"),
    Line(("agree", _MODEL, _MODEL, _TEXTS), "models"),
    Line(("agree", _MODEL, "{files}/none", _TEXTS, "--num_texts=12"), "none"),
    Line(("agree", _MODEL, "{files}/empty_folder", _TEXTS, "--num_texts=12"), "empty_folder"),
    Line(("agree", _MODEL, "{files}/bad_config", _TEXTS, "--num_texts=12"), "bad_config"),
    Line(("agree", _MODEL, "{files}/no_weights", _TEXTS, "--num_texts=12"), "no_weights"),
    Line(("agree", _MODEL, "{files}/bad_weights", _TEXTS, "--num_texts=12"), "bad_weights"),
    Line((*_QUICK, "--nope"), "nope"),
]

_FOLDERS = ("probe", "--series=Models", "--series.names=[{files}/model]", "--accelerator=cpu")
_PROBE_TEXTS = (
    "--texts.source={files}/texts.csv",
    "--texts.num_train=16",
    "--texts.num_test=12",
)
_OWN_TEXTS = tuple(option.replace("--texts", "--callbacks.texts") for option in _PROBE_TEXTS)
_PGA = (*_FOLDERS, "--callbacks+=SubspacePGA", "--callbacks.k=2", *_OWN_TEXTS)
_EPSILON = (*_FOLDERS, *_PROBE_TEXTS, "--callbacks+=EmbeddingDeviation")
PROBE = [
    Line(("probe",), "series"),
    *refused(("probe",), "--series", ("x", "5", "Nope", "TextSet", "[]")),
    *refused(
        ("probe", "--series=LocalFolders"),
        "--series.pattern",
        (
            "{files}/none",
            "{files}/none*",
            "[]",
            "{files}/empty_folder",
            "{files}/bad_config",
            "{files}/no_weights",
            "{files}/bad_weights",
            "",
        ),
    ),
    *refused(("probe", "--series=LocalFolders"), "--series.nope", ("5",)),
    *refused(
        ("probe", "--series=LightningCheckpoints"), "--series.pattern", ("{files}/none.ckpt",)
    ),
    *(
        Line(
            ("probe", "--series=LightningCheckpoints", f"--series.pattern={{files}}/{name}.ckpt"),
            f"{name}.ckpt",
        )
        for name in ("text", "empty", "number", "no_state")
    ),
    *refused(("probe", "--series=Models"), "--series.names", ("[]", "5")),
    *refused(
        ("probe", "--series=HubRevisions", "--series.repo=a/b"),
        "--series.steps",
        ("x", "[-1]", "[]", "[x]"),
    ),
    *refused(
        ("probe", "--series=HubRevisions", "--series.repo=a/b"), "--series.pattern", ("(", "step")
    ),
    *refused(_EPSILON, "--dtype", ("x", "float64")),
    *refused(_EPSILON, "--accelerator", ("x", "tpu")),
    *refused(_EPSILON, "--max_disk_gb", ("0", "-1", "x", "nan")),
    *refused(_EPSILON, "--run", ("../x", "/x", ".")),
    *refused(_EPSILON, "--nope", ("5",)),
    *refused(_EPSILON, "--texts.num_train", ("0", "-1", "x", "1.5", "1000000")),
    *refused(_EPSILON, "--texts.num_test", ("0", "-1", "x", "1.5", "1000000")),
    *refused(_EPSILON, "--texts.max_length", ("0", "-1", "x", "1.5")),
    *refused(_EPSILON, "--texts.batch_size", ("0", "-1", "x")),
    *refused(_EPSILON, "--texts.pooling", ("x", "5")),
    *refused(_EPSILON, "--texts.seed", ("-1", "x")),
    *refused(
        _EPSILON,
        "--texts.source",
        ("none.csv", "{files}/empty.csv", "{files}/no_rows.csv", "{files}/text.ckpt", "nope"),
    ),
    *refused(_EPSILON, "--callbacks.num_sigma", ("-1", "nan", "x", "inf")),
    *refused(_EPSILON, "--callbacks.rows", ("x", "5")),
    *refused(_EPSILON, "--callbacks.schedule", ("0", "x", "[-1]")),
    *refused(_EPSILON, "--callbacks.tokenizer", ("{files}/none", "{files}/empty_folder")),
    *refused(_PGA, "--callbacks.k", ("0", "-1", "x", "1.5", "100000")),
    *refused(_PGA, "--callbacks.num_null", ("0", "1", "-1", "x")),
    *refused(_PGA, "--callbacks.remove", ("-1", "x", "[]", "12", "[1, 100]")),
    *refused(_PGA, "--callbacks.seed", ("-1", "x")),
    *refused(_PGA, "--callbacks.layers", ("[x]", "[]", "[layer_99]", "5")),
    *refused(
        (*_FOLDERS, "--callbacks+=LinearProbe", *_OWN_TEXTS),
        "--callbacks.l2",
        ("0", "-1", "nan", "x", "[]"),
    ),
    *refused(
        (*_FOLDERS, "--callbacks+=LinearProbe", *_OWN_TEXTS),
        "--callbacks.max_iter",
        ("0", "-1", "x"),
    ),
    *refused(
        (*_FOLDERS, "--callbacks+=Spectrum", *_OWN_TEXTS),
        "--callbacks.fit_range",
        ("[8, 1]", "[0, 4]", "[1]", "x", "5"),
    ),
    *refused(
        (*_FOLDERS, "--callbacks+=TwoNN", *_OWN_TEXTS),
        "--callbacks.discarded_share",
        ("0", "1", "-0.1", "nan", "x"),
    ),
    *refused(
        (*_FOLDERS, *_PROBE_TEXTS), "--callbacks+", ("Nope", "5", "TextSet"), named="callbacks"
    ),
    *refused(
        (*_FOLDERS, *_PROBE_TEXTS), "--callbacks+", ("ScalingLaw", "PackingGeometry"), named="model"
    ),
    *refused(
        _EPSILON,
        "--config",
        ("none.yaml", "{files}/list.yaml", "{files}/broken.yaml", "{files}/unknown_key.yaml"),
    ),
    Line((*_EPSILON, "--data=Nope"), "Nope"),
    Line((*_EPSILON, "--root={files}/text.ckpt"), "text.ckpt"),
    Line((*_EPSILON, "stray"), "stray"),
]

GENERAL = [
    Line((), "command"),
    Line(("fti",), "fit"),
    Line(("",), "command"),
    Line(("--nope",), "command"),
    Line(("fit probe",), "command"),
    Line(("Fit",), "fit"),
    Line(("5",), "command"),
]
