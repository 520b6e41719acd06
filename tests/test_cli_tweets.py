"""The Sentiment140 task as a user meets it, on invented tweets."""

from pathlib import Path

import pytest

from fedlatest.data import write_generated
from fedlatest.runs import RunFolder
from tests.command_line import fedlatest, fedlatest_here


def test_the_task_in_small_needs_no_files(tmp_path: Path) -> None:
    done = fedlatest_here("run", "tweets", "--rounds", "20", "--set", "rounds_per_day=24", "--out", "o", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = RunFolder(tmp_path / "o")
    assert folder.finished
    assert folder.manifest["data"]["name"] == "generated-tweets"
    assert folder.manifest["config"]["loss"] == "sigmoid_cross_entropy"
    clients = folder.clients()
    assert clients is not None
    assert clients.sent.shape == (90, 96)
    assert (clients.sent.sum(axis=1) == clients.sizes).all()
    assert (clients.window[:, 1] == 8).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough accounts for the paper's 1000 clients."""
    made = tmp_path_factory.mktemp("tweets")
    write_generated(made, 1300)
    return made


def test_a_figure_end_to_end(folder: Path, tmp_path: Path) -> None:
    """The accounts' days, from files in the published formats; runs on other data are not taken for Sentiment140's."""
    done = fedlatest(
        "reproduce", "sentiment140", "--figure", "sleep", "--rounds", "3", "--out", "o", cwd=tmp_path, data=folder
    )
    assert done.returncode == 0, done.stderr
    for name in ("sleep.png", "sleep.pdf"):
        assert (tmp_path / "o/figures" / name).stat().st_size > 5000
    assert RunFolder(tmp_path / "o/fedlaavg").manifest["data"]["name"] == "generated"
    assert "<title>Sentiment140 under intermittent availability</title>" in (tmp_path / "o/report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "nowhere"), "data=nowhere: no such folder"),
        (("--data", "."), "data=.: holds no tweets"),
        (("--set", "digits=3"), "digits: is a key of availability=diurnal"),
        (("--set", "alpha=half"), "alpha=half: expected a number"),
    ],
)
def test_mistakes_are_answered_in_a_line(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = fedlatest_here("run", "sentiment140", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
