"""Tweets as a Federation: accounts are clients, texts are numbers of words."""

import numpy as np

from fedlatest.data.accounts import Deal
from fedlatest.data.federation import Federation
from fedlatest.data.padding import padded, vocabulary
from fedlatest.data.tweet_set import TweetSet
from fedlatest.data.words import Words


def tweet_federation(tweet_set: TweetSet, deal: Deal) -> Federation:
    """The Federation in which the deal's accounts hold their tweets; label 1 is a positive tweet.

    >>> from fedlatest.data import deal_accounts, generated_tweets
    >>> tweet_set = generated_tweets(20)
    >>> tweet_federation(tweet_set, deal_accounts(tweet_set, num_clients=10)).num_clients
    10
    """
    tweets, texts = tweet_set.tweets, tweet_set.tweets.texts
    table, number = vocabulary(tweet_set, np.concatenate([deal.rows, deal.test_rows]))
    width = max(int(np.diff(texts.offsets)[rows].max(initial=1)) for rows in (deal.rows, deal.test_rows))
    train, test = (Words(*padded(texts, rows, number, width=width)) for rows in (deal.rows, deal.test_rows))
    return Federation(
        name=tweet_set.name,
        features=train,
        labels=tweets.positive[deal.rows].astype(np.int32),
        test_features=test,
        test_labels=tweets.positive[deal.test_rows].astype(np.int32),
        order=np.arange(len(deal.rows), dtype=np.int32),
        offsets=deal.offsets,
        ids=deal.accounts,
        table=table,
        second=deal.sent,
    )
