"""The Sentiment140 task in small, on invented tweets: nothing to download."""

from functools import partial
from pathlib import Path
from typing import Any

from fedlatest.data import TweetSet, generated_tweets
from fedlatest.data.progress import ProgressCallback
from fedlatest.errors import ConfigError
from fedlatest.experiments.experiment import Recipe
from fedlatest.experiments.sentiment140 import DEFAULTS as OF_THE_PAPER
from fedlatest.experiments.sentiment140 import experiments_of

DEFAULTS: dict[str, Any] = {**OF_THE_PAPER, "num_clients": 90, "rounds": 1000, "evaluate_every": 10}


def _load(folder: Path | None, *, on_progress: ProgressCallback | None = None) -> TweetSet:
    del on_progress  # invented in no time
    if folder is not None:
        raise ConfigError(f"data={folder}: tweets brings its own data; leave --data out, or run sentiment140")
    return generated_tweets()


tweets = Recipe(
    name="tweets",
    summary="the Sentiment140 task in small, on invented tweets",
    load=_load,
    experiments=partial(experiments_of, DEFAULTS),
    defaults=DEFAULTS,
)
