"""Data sets, partitions, and the Federation that the simulator trains on.

May import `fedlatest.files`, `fedlatest.paths`, `fedlatest.digest` and `fedlatest.errors`.
"""

from fedlatest.data.cifar10 import load_cifar10
from fedlatest.data.digits import load_digits
from fedlatest.data.features import Sentences, Words
from fedlatest.data.federation import Federation, Samples
from fedlatest.data.flwr_datasets import federation_from_partitioner
from fedlatest.data.mnist import load_mnist
from fedlatest.data.partition import PARTITIONS, Partition, by_client, by_label, dirichlet, iid
from fedlatest.data.sentiment140 import (
    AccountSplit,
    TweetSet,
    Vocabulary,
    generated_tweets,
    load_sentiment140,
    pad_texts,
    split_accounts,
    tweet_federation,
    vocabulary,
    write_generated,
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
    "federation_from_partitioner",
    "generated_tweets",
    "iid",
    "load_cifar10",
    "load_digits",
    "load_mnist",
    "load_sentiment140",
    "pad_texts",
    "split_accounts",
    "tweet_federation",
    "vocabulary",
    "write_generated",
]
