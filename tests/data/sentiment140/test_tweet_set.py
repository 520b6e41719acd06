"""TweetSet: files are found, downloaded and cached, errors say what to do, and texts are padded correctly."""

import gzip
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest import ConfigError, DataError
from fedlatest.data import TweetSet, generated_tweets, load_sentiment140, pad_texts, vocabulary, write_generated
from fedlatest.data.sentiment140 import source_files
from fedlatest.data.sentiment140.parsing import NAME, Texts, Tweets, encode
from tests.data.http_server import Site, serving

CSV = b"""\
"0","1","Sat Apr 18 14:08:07 PDT 2009","NO_QUERY","ann","@bob the cat"
"4","2","Sun Apr 19 00:00:00 PDT 2009","NO_QUERY","bob","!!"
"4","3","Sun Apr 19 23:59:59 PDT 2009","NO_QUERY","caf\xe9","dog the"
"""
TEST_CSV = CSV.replace(b'"4"', b'"2"')  # like the test set of Sentiment140, which has neutral tweets


def line(word: str, first: float) -> bytes:
    return f"{word} {first}{' 0.5' * 24}\n".encode()


GLOVE = line("the", 1) + line("€", 2) + line("cat", 3)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDLATEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDLATEST_DATA", raising=False)
    return tmp_path / "cache"


def check(tweet_set: TweetSet) -> None:
    """Compare with the three tweets above; "@bob" and "dog" have no vector."""
    name, tweets, vectors = tweet_set
    assert name in (
        "plain",
        "gzipped",
        "training",
        "trainingandtestdata",
    )  # the name of the file, because the set is not complete
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


