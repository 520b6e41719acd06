"""`fedlatest explain` and `fedlatest advise` as a user meets them."""

import re
from pathlib import Path

import pytest

from tests.test_cli import fedlatest


def test_explain_example1(tmp_path: Path) -> None:
    """Four rounds of client 1 for one of client 2: tables, words and a figure."""
    done = fedlatest("explain", "example1", "--t1", "4", "--t2", "1", "--learning-rate", "0.05", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"FedAvg +0\.\d+ +0\.\d+ +\d\.\de[-+]\d+ +-0\.2\d+", done.stdout)
    assert re.search(r"FedLaAvg +0\.5000000 +0\.5000000", done.stdout)
    assert "Play and formulas agree to 1e-06." in done.stdout
    assert re.search(r"M_R = (\d+) of R = \1 rounds", done.stdout)
    assert (tmp_path / "example1.png").read_bytes().startswith(b"\x89PNG")


def test_explain_rate(tmp_path: Path) -> None:
    """Nine settings, none of which violates the bound; the fitted exponents beside the promised ones."""
    done = fedlatest("explain", "rate", "--seeds", "2", "--out", "rate.pdf", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "9 of 9 settings stay under Theorem 3's bound for every one of 2 seeds." in done.stdout
    assert re.search(r"Fitted: N\^\(-0\.2\d\d, .* and T\^\(-0\.(49|50)\d, ", done.stdout)
    assert (tmp_path / "rate.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explain", "example1", "--learning-rate", "0.6"), "learning_rate=0.6: Theorem 1 is for steps above 0"),
        (("explain", "example1", "--t2", "0"), "t2=0: must be at least 1; client 2 would never be here"),
        (("explain", "rate", "--kind", "cubic"), "--kind cubic: choose one of logcosh, quadratic"),
        (("explain", "example1", "--out", "x.txt"), "--out x.txt: a figure's name ends in .png or .pdf"),
    ],
)
def test_nonsense(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = fedlatest(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
