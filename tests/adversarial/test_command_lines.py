"""Every command with what it has to refuse: one line, and the file system as before."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adversarial.command_lines import Line, check_refusal, contents, parameters, tidy
from tests.adversarial.files import prepare
from tests.adversarial.fit_lines import EVALUATE, FIT, HUGE, LANGUAGE
from tests.adversarial.other_lines import AGREE, CAPACITY, EPSILON, GENERAL, PROBE

# What is said of a refused run before it is refused does not reach standard error.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    prepare(folder)
    return folder


@pytest.fixture
def files(prepared: Path) -> Iterator[Path]:
    """The prepared folder, without what a test leaves there."""
    kept = contents(prepared)
    yield prepared
    tidy(prepared, kept)


@pytest.mark.parametrize("line", parameters([*FIT, *LANGUAGE, *HUGE]))
def test_fit_refuses(
    line: Line, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refusal(line, files, monkeypatch, capsys)


@pytest.mark.parametrize("line", parameters(EVALUATE))
def test_validate_test_and_predict_refuse(
    line: Line, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refusal(line, files, monkeypatch, capsys)


@pytest.mark.parametrize("line", parameters([*GENERAL, *CAPACITY, *EPSILON]))
def test_what_reads_files_refuses(
    line: Line, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refusal(line, files, monkeypatch, capsys)


@pytest.mark.parametrize("line", parameters([*AGREE, *PROBE]))
def test_what_runs_models_refuses(
    line: Line, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refusal(line, files, monkeypatch, capsys)


def test_there_are_many_lines() -> None:
    tables = (FIT, LANGUAGE, HUGE, EVALUATE, GENERAL, CAPACITY, EPSILON, AGREE, PROBE)
    lines = {line.args for table in tables for line in table}
    assert len(lines) == sum(map(len, tables)) >= 700
