"""Synthetic tweets in the formats of the real files, for demonstrations, tests and benchmarks without a download."""

import csv
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedlatest.data.federation import SECONDS_PER_DAY
from fedlatest.data.sentiment140.glove import DIMENSIONS, read_glove
from fedlatest.data.sentiment140.parsing import read_tweets
from fedlatest.data.sentiment140.tweet_set import TweetSet
from fedlatest.errors import ConfigError

NUM_WORDS = 400
NUM_SENTIMENT_WORDS = 120  # words that express a sentiment
NUM_UNKNOWN_WORDS = 20  # words without a vector
SENTIMENT_RATE = 0.35  # probability that a word of a tweet expresses a sentiment
AGREEMENT_RATE = 0.8  # probability that this is the sentiment of the tweet
LENGTHS = (2, 16)  # words of a tweet, as a half-open range
FREQUENT_SIZES, RARE_SIZES = (41, 90), (5, 41)  # tweets of an account, as half-open ranges
RARE_SHARE = 0.2  # share of the accounts with few tweets
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DECORATIONS = (
    "@{word}_{number} {text}",
    "{text} http://bit.ly/{word}{number}",
    "{text} www.{word}.com",
    "{text} &amp; {word}",
    "{text} &lt;3",
    "{text}!!! {number}",
    "caf\xe9 {text}",
    '{text} "{word}"',
    "{text}{end}{end}{end}",
    "{shout}",
)
DECORATED, EMPTY = 0.3, 0.01  # shares of the tweets: with one of the decorations, and without any word


def generated_tweets(num_accounts: int = 120, *, seed: int = 0) -> TweetSet:
    """Return tweets of accounts with time zones and sleep, whose words have vectors that correlate with sentiment.

    Most accounts have more than 40 tweets. The result equals that of `write_generated` followed by reading the files.
    """
    with tempfile.TemporaryDirectory() as folder:
        tweets_file, vectors_file = write_generated(folder, num_accounts, seed=seed)
        tweets = read_tweets(tweets_file)
        return TweetSet("generated-tweets", tweets, read_glove(vectors_file, tweets.texts.words))


