"""The command line for the Sentiment140 task, on generated tweets."""

from pathlib import Path

import pytest

from fedlatest import ConfigError, generated_tweets, load_model, split_accounts, tweet_federation
from fedlatest.data import write_generated
from fedlatest.runs import RunFolder
from tests.command_line import fedlatest_here


def test_run_tweets_end_to_end(tmp_path: Path) -> None:
    """The recipe needs no files; it leaves a run, a sleep figure and a model that predicts on texts."""
    done = fedlatest_here("run", "tweets", "--rounds", "20", "--set", "rounds_per_day=24", "--out", "o", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip().startswith("fedlaavg")  # no bar and no empty line for loading
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
    correct = model.predict(federation.test_features, table=federation.table) == federation.test_labels
    assert correct.mean() == pytest.approx(folder.metrics().rows[-1].test_accuracy, abs=1e-6)
    with pytest.raises(ConfigError, match="table: missing; features that are Words need"):
        model.predict(federation.test_features)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough accounts for the paper's 1000 clients."""
    made = tmp_path_factory.mktemp("tweets")
    write_generated(made, 1300)
    return made


@pytest.mark.slow
def test_reproduce_sleep_figure_from_files(folder: Path, tmp_path: Path) -> None:
    """The sleep figure from files in the published formats, with a malformed row.

    The manifest names the data "generated", not Sentiment140; the row is reported on stderr and in the manifest.
    """
    [file] = (folder / "sentiment140").iterdir()
    file.write_text(file.read_text("latin-1") + '"9","?"\n', "latin-1")
    done = fedlatest_here(
        "reproduce", "sentiment140", "--figure", "sleep", "--rounds", "3", "--out", "o", cwd=tmp_path, data=folder
    )
    assert done.returncode == 0, done.stderr
    for name in ("sleep.png", "sleep.pdf"):
        assert (tmp_path / "o/figures" / name).stat().st_size > 5000
    data = RunFolder(tmp_path / "o/fedlaavg").manifest["data"]
    assert data["name"] == "generated"
    assert "rows are malformed and were skipped (first row" in data["notes"][0]
    assert "generated: 1 of" in done.stderr
    assert "<title>Sentiment140 under intermittent availability</title>" in (tmp_path / "o/report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "nowhere"), "data=nowhere: no such folder"),
        (("--data", "."), "data=.: contains no tweets"),
        (("--set", "digits=3"), "digits: belongs to availability=diurnal"),
        (("--set", "alpha=half"), "alpha=half: expected a number"),
    ],
)
def test_user_errors_are_printed_without_a_traceback(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = fedlatest_here("run", "sentiment140", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
