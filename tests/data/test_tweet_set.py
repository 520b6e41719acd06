"""Sentiment140 and GloVe as a set: found, downloaded, cached, told about, and missed with a word on what to do."""

import gzip
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fedlatest import DataError
from fedlatest.data import TweetSet, generated_tweets, load_sentiment140, write_generated
from fedlatest.data.sentiment140 import files as files
from fedlatest.data.sentiment140.glove import check_glove
from fedlatest.data.sentiment140.parsing import NAME
from tests.data.http_server import Site, serving

CSV = b"""\
"0","1","Sat Apr 18 14:08:07 PDT 2009","NO_QUERY","ann","@bob the cat"
"4","2","Sun Apr 19 00:00:00 PDT 2009","NO_QUERY","bob","!!"
"4","3","Sun Apr 19 23:59:59 PDT 2009","NO_QUERY","caf\xe9","dog the"
"""
TEST_CSV = CSV.replace(b'"4"', b'"2"')  # as Sentiment140's own test set, which has neutral tweets


def line(word: str, first: float) -> bytes:
    return f"{word} {first}{' 0.5' * 24}\n".encode()


GLOVE = line("the", 1) + line("€", 2) + line("cat", 3)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDLATEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDLATEST_DATA", raising=False)
    return tmp_path / "cache"


def check(tweet_set: TweetSet) -> None:
    """The three tweets above; neither a @name nor a dog has a vector."""
    name, tweets, vectors = tweet_set
    assert name in ("plain", "gzipped", "training", "trainingandtestdata")  # the file's: this is not all of the set
    assert tweets.positive.tolist() == [False, True, True]
    assert tweets.account.tolist() == [0, 1, 2]
    assert tweets.accounts == ["ann", "bob", "caf\xe9"]
    assert tweets.second.tolist() == [50887, 0, 86399]
    assert tweets.num_malformed == 0
    assert tweets.texts.words == [NAME, "the", "cat", "dog"]
    assert [tweets.texts.text(row) for row in range(3)] == [[NAME, "the", "cat"], [], ["dog", "the"]]
    assert vectors.shape == (4, 25)
    assert vectors.dtype == np.dtype(np.float32)
    assert vectors[:, 0].tolist() == [0, 1, 3, 0]
    assert vectors[:, 24].tolist() == [0, 0.5, 0.5, 0]


