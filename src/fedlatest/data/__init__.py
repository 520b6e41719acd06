"""Data sets and how they are dealt to clients."""

from fedlatest.data.accounts import Deal, deal_accounts
from fedlatest.data.digits import load_digits
from fedlatest.data.federation import Federation
from fedlatest.data.generated import generated_tweets, write_generated
from fedlatest.data.mnist import load_mnist
from fedlatest.data.padding import Vocabulary, padded, vocabulary
from fedlatest.data.partition import PARTITIONS, Partition, by_client, by_label, dirichlet, iid
from fedlatest.data.samples import Samples
from fedlatest.data.tweet_federation import tweet_federation
from fedlatest.data.tweet_set import TweetSet, load_sentiment140
from fedlatest.data.words import Sentences, Words

__all__ = [
    "PARTITIONS",
    "Deal",
    "Federation",
    "Partition",
    "Samples",
    "Sentences",
    "TweetSet",
    "Vocabulary",
    "Words",
    "by_client",
    "by_label",
    "deal_accounts",
    "dirichlet",
    "generated_tweets",
    "iid",
    "load_digits",
    "load_mnist",
    "load_sentiment140",
    "padded",
    "tweet_federation",
    "vocabulary",
    "write_generated",
]
