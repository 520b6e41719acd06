"""Data sets and how they are dealt to clients."""

from fedlatest.data.digits import load_digits
from fedlatest.data.features import Sentences, Words
from fedlatest.data.federation import Federation, Samples
from fedlatest.data.mnist import load_mnist
from fedlatest.data.partition import PARTITIONS, Partition, by_client, by_label, dirichlet, iid
from fedlatest.data.sentiment140.accounts import AccountSplit, split_accounts, tweet_federation
from fedlatest.data.sentiment140.generated import generated_tweets, write_generated
from fedlatest.data.sentiment140.tweet_set import (
    TweetSet,
    Vocabulary,
    load_sentiment140,
    padded,
    vocabulary,
)

__all__ = [
    "PARTITIONS",
    "AccountSplit",
    "Federation",
    "Partition",
    "Samples",
    "Sentences",
    "TweetSet",
    "Vocabulary",
    "Words",
    "by_client",
    "by_label",
    "dirichlet",
    "generated_tweets",
    "iid",
    "load_digits",
    "load_mnist",
    "load_sentiment140",
    "padded",
    "split_accounts",
    "tweet_federation",
    "vocabulary",
    "write_generated",
]