def write_generated(folder: Path | str, num_accounts: int = 120, *, seed: int = 0) -> tuple[Path, Path]:
    """Write synthetic tweets in the CSV format of Sentiment140 and word vectors in the text format of GloVe.

    Args:
        folder: Where to write; `load_sentiment140(folder)` reads the files.
        num_accounts: Number of accounts.
        seed: Seed of the random numbers.

    Returns:
        The paths of the two files, sentiment140/generated.csv and glove/glove.twitter.27B.25d.txt below `folder`.
    """
    if num_accounts < 1:
        raise ConfigError(f"num_accounts={num_accounts}: must be at least 1")
    rng = np.random.default_rng(seed)
    language = _generate_language(rng)
    tweets_file, vectors_file = (
        Path(folder) / name for name in ("sentiment140/generated.csv", "glove/glove.twitter.27B.25d.txt")
    )
    for path in (tweets_file, vectors_file):
        path.parent.mkdir(parents=True, exist_ok=True)
    with tweets_file.open("w", encoding="latin-1", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(_rows(rng, language, num_accounts))
    with vectors_file.open("w", encoding="utf-8", newline="\n") as file:
        for word, vector in zip(language.words[NUM_UNKNOWN_WORDS:], language.vectors[NUM_UNKNOWN_WORDS:], strict=True):
            file.write(f"{word} {' '.join(f'{value:.5g}' for value in vector)}\n")
    return tweets_file, vectors_file


class _Language(NamedTuple):
    words: list[str]
    sentiment: npt.NDArray[np.float64]  # [words] in [-1, 1], 0 for most
    vectors: npt.NDArray[np.float64]  # [words, 25]


def _generate_language(rng: np.random.Generator) -> _Language:
    """Return words of two or three syllables; sentiment shifts the vector of a word along one direction."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvw" for vowel in "aeiou"]
    words: dict[str, None] = {}  # used as an ordered set
    while len(words) < NUM_WORDS:
        words["".join(rng.choice(syllables, rng.integers(2, 4)))] = None
    sentiment = np.zeros(NUM_WORDS)
    sentiment[-NUM_SENTIMENT_WORDS:] = np.repeat([-1, 1], NUM_SENTIMENT_WORDS // 2) * rng.uniform(
        0.5, 1, NUM_SENTIMENT_WORDS
    )
    direction = rng.standard_normal(DIMENSIONS)
    direction *= 2 / np.linalg.norm(direction)
    return _Language(
        list(words), sentiment, rng.normal(0, 0.5, (NUM_WORDS, DIMENSIONS)) + np.outer(sentiment, direction)
    )


def _rows(rng: np.random.Generator, language: _Language, num_accounts: int) -> list[tuple[str, ...]]:
    """Return the rows of the CSV file in the order of their dates."""
    frequent = rng.random(num_accounts) >= RARE_SHARE
    sizes = np.where(frequent, rng.integers(*FREQUENT_SIZES, num_accounts), rng.integers(*RARE_SIZES, num_accounts))
    account = rng.permutation(np.repeat(np.arange(num_accounts), sizes))
    positive = rng.random(len(account)) < 0.5
    second = _times(rng, account, num_accounts)
    day = np.sort(rng.integers(0, 28, len(account)))
    texts = _texts(rng, language, positive)
    return [
        (
            "4" if positive[i] else "0",
            str(1_467_810_000 + 7 * i),
            f"{WEEKDAYS[day[i] % 7]} Jun {day[i] + 1:02} {_clock(second[i])} PDT 2009",
            "NO_QUERY",
            f"user{account[i]:05}",
            texts[i],
        )
        for i in range(len(account))
    ]


def _times(rng: np.random.Generator, account: npt.NDArray[np.int64], num_accounts: int) -> npt.NDArray[np.int64]:
    """Return seconds after midnight: within 16 hours after the account's waking time; 1 in 30 at a uniform time."""
    waking = rng.integers(0, 24, num_accounts) * 3600 + rng.integers(-3600, 3600, num_accounts)
    awake = waking[account] + 16 * 3600 * rng.beta(1.5, 1.5, len(account))
    at_any_time = rng.random(len(account)) < 1 / 30
    uniform = rng.integers(0, SECONDS_PER_DAY, len(account))
    return np.where(at_any_time, uniform, awake.astype(np.int64)) % SECONDS_PER_DAY


def _texts(rng: np.random.Generator, language: _Language, positive: npt.NDArray[np.bool_]) -> list[str]:
    """Return texts in which some words mostly agree with the sentiment of the tweet and the others are neutral."""
    num_words = rng.integers(*LENGTHS, len(positive))
    total = int(num_words.sum())
    bad, neutral, good = (rng.choice(np.flatnonzero(np.sign(language.sentiment) == sign), total) for sign in (-1, 0, 1))
    is_good = np.repeat(positive, num_words) == (rng.random(total) < AGREEMENT_RATE)
    ids = np.where(rng.random(total) < SENTIMENT_RATE, np.where(is_good, good, bad), neutral).tolist()
    ends = np.cumsum(num_words).tolist()
    texts = [
        " ".join(language.words[word] for word in ids[end - size : end])
        for end, size in zip(ends, num_words.tolist(), strict=True)
    ]
    return [_decorate(rng, text) for text in texts]


def _decorate(rng: np.random.Generator, text: str) -> str:
    """Add a name, URL, HTML entity, repeated letter or capitals to some texts; replace a few by one without words."""
    draw = rng.random()
    if draw < EMPTY:
        return ":-) 2"
    if draw > EMPTY + DECORATED:
        return text
    form, number = rng.choice(DECORATIONS), rng.integers(1, 100)
    return str(form).format(text=text, word=text.split()[0], number=number, end=text[-1], shout=text.upper())


def _clock(second: int) -> str:
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
