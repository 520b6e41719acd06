"""Published histories: plain or gzipped, and complaints that name the file."""

import gzip
from pathlib import Path

import pytest

from fedlatest import DataError
from fedlatest.report import Claim, read_published, write_claims

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
def test_complaints_name_the_file(tmp_path: Path, content: bytes, message: str) -> None:
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


def test_claims_as_csv(tmp_path: Path) -> None:
    claims = [
        Claim("g", "c, with a comma", "1", "2", True),
        Claim("g", "d", "3", "", False),
        Claim("g", "e", "", "", None),
    ]
    text = write_claims(claims, tmp_path / "claims.csv").read_text()
    assert text.splitlines() == [
        "group,claim,measured,published,verdict",
        'g,"c, with a comma",1,2,holds',
        "g,d,3,,does not hold",
        "g,e,,,not judged",
    ]


def test_claims_as_markdown(tmp_path: Path) -> None:
    claims = [Claim("First", "a | b", "1", "2", True), Claim("Second", "d", "3", "", False)]
    text = write_claims(claims, tmp_path / "claims.md").read_text()
    assert text.splitlines() == [
        "### First",
        "",
        "| claim | measured | published | verdict |",
        "|---|---|---|---|",
        r"| a \| b | 1 | 2 | holds |",
        "",
        "### Second",
        "",
        "| claim | measured | published | verdict |",
        "|---|---|---|---|",
        "| d | 3 |  | **does not hold** |",
    ]
