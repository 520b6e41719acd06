"""From data and values to a federation: who holds what, and what an availability and a model need to know of it."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedlatest.availability import ClientInfo
from fedlatest.data import AccountSplit, Federation, Samples, TweetSet, tweet_federation
from fedlatest.errors import ConfigError
from fedlatest.experiments.settings import keywords_of, make
from fedlatest.models import Loss, sigmoid_cross_entropy, softmax_cross_entropy

Data = Samples | TweetSet
FOR_TEXTS = {"partition": "account", "model": "lstm"}


class BuiltFederation(NamedTuple):
    """A federation, and what goes with it."""

    federation: Federation
    clients: ClientInfo
    sizes: Mapping[str, int]  # of a model
    loss: Loss
    notes: tuple[str, ...] = ()  # what a user should know of it


class FederationBuilder:
    """Deals data to clients, once for all experiments that deal alike: they then share one Federation."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self._built: dict[tuple[Any, ...], BuiltFederation] = {}

    def build(self, values: Mapping[str, Any]) -> BuiltFederation:
        """What the values name."""
        if values["partition_seed"] < 0:
            raise ConfigError(f"partition_seed={values['partition_seed']}: must be 0 or larger")
        _check_kind(self.data, values)
        keys = ("partition", "num_clients", "partition_seed", *keywords_of("partition", values))
        how = tuple(values[key] for key in keys)
        if how not in self._built:
            if isinstance(self.data, TweetSet):
                self._built[how] = _build_from_tweets(self.data, values)
            else:
                self._built[how] = _build_from_samples(self.data, values)
        return self._built[how]

    @property
    def notes(self) -> list[str]:
        """What a user should know of what was built."""
        return list(dict.fromkeys(note for built in self._built.values() for note in built.notes))


def _build_from_samples(samples: Samples, values: Mapping[str, Any]) -> BuiltFederation:
    num_clients, seed = values["num_clients"], values["partition_seed"]
    partition = make("partition", values, labels=samples.labels, num_clients=num_clients, seed=seed)
    federation = samples.to_federation(partition)
    clients = ClientInfo(federation.client_labels(), federation.num_labels, seed)
    sizes = {"num_features": samples.features.shape[1], "num_classes": federation.num_labels}
    return BuiltFederation(federation, clients, sizes, softmax_cross_entropy)


def _build_from_tweets(tweet_set: TweetSet, values: Mapping[str, Any]) -> BuiltFederation:
    num_clients, seed = values["num_clients"], values["partition_seed"]
    deal = make("partition", values, tweet_set=tweet_set, num_clients=num_clients, seed=seed)
    federation = tweet_federation(tweet_set, deal)
    sent = np.split(deal.second, deal.offsets[1:-1])
    clients = ClientInfo(federation.client_labels(), federation.num_labels, seed, sent)
    sizes = {"num_features": tweet_set.vectors.shape[1]}
    return BuiltFederation(
        federation, clients, sizes, sigmoid_cross_entropy, tuple(_notes(tweet_set, deal, num_clients))
    )


def _notes(tweet_set: TweetSet, deal: AccountSplit, num_clients: int) -> Iterator[str]:
    tweets = tweet_set.tweets
    if tweets.num_malformed:
        total = tweets.num_malformed + len(tweets.positive)
        yield (
            f"{tweet_set.name}: {tweets.num_malformed} of {total} rows make no sense and are left out "
            f"(first {tweets.first_malformed})"
        )
    if deal.num_dropped:
        yield f"{deal.num_dropped} of {num_clients} accounts have no tweet left to train on and are no client"


def _check_kind(data: Data, values: Mapping[str, Any]) -> None:
    """Texts take a partition and a model of their own, and nothing else does."""
    for what, name in FOR_TEXTS.items():
        if isinstance(data, TweetSet) and values[what] != name:
            raise ConfigError(f"{what}={values[what]}: is not for texts; {data.name} takes {what}={name}")
        if not isinstance(data, TweetSet) and values[what] == name:
            raise ConfigError(f"{what}={name}: is for texts, which {data.name} is not; see `fedlatest list`")
