"""Packings read back from runs and files."""

from pathlib import Path

import pytest
from lightning.pytorch.loggers import TensorBoardLogger

from callbacks import PackingGeometry
from tests.callbacks.toy import toy_trainer
from toolkit.commands.capacity.packings import read_packings
from toolkit.models import VectorPacking


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_csv(tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", "seed,d,k,max_abs_cosine", "0,32,2000,0.36", "1,64,4000,0.25")
    assert read_packings(table) == [(2000, 32, 0.36), (4000, 64, 0.25)]
    marked = write(tmp_path / "m.csv", "\ufeffk,d,max_abs_cosine", "2000,32,0.36")
    assert read_packings(marked) == [(2000, 32, 0.36)]


def test_finished_runs_below_a_folder(tmp_path: Path) -> None:
    best = []
    for version, (num_vectors, dim) in enumerate([(8, 3), (10, 4), (12, 5)]):
        logger = TensorBoardLogger(tmp_path, name="runs/packing", version=version)
        model = VectorPacking(num_vectors, dim)
        toy_trainer(PackingGeometry(schedule=[3]), logger=logger, max_steps=5).fit(model)
        best.append(model.best_max_abs_cosine.item())
        if version != 1:  # that one was killed before its end
            (Path(logger.log_dir) / "summary.json").write_text("{}")
    # A finished run of another model.
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "summary.json").write_text("{}")
    packings = read_packings(tmp_path)
    assert [packing[:2] for packing in packings] == [(8, 3), (12, 5)]
    measured = [packing.max_abs_cosine for packing in packings]
    assert measured == pytest.approx([best[0], best[2]], rel=1e-6)


def test_other_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"fit: expected a CSV file or a folder of runs, got .*no"):
        read_packings(tmp_path / "no")
    with pytest.raises(ValueError, match=r"fit: expected packings in .*, found none; a run counts"):
        read_packings(tmp_path)
    with pytest.raises(ValueError, match=r"columns k, d, max_abs_cosine in .*, missing k, d"):
        read_packings(write(tmp_path / "a.csv", "n,m,max_abs_cosine"))
    with pytest.raises(ValueError, match=r"fit: line 3 of .*b.csv: .*'x'"):
        read_packings(write(tmp_path / "b.csv", "k,d,max_abs_cosine", "2,1,1", "2,x,1"))
    with pytest.raises(ValueError, match=r"fit: line 2 of .*c.csv: "):
        read_packings(write(tmp_path / "c.csv", "k,d,max_abs_cosine", "2,1"))


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (f"1{'0' * 40},2,0.5", r"fit: line 2 of .*: expected k from 1 to 1,000,.*, got 133 bits"),
        (f"1{'0' * 5000},2,0.5", r"fit: line 2 of .*: Exceeds the limit"),
        ("8,0,0.5", r"fit: line 2 of .*: expected d from 1 to 1,000,000,000,000, got 0"),
        ("8,2,1.5", r"fit: line 2 of .*: expected max_abs_cosine from 0 to 1, got 1.5"),
        ("8,2,nan", r"fit: line 2 of .*: expected max_abs_cosine from 0 to 1, got nan"),
        ("8,2,", r"fit: line 2 of .*: could not convert string to float: ''"),
        (f"{'8' * 140_000},2,0.5", r"fit: expected a readable CSV file, got .*: field larger than"),
        ("8,2,0.5\n" * 10_001, r"fit: expected at most 10,000 packings in .*, got more"),
    ],
)
def test_packings_that_cannot_be_are_refused(tmp_path: Path, row: str, match: str) -> None:
    table = write(tmp_path / "t.csv", "k,d,max_abs_cosine", row)
    with pytest.raises(ValueError, match=match) as refused:
        read_packings(table)
    assert "\n" not in str(refused.value)


def test_a_file_of_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(bytes(range(128, 256)))
    with pytest.raises(ValueError, match=r"fit: expected a readable CSV file, got .*t.csv: 'utf-8"):
        read_packings(tmp_path / "t.csv")
