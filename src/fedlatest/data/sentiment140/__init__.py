"""Sentiment140: tweets with a sentiment, an account and a time, and a federation in which accounts are clients.

The path of the data: `source_files` finds or downloads the files, `parsing` and `glove` read them, `tweet_set` combines
them into a TweetSet, `accounts` selects and splits the tweets and builds the Federation. `generated` produces synthetic
tweets in the same formats. May import the modules of `fedlatest.data`.
"""

from fedlatest.data.sentiment140.accounts import AccountSplit, sleep_window, split_accounts, tweet_federation
from fedlatest.data.sentiment140.generated import generated_tweets, write_generated
from fedlatest.data.sentiment140.tweet_set import TweetSet, Vocabulary, load_sentiment140, pad_texts, vocabulary

__all__ = [
    "AccountSplit",
    "TweetSet",
    "Vocabulary",
    "generated_tweets",
    "load_sentiment140",
    "pad_texts",
    "sleep_window",
    "split_accounts",
    "tweet_federation",
    "vocabulary",
    "write_generated",
]