def write_zip(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as folder:
        for name, content in members.items():
            folder.writestr(name, content)


def write_tweets_zip(path: Path) -> None:
    training = "training.1600000.processed.noemoticon.csv"
    write_zip(path, **{"testdata.manual.2009.06.14.csv": TEST_CSV[:100], training: CSV})


def write_vectors_zip(path: Path) -> None:
    write_zip(path, **{f"glove.twitter.27B.{size}d.txt": b"the" + b" 1" * size + b"\n" for size in (50, 100, 200)},
           **{"glove.twitter.27B.25d.txt": GLOVE})  # fmt: skip


FILE_WRITERS: dict[str, Callable[[Path], object]] = {
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
        FILE_WRITERS[name](folder / name)
    return folder


@pytest.mark.parametrize("tweets", [name for name in FILE_WRITERS if "glove" not in name])
@pytest.mark.parametrize("vectors", [name for name in FILE_WRITERS if "glove" in name])
@pytest.mark.parametrize("below", [False, True])
def test_files_are_found_and_loaded(tmp_path: Path, tweets: str, vectors: str, below: bool) -> None:
    write(tmp_path / "data" / ("sentiment140" if below else ""), tweets)
    write(tmp_path / "data" / ("glove" if below else ""), vectors)
    check(load_sentiment140(tmp_path / "data"))


def test_the_complete_set_is_called_sentiment140(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of tweets of the complete set is patched to 3."""
    monkeypatch.setattr("fedlatest.data.sentiment140.tweet_set.NUM_TWEETS", 3)
    assert load_sentiment140(write(tmp_path, "plain.csv", "glove.twitter.27B.25d.txt")).name == "sentiment140"


def test_the_folder_can_be_set_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDLATEST_DATA", str(write(tmp_path / "data", "plain.csv", "glove.twitter.27B.zip")))
    check(load_sentiment140())


def test_other_files_are_ignored(tmp_path: Path) -> None:
    """The test set, hidden files, and CSV files beside the subfolder sentiment140/ are ignored."""
    folder = write(tmp_path / "data", "glove.twitter.27B.25d.txt")
    write(folder / "sentiment140", "training.1600000.processed.noemoticon.csv")
    (folder / "sentiment140/testdata.manual.2009.06.14.csv").write_bytes(TEST_CSV)
    (folder / "sentiment140/._x.csv").write_bytes(b"\0")
    (folder / "results.csv").write_text("round,loss\n")
    check(load_sentiment140(folder))


MISSING_FILES: dict[str, tuple[str, tuple[str, ...]]] = {
    "contains no tweets; expected trainingandtestdata.zip, ": ("", ("glove.twitter.27B.zip",)),
    "contains no word vectors; expected glove.twitter.27B.25d.txt, ": ("", ("plain.csv",)),
    "gzipped.csv.gz, other.csv.gz could all be the tweets": ("other.csv.gz", ("gzipped.csv.gz",)),
}


@pytest.mark.parametrize("message", MISSING_FILES)
def test_missing_or_ambiguous_files_are_errors(tmp_path: Path, message: str) -> None:
    extra, names = MISSING_FILES[message]
    folder = write(tmp_path / "data", *names)
    if extra:
        (folder / extra).write_bytes(b"")
    with pytest.raises(DataError, match="^" + re.escape(f"data={folder}: {message}")):
        load_sentiment140(folder)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="^" + re.escape(f"data={tmp_path / 'none'}: no such folder")):
        load_sentiment140(tmp_path / "none")


def test_files_are_parsed_once_for_each_content(tmp_path: Path, cache: Path) -> None:
    """Cached results are equal and report no progress; new tweets, new vectors and damaged entries are read again."""
    folder, reports = write(tmp_path / "data", "plain.csv", "glove.twitter.27B.25d.txt"), list[str]()

    def load() -> list[str]:
        reports.clear()
        check(load_sentiment140(folder, on_progress=lambda task, done, total: reports.append(f"{task} {done}/{total}")))
        return list(reports)

    both = [f"reading tweets {len(CSV)}/{len(CSV)}", f"reading word vectors {len(GLOVE)}/{len(GLOVE)}"]
    assert load() == both
    assert load() == []
    for path in (cache / "parsed").iterdir():
        path.write_bytes(path.read_bytes()[:-50])
    assert load() == both
    assert load() == []
    (folder / "plain.csv").write_bytes(CSV.replace(b"!!", b"??"))  # another content, the same words
    assert load() == both[:1]
    (folder / "plain.csv").write_bytes(CSV)
    (folder / "glove.twitter.27B.25d.txt").write_bytes(GLOVE + line("a", 9))
    assert load() == [both[1].replace(str(len(GLOVE)), str(len(GLOVE + line("a", 9))))]


def test_a_cache_that_cannot_be_written_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "data", "plain.csv", "glove.twitter.27B.zip")
    monkeypatch.setenv("FEDLATEST_CACHE", str(folder / "plain.csv"))
    check(load_sentiment140(folder))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server with both files; the number of tweets of the complete set is patched to 3."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(source_files, "NUM_TWEETS", 3)
    with serving() as site:
        for name in ("TWEETS_URL", "VECTORS_URL"):
            path = write(tmp_path / "site", getattr(source_files, name).rpartition("/")[2])
            [page] = path.iterdir()
            site.pages[f"/{page.name}"] = page.read_bytes()
            monkeypatch.setattr(source_files, name, f"{site.url}/{page.name}")
            page.unlink()
        yield site


def test_files_are_downloaded_once(site: Site, cache: Path) -> None:
    reported: dict[str, list[int]] = {}
    check(load_sentiment140(on_progress=lambda task, done, total: reported.setdefault(task, []).append(done)))
    assert list(reported) == [
        "downloading tweets",
        "reading tweets",
        "downloading word vectors",
        "checking word vectors",
        "reading word vectors",
    ]
    assert reported["reading tweets"] == [len(CSV)]  # once, because the check stored its result in the cache
    check(load_sentiment140())
    assert site.requests == ["/trainingandtestdata.zip", "/glove.twitter.27B.zip"]
    assert (cache / "sentiment140/trainingandtestdata.zip.sha256").is_file()
    with (cache / "glove/glove.twitter.27B.zip").open("ab") as file:
        file.write(b"!")
    with pytest.raises(DataError, match=r"glove\.twitter\.27B\.zip: its sha256 is .* was pinned"):
        load_sentiment140()


@pytest.mark.parametrize(
    ("page", "content", "message"),
    [
        ("trainingandtestdata.zip", b"<html>", "cannot be read"),
        ("trainingandtestdata.zip", CSV + CSV, r"contains 6 tweets, expected 3"),
        ("glove.twitter.27B.zip", b"<html>", "cannot be read"),
        ("glove.twitter.27B.zip", b"the 1 2 3\n", r"1 of 1 lines are not a word and 25 numbers \(first line 1"),
    ],
)
def test_downloads_with_unexpected_content_are_rejected(
    site: Site, tmp_path: Path, cache: Path, page: str, content: bytes, message: str
) -> None:
    if not content.startswith(b"<html>"):
        member = "glove.twitter.27B.25d.txt" if "glove" in page else "training.1600000.csv"
        write_zip(tmp_path / "other.zip", **{member: content})
        content = (tmp_path / "other.zip").read_bytes()
    site.pages[f"/{page}"] = content
    with pytest.raises(
        DataError, match=rf"/{page}: does not have the expected content; the download was deleted .*{message}"
    ):
        load_sentiment140()
    assert not list(cache.glob(f"*/{page}*"))


def test_a_failed_download_says_what_to_do(site: Site) -> None:
    site.pages.clear()
    with pytest.raises(DataError, match=r"^trainingandtestdata\.zip was not found .*--data or FEDLATEST_DATA"):
        load_sentiment140()


def test_generated_files_load_like_the_real_ones(tmp_path: Path) -> None:
    write_generated(tmp_path / "data", 5, seed=3)
    loaded, generated = load_sentiment140(tmp_path / "data"), generated_tweets(5, seed=3)
    assert loaded.tweets.accounts == generated.tweets.accounts
    assert loaded.tweets.texts.words == generated.tweets.texts.words
    np.testing.assert_array_equal(loaded.tweets.texts.ids, generated.tweets.texts.ids)
    np.testing.assert_array_equal(loaded.tweets.second, generated.tweets.second)
    np.testing.assert_array_equal(loaded.vectors, generated.vectors)


def set_of(texts: Texts, vectors: list[float]) -> TweetSet:
    """A TweetSet with one-dimensional word vectors."""
    column = np.zeros(len(texts.offsets) - 1, np.int32)
    table = np.array(vectors, np.float32).reshape(-1, 1)
    return TweetSet("test", Tweets(column.astype(bool), column, column, texts, ["ann"], 0), table)


def test_vocabulary_and_padding_by_hand() -> None:
    """ "cat" has no vector, so the table rows are 1 for "the", 2 for "dog" and 0 for all else."""
    texts = encode(["the cat", "", "dog the the", "cat"])
    data = set_of(texts, [0.5, 0, -1])
    table, table_rows = vocabulary(data)
    assert table.tolist() == [[0], [0.5], [-1]]
    assert table_rows.tolist() == [1, 0, 2]
    ids, lengths = pad_texts(texts, np.array([2, 1, 0, 2]), table_rows)
    assert ids.tolist() == [[2, 1, 1], [0, 0, 0], [1, 0, 0], [2, 1, 1]]
    assert lengths.tolist() == [3, 0, 2, 3]
    assert ids.dtype == np.dtype(np.uint8)
    assert lengths.dtype == np.dtype(np.int32)


def test_vocabulary_of_some_tweets() -> None:
    texts = encode(["the cat", "dog"])
    table, table_rows = vocabulary(set_of(texts, [0.5, 0, -1]), rows=np.array([1]))
    assert table.tolist() == [[0], [-1]]
    assert table_rows.tolist() == [0, 0, 1]


def test_padding_to_a_width() -> None:
    texts = encode(["a b", ""])
    table_rows = np.array([1, 2], np.uint8)
    ids, _ = pad_texts(texts, np.array([0]), table_rows, width=4)
    assert ids.tolist() == [[1, 2, 0, 0]]
    ids, lengths = pad_texts(texts, np.array([1]), table_rows)  # one empty text
    assert (ids.tolist(), lengths.tolist()) == ([[0]], [0])
    assert pad_texts(texts, np.zeros(0, int), table_rows)[0].shape == (0, 1)
    for width in (1, 0):
        with pytest.raises(ConfigError, match=f"width={width}: must be at least 2"):
            pad_texts(texts, np.array([0]), table_rows, width=width)


@pytest.mark.parametrize(
    ("num_words", "dtype"), [(255, "uint8"), (256, "uint16"), (65535, "uint16"), (65536, "uint32")]
)
def test_table_rows_have_the_smallest_type(num_words: int, dtype: str) -> None:
    """V words need the row numbers 0 .. V."""
    texts = Texts([str(word) for word in range(num_words)], np.zeros(0, np.int32), np.zeros(1, np.int64))
    table, table_rows = vocabulary(set_of(texts, [1.0] * num_words))
    assert len(table) == num_words + 1
    assert table_rows.dtype == np.dtype(dtype)
    assert table_rows[-1] == num_words


@given(
    texts=st.lists(st.lists(st.sampled_from("abcde"), max_size=4), min_size=1, max_size=8),
    known=st.lists(st.booleans(), min_size=5, max_size=5),
    data=st.data(),
)
def test_padded_texts_look_up_the_right_vectors(texts: list[list[str]], known: list[bool], data: st.DataObject) -> None:
    """The table rows of each text give the vectors of its words, then zeros."""
    encoded = encode(" ".join(words) for words in texts)
    vectors = [float(i + 1) * known[i] for i in range(len(encoded.words))]
    table, table_rows = vocabulary(set_of(encoded, vectors))
    rows = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=6)), np.int64)
    ids, lengths = pad_texts(encoded, rows, table_rows)
    for i, row in enumerate(rows):
        expected = [vectors[encoded.words.index(word)] for word in texts[row]]
        assert table[ids[i], 0].tolist() == expected + [0] * (ids.shape[1] - len(expected))
        assert lengths[i] == len(expected)
