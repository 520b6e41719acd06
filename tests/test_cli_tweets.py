"""The Sentiment140 task as a user meets it, on invented tweets."""

from pathlib import Path

import pytest

from fedlatest import ConfigError, generated_tweets, load_model, split_accounts, tweet_federation
from fedlatest.data import write_generated
from fedlatest.runs import RunFolder
from tests.command_line import fedlatest, fedlatest_here


def test_the_task_in_small_needs_no_files(tmp_path: Path) -> None:
    """Its run, the picture of its clients' days, and its model on texts."""
    done = fedlatest_here("run", "tweets", "--rounds", "20", "--set", "rounds_per_day=24", "--out", "o", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip().startswith("fedlaavg")  # nothing was loaded for long: no bar, no empty line for it
    assert (tmp_path / "o/sleep.png").stat().st_size > 5000
    folder = RunFolder(tmp_path / "o")
    assert folder.finished
    assert folder.manifest["data"]["name"] == "generated-tweets"
    assert folder.manifest["config"]["loss"] == "sigmoid_cross_entropy"
    clients = folder.clients()
    assert clients is not None
    assert clients.sent.shape == (90, 96)
    assert (clients.sent.sum(axis=1) == clients.sizes).all()
    assert (clients.window[:, 1] == 8).all()
    tweets = generated_tweets()
    federation = tweet_federation(tweets, split_accounts(tweets, num_clients=90))
    model = load_model(tmp_path / "o")
    right = model.predict(federation.test_features, table=federation.table) == federation.test_labels
    assert right.mean() == pytest.approx(folder.metrics().rows[-1].test_accuracy, abs=1e-6)
    with pytest.raises(ConfigError, match="table: texts as numbers of words need theirs"):
        model.predict(federation.test_features)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough accounts for the paper's 1000 clients."""
    made = tmp_path_factory.mktemp("tweets")
    write_generated(made, 1300)
    return made


def test_a_figure_end_to_end(folder: Path, tmp_path: Path) -> None:
    """The accounts' days, from files in the published formats; runs on other data are not taken for Sentiment140's.

    A row that makes no sense is told of, on the screen and in the manifest.
    """
    [file] = (folder / "sentiment140").iterdir()
    file.write_text(file.read_text("latin-1") + '"9","?"\n', "latin-1")
    done = fedlatest(
        "reproduce", "sentiment140", "--figure", "sleep", "--rounds", "3", "--out", "o", cwd=tmp_path, data=folder
    )
    assert done.returncode == 0, done.stderr
    for name in ("sleep.png", "sleep.pdf"):
        assert (tmp_path / "o/figures" / name).stat().st_size > 5000
    data = RunFolder(tmp_path / "o/fedlaavg").manifest["data"]
    assert data["name"] == "generated"
    assert "rows make no sense and are left out (first row" in data["notes"][0]
    assert "generated: 1 of" in done.stderr
    assert "<title>Sentiment140 under intermittent availability</title>" in (tmp_path / "o/report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "nowhere"), "data=nowhere: no such folder"),
        (("--data", "."), "data=.: contains no tweets"),
        (("--set", "digits=3"), "digits: is a key of availability=diurnal"),
        (("--set", "alpha=half"), "alpha=half: expected a number"),
    ],
)
def test_mistakes_are_answered_in_a_line(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = fedlatest_here("run", "sentiment140", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