def zipped(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as folder:
        for name, content in members.items():
            folder.writestr(name, content)


def write_tweets_zip(path: Path) -> None:
    training = "training.1600000.processed.noemoticon.csv"
    zipped(path, **{"testdata.manual.2009.06.14.csv": TEST_CSV[:100], training: CSV})


def write_vectors_zip(path: Path) -> None:
    zipped(path, **{f"glove.twitter.27B.{size}d.txt": b"the" + b" 1" * size + b"\n" for size in (50, 100, 200)},
           **{"glove.twitter.27B.25d.txt": GLOVE})  # fmt: skip


WAYS: dict[str, Callable[[Path], object]] = {
    "plain.csv": lambda path: path.write_bytes(CSV),
    "gzipped.csv.gz": lambda path: path.write_bytes(gzip.compress(CSV)),
    "training.1600000.processed.noemoticon.csv": lambda path: path.write_bytes(CSV),
    "trainingandtestdata.zip": write_tweets_zip,
    "glove.twitter.27B.25d.txt": lambda path: path.write_bytes(GLOVE),
    "glove.twitter.27B.25d.txt.gz": lambda path: path.write_bytes(gzip.compress(GLOVE)),
    "glove.twitter.27B.zip": write_vectors_zip,
}


def write(folder: Path, *names: str) -> Path:
    for name in names:
        folder.mkdir(parents=True, exist_ok=True)
        WAYS[name](folder / name)
    return folder


@pytest.mark.parametrize("tweets", [name for name in WAYS if "glove" not in name])
@pytest.mark.parametrize("vectors", [name for name in WAYS if "glove" in name])
@pytest.mark.parametrize("below", [False, True])
def test_found_and_loaded(tmp_path: Path, tweets: str, vectors: str, below: bool) -> None:
    write(tmp_path / "data" / ("sentiment140" if below else ""), tweets)
    write(tmp_path / "data" / ("glove" if below else ""), vectors)
    check(load_sentiment140(tmp_path / "data"))


def test_all_of_it_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were three tweets all."""
    monkeypatch.setattr("fedlatest.data.sentiment140.tweet_set.NUM_TWEETS", 3)
    assert load_sentiment140(write(tmp_path, "plain.csv", "glove.twitter.27B.25d.txt")).name == "sentiment140"


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDLATEST_DATA", str(write(tmp_path / "data", "plain.csv", "glove.twitter.27B.zip")))
    check(load_sentiment140())


def test_what_else_lies_there(tmp_path: Path) -> None:
    """The test set, hidden files and a mere copy of the table beside the folder sentiment140/ do not confuse."""
    folder = write(tmp_path / "data", "glove.twitter.27B.25d.txt")
    write(folder / "sentiment140", "training.1600000.processed.noemoticon.csv")
    (folder / "sentiment140/testdata.manual.2009.06.14.csv").write_bytes(TEST_CSV)
    (folder / "sentiment140/._x.csv").write_bytes(b"\0")
    (folder / "results.csv").write_text("round,loss\n")
    check(load_sentiment140(folder))


MISSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "holds no tweets; expected trainingandtestdata.zip, ": ("", ("glove.twitter.27B.zip",)),
    "holds no word vectors; expected glove.twitter.27B.25d.txt, ": ("", ("plain.csv",)),
    "gzipped.csv.gz, other.csv.gz could all be the tweets": ("other.csv.gz", ("gzipped.csv.gz",)),
}


@pytest.mark.parametrize("message", MISSED)
def test_missed(tmp_path: Path, message: str) -> None:
    extra, names = MISSED[message]
    folder = write(tmp_path / "data", *names)
    if extra:
        (folder / extra).write_bytes(b"")
    with pytest.raises(DataError, match="^" + re.escape(f"data={folder}: {message}")):
        load_sentiment140(folder)


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="^" + re.escape(f"data={tmp_path / 'none'}: no such folder")):
        load_sentiment140(tmp_path / "none")


def test_read_once_for_each_content(tmp_path: Path, cache: Path) -> None:
    """From the cache the same comes, and nothing is told; new tweets or vectors are read; a damaged file as well."""
    folder, told = write(tmp_path / "data", "plain.csv", "glove.twitter.27B.25d.txt"), list[str]()

    def load() -> list[str]:
        told.clear()
        check(load_sentiment140(folder, on_progress=lambda what, done, total: told.append(f"{what} {done}/{total}")))
        return list(told)

    both = [f"reading tweets {len(CSV)}/{len(CSV)}", f"reading word vectors {len(GLOVE)}/{len(GLOVE)}"]
    assert load() == both
    assert load() == []
    for path in (cache / "parsed").iterdir():
        path.write_bytes(path.read_bytes()[:-50])
    assert load() == both
    assert load() == []
    (folder / "plain.csv").write_bytes(CSV.replace(b"!!", b"??"))  # not a word more
    assert load() == both[:1]
    (folder / "plain.csv").write_bytes(CSV)
    (folder / "glove.twitter.27B.25d.txt").write_bytes(GLOVE + line("a", 9))
    assert load() == [both[1].replace(str(len(GLOVE)), str(len(GLOVE + line("a", 9))))]


def test_a_cache_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "data", "plain.csv", "glove.twitter.27B.zip")
    monkeypatch.setenv("FEDLATEST_CACHE", str(folder / "plain.csv"))
    check(load_sentiment140(folder))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server that has both files, the tweets being three."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(files, "NUM_TWEETS", 3)
    with serving() as site:
        for name in ("TWEETS_URL", "VECTORS_URL"):
            path = write(tmp_path / "site", getattr(files, name).rpartition("/")[2])
            [page] = path.iterdir()
            site.pages[f"/{page.name}"] = page.read_bytes()
            monkeypatch.setattr(files, name, f"{site.url}/{page.name}")
            page.unlink()
        yield site


def test_downloaded_once(site: Site, cache: Path) -> None:
    heard: dict[str, list[int]] = {}
    check(load_sentiment140(on_progress=lambda what, done, total: heard.setdefault(what, []).append(done)))
    assert list(heard) == [
        "downloading tweets",
        "reading tweets",
        "downloading word vectors",
        "checking word vectors",
        "reading word vectors",
    ]
    assert heard["reading tweets"] == [len(CSV)]  # once: the check left its work in the cache
    check(load_sentiment140())
    assert site.asked == ["/trainingandtestdata.zip", "/glove.twitter.27B.zip"]
    assert (cache / "sentiment140/trainingandtestdata.zip.sha256").is_file()
    with (cache / "glove/glove.twitter.27B.zip").open("ab") as file:
        file.write(b"!")
    with pytest.raises(DataError, match=r"glove\.twitter\.27B\.zip: its sha256 is .* was pinned"):
        load_sentiment140()


@pytest.mark.parametrize(
    ("page", "content", "message"),
    [
        ("trainingandtestdata.zip", b"<html>", "cannot be read"),
        ("trainingandtestdata.zip", CSV + CSV, r"holds 6 tweets, expected 3"),
        ("glove.twitter.27B.zip", b"<html>", "cannot be read"),
        ("glove.twitter.27B.zip", b"the 1 2 3\n", r"1 of 1 lines are not a word and 25 numbers \(first line 1"),
    ],
)
def test_downloads_of_something_else(
    site: Site, tmp_path: Path, cache: Path, page: str, content: bytes, message: str
) -> None:
    if not content.startswith(b"<html>"):
        member = "glove.twitter.27B.25d.txt" if "glove" in page else "training.1600000.csv"
        zipped(tmp_path / "other.zip", **{member: content})
        content = (tmp_path / "other.zip").read_bytes()
    site.pages[f"/{page}"] = content
    with pytest.raises(DataError, match=rf"/{page}: is not what it should be, nothing is kept of it .*{message}"):
        load_sentiment140()
    assert not list(cache.glob(f"*/{page}*"))


def test_offline(site: Site) -> None:
    site.pages.clear()
    with pytest.raises(DataError, match=r"^trainingandtestdata\.zip is not here .*--data or FEDLATEST_DATA"):
        load_sentiment140()


def test_structure_of_word_vectors(tmp_path: Path) -> None:
    """One line of 100 may be odd (1%), two may not; a file without lines is no vectors."""
    path, good = tmp_path / "v.txt", b"a 1 2\n"
    path.write_bytes(good * 99 + b"b 1\n")
    check_glove(path, dimensions=2)
    path.write_bytes(good * 98 + b"b 1\n" * 2)
    with pytest.raises(DataError, match=r"2 of 100 lines are not a word and 2 numbers \(first line 99: b 1\)"):
        check_glove(path, dimensions=2)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="0 of 0 lines"):
        check_glove(path, dimensions=2)


def test_what_is_generated_loads_as_the_real(tmp_path: Path) -> None:
    write_generated(tmp_path / "data", 5, seed=3)
    loaded, generated = load_sentiment140(tmp_path / "data"), generated_tweets(5, seed=3)
    assert loaded.tweets.accounts == generated.tweets.accounts
    assert loaded.tweets.texts.words == generated.tweets.texts.words
    np.testing.assert_array_equal(loaded.tweets.texts.ids, generated.tweets.texts.ids)
    np.testing.assert_array_equal(loaded.tweets.second, generated.tweets.second)
    np.testing.assert_array_equal(loaded.vectors, generated.vectors)
