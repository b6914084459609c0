"""Results of public functions have names of their own; the earlier names still work."""

import inspect
import pickle
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest

from toolkit import functional, metrics

# The earlier name of each result and the module that defined it, as a pickle names them.
OLD = {
    "AlphaReQ": "_eigenvalues",
    "CellLayout": "reconstruction",
    "CosineHistogram": "cosine_pairs",
    "CosineMoments": "cosine",
    "EmbeddingDeviation": "deviation",
    "Interval": "law_uncertainty",
    "LinearProbe": "probe",
    "MeanAbsCosine": "cosine_pairs",
    "MeanCosine": "spectrum",
    "MeanSquaredOverlap": "superposition",
    "PackingLaw": "capacity",
    "PairwiseAgreement": "agreement",
    "PenaltyWithMax": "packing",
    "PowerLaw": "scaling",
    "SubspacePGA": "pga",
}


@pytest.fixture(params=OLD)
def old(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An earlier name that nothing has asked for yet."""
    name: str = request.param
    functional.__dict__.pop(name, None)
    yield name
    functional.__dict__.pop(name, None)


def named_tuples(annotation: Any) -> set[type]:
    """The named tuples within a type annotation."""
    found = {annotation} if hasattr(annotation, "_fields") else set()
    return found.union(*(named_tuples(part) for part in get_args(annotation)))


def test_every_result_of_a_public_function_is_called_result() -> None:
    public = [getattr(functional, name) for name in functional.__all__]
    functions = [item for item in public if isinstance(item, types.FunctionType)]
    returned = set().union(*(named_tuples(get_type_hints(f)["return"]) for f in functions))

    names = {cls.__name__ for cls in returned}
    assert {name for name in names if not name.endswith("Result")} == set()
    assert {f"{name}Result" for name in OLD} <= names
    assert returned == {item for item in public if inspect.isclass(item)}
    assert not names & set(metrics.__all__)


def test_an_old_name_is_the_same_class_and_warns_once(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"\.{old} is now called {old}Result; ") as caught:
        first = getattr(functional, old)
    second = getattr(functional, old)  # Warnings are errors here.

    assert first is second is getattr(functional, f"{old}Result")
    assert len(caught) == 1


def test_importing_an_old_name_warns_once_where_the_import_stands() -> None:
    # A fresh interpreter: the type checks of the tests stand between a name and its module.
    code = "from toolkit.functional import PowerLaw; print(PowerLaw.__name__)"
    line = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=True)

    assert done.stdout == "PowerLawResult\n"
    assert done.stderr.count("Warning") == 1
    assert done.stderr.startswith("<string>:1: DeprecationWarning: toolkit.functional.PowerLaw is")


def test_a_star_import_takes_no_old_name() -> None:
    assert not set(OLD) & set(functional.__all__)


def test_an_unknown_name_stays_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'embeding_deviation'"):
        functional.embeding_deviation  # type: ignore[attr-defined]  # noqa: B018


def test_a_new_result_has_no_old_name() -> None:
    results = {name for name in functional.__all__ if name.endswith("Result")}
    new = {name.removesuffix("Result") for name in results} - set(OLD)
    assert "TwoNN" in new
    assert not [name for name in new if hasattr(functional, name)]


def test_pickles_find_every_class_by_its_old_name(old: str) -> None:
    stored = f"ctoolkit.functional.{OLD[old]}\n{old}\n.".encode()
    assert pickle.loads(stored) is getattr(functional, f"{old}Result")


def test_a_result_pickled_under_the_old_name_is_read() -> None:
    stored = (
        b"ccopy_reg\n_reconstructor\np0\n(ctoolkit.functional.deviation\nEmbeddingDeviation\np1\n"
        b"c__builtin__\ntuple\np2\n(F0.5\nF0.25\nF0.125\nNI3\nI0\ntp3\ntp4\nRp5\n."
    )
    result = pickle.loads(stored)
    assert result == functional.EmbeddingDeviationResult(0.5, 0.25, 0.125, None, 3, 0)
    assert type(pickle.loads(pickle.dumps(result))) is functional.EmbeddingDeviationResult
