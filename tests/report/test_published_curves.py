"""Published histories: plain or gzipped CSV files, and error messages that name the file."""

import gzip
from pathlib import Path

import pytest

from fedlatest import DataError
from fedlatest.report import read_published

TEXT = """algorithm,setting,round,train_loss,train_accuracy,test_loss,test_accuracy,seconds
FedAvg,E1,20,0.5,0.9,0.5,0.8,1.0
FedAvg,E1,0,2.0,0.1,2.0,0.1,0.0
SGD,C10,0,2.1,0.1,2.0,0.2,0.0
"""


@pytest.mark.parametrize("name", ["histories.csv", "histories.csv.gz"])
def test_histories_by_algorithm_and_setting(tmp_path: Path, name: str) -> None:
    content = TEXT.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    curves = read_published(tmp_path / name)
    assert list(curves) == [("FedAvg", "E1"), ("SGD", "C10")]
    assert curves["FedAvg", "E1"].rounds.tolist() == [0, 20]
    assert curves["FedAvg", "E1"].train_loss.tolist() == [2.0, 0.5]
    assert curves["SGD", "C10"].test_accuracy.tolist() == [0.2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"algorithm,setting,round,train_loss\n", "lacks the column test_accuracy"),
        (TEXT.replace("0.5", "half").encode(), "cannot be read"),
        (TEXT.replace(",20,", ",,").encode(), "cannot be read"),
        (TEXT.replace("0.5,0.9", "nan,0.9").encode(), r"cannot be read \(round 20 holds a number that is not finite"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"algorithm,setting,round,train_loss,test_accuracy\nFedAvg\n", "cannot be read"),
    ],
)
def test_errors_name_the_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "histories.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"histories.csv: {message}"):
        read_published(path)


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv: cannot be read"):
        read_published(tmp_path / "nowhere.csv")
    (tmp_path / "bad.csv.gz").write_bytes(gzip.compress(TEXT.encode())[:20] + bytes(20))
    with pytest.raises(DataError, match=r"bad\.csv\.gz: cannot be read"):
        read_published(tmp_path / "bad.csv.gz")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(TEXT.encode() * 100)[:40])
    with pytest.raises(DataError, match=r"cut\.csv\.gz: cannot be read"):
        read_published(tmp_path / "cut.csv.gz")
