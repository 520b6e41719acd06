"""Invented tweets in the formats of the real ones: for demonstrations, tests and timings without a download."""

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

NUM_WORDS, NUM_FELT, NUM_UNKNOWN = 400, 120, 20  # in all; that carry sentiment; that have no vector
TELLS, AGREES = 0.35, 0.8  # how often a word carries sentiment, and then that of its tweet
LENGTHS = (2, 16)  # words of a tweet, from and below
NUM_OFTEN, NUM_SELDOM = (41, 90), (5, 41)  # tweets of an account, from and below
SELDOM = 0.2  # of the accounts
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
DECORATED, EMPTY = 0.3, 0.01  # of the tweets


def generated_tweets(num_accounts: int = 120, *, seed: int = 0) -> TweetSet:
    """Accounts with time zones and sleep, most with more than 40 tweets, in words whose vectors tell sentiment.

    The same as writing the files with `write_generated` and reading them.
    """
    with tempfile.TemporaryDirectory() as folder:
        tweets_file, vectors_file = write_generated(folder, num_accounts, seed=seed)
        tweets = read_tweets(tweets_file)
        return TweetSet("generated-tweets", tweets, read_glove(vectors_file, tweets.texts.words))


def write_generated(folder: Path | str, num_accounts: int = 120, *, seed: int = 0) -> tuple[Path, Path]:
    """Write invented tweets as Sentiment140's CSV and their words as GloVe's text file; `load_sentiment140` finds both.

    Returns the paths of the two: sentiment140/generated.csv and glove/glove.twitter.27B.25d.txt below the folder.
    """
    if num_accounts < 1:
        raise ConfigError(f"num_accounts={num_accounts}: give at least one")
    rng = np.random.default_rng(seed)
    language = _invent_language(rng)
    tweets_file, vectors_file = (
        Path(folder) / name for name in ("sentiment140/generated.csv", "glove/glove.twitter.27B.25d.txt")
    )
    for path in (tweets_file, vectors_file):
        path.parent.mkdir(parents=True, exist_ok=True)
    with tweets_file.open("w", encoding="latin-1", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(_rows(rng, language, num_accounts))
    with vectors_file.open("w", encoding="utf-8", newline="\n") as file:
        for word, vector in zip(language.words[NUM_UNKNOWN:], language.vectors[NUM_UNKNOWN:], strict=True):
            file.write(f"{word} {' '.join(f'{value:.5g}' for value in vector)}\n")
    return tweets_file, vectors_file


class _Language(NamedTuple):
    words: list[str]
    feeling: npt.NDArray[np.float64]  # [words] in [-1, 1], 0 for most
    vectors: npt.NDArray[np.float64]  # [words, 25]


def _invent_language(rng: np.random.Generator) -> _Language:
    """Words of two or three syllables; the vectors of those that carry sentiment lean to one side or the other."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvw" for vowel in "aeiou"]
    words: dict[str, None] = {}  # a set that keeps its order
    while len(words) < NUM_WORDS:
        words["".join(rng.choice(syllables, rng.integers(2, 4)))] = None
    feeling = np.zeros(NUM_WORDS)
    feeling[-NUM_FELT:] = np.repeat([-1, 1], NUM_FELT // 2) * rng.uniform(0.5, 1, NUM_FELT)
    direction = rng.standard_normal(DIMENSIONS)
    direction *= 2 / np.linalg.norm(direction)
    return _Language(list(words), feeling, rng.normal(0, 0.5, (NUM_WORDS, DIMENSIONS)) + np.outer(feeling, direction))


def _rows(rng: np.random.Generator, language: _Language, num_accounts: int) -> list[tuple[str, ...]]:
    """Rows of the CSV in the order in which they were sent."""
    often = rng.random(num_accounts) >= SELDOM
    sizes = np.where(often, rng.integers(*NUM_OFTEN, num_accounts), rng.integers(*NUM_SELDOM, num_accounts))
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
    """Seconds after midnight: awake for 16 hours from a waking time of one's own zone, one in 30 sent at any hour."""
    wakes = rng.integers(0, 24, num_accounts) * 3600 + rng.integers(-3600, 3600, num_accounts)
    awake = wakes[account] + 16 * 3600 * rng.beta(1.5, 1.5, len(account))
    sleepless = rng.random(len(account)) < 1 / 30
    return np.where(sleepless, rng.integers(0, SECONDS_PER_DAY, len(account)), awake.astype(np.int64)) % SECONDS_PER_DAY


def _texts(rng: np.random.Generator, language: _Language, positive: npt.NDArray[np.bool_]) -> list[str]:
    """Words of which some agree with the tweet's sentiment, most say nothing; then what else people type."""
    num_words = rng.integers(*LENGTHS, len(positive))
    total = int(num_words.sum())
    bad, neutral, good = (rng.choice(np.flatnonzero(np.sign(language.feeling) == sign), total) for sign in (-1, 0, 1))
    is_good = np.repeat(positive, num_words) == (rng.random(total) < AGREES)
    ids = np.where(rng.random(total) < TELLS, np.where(is_good, good, bad), neutral).tolist()
    ends = np.cumsum(num_words).tolist()
    texts = [
        " ".join(language.words[word] for word in ids[end - size : end])
        for end, size in zip(ends, num_words.tolist(), strict=True)
    ]
    return [_decorated(rng, text) for text in texts]


def _decorated(rng: np.random.Generator, text: str) -> str:
    """Now and then a name, a link, an entity, a repeated letter or capitals; seldom no word at all."""
    chance = rng.random()
    if chance < EMPTY:
        return ":-) 2"
    if chance > EMPTY + DECORATED:
        return text
    form, number = rng.choice(DECORATIONS), rng.integers(1, 100)
    return str(form).format(text=text, word=text.split()[0], number=number, end=text[-1], shout=text.upper())


def _clock(second: int) -> str:
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
