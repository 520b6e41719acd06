"""Keys and values: what `--set KEY=VALUE` may say for a recipe, with types, defaults and helpful complaints.

A recipe's keys are the common ones below and the keywords of the algorithm, availability model, partition and model it
names: `mu` belongs to fedprox, `period` to diurnal, `hidden` to mlp and lstm.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from fedlatest.algorithms import ALGORITHMS
from fedlatest.availability import AVAILABILITY
from fedlatest.data import PARTITIONS, split_accounts
from fedlatest.errors import ConfigError
from fedlatest.models import MODELS

Factory = Callable[..., Any]
CHOICES: dict[str, Mapping[str, Factory]] = {
    "algorithm": ALGORITHMS,
    "availability": AVAILABILITY,
    "partition": {**PARTITIONS, "account": split_accounts},
    "model": MODELS,
}
COMMON: dict[str, type] = {
    "num_clients": int,
    "participation": float,
    "local_steps": int,
    "batch_size": int,
    "learning_rate": float,
    "rounds": int,
    "evaluate_every": int,
    "partition_seed": int,
}
_GIVEN = {"clients", "labels", "tweet_set", "num_clients", "seed", "num_features", "num_classes"}  # not a user's to set
_NAMES = {int: "a whole number", float: "a number", bool: "true or false"}


class Key(NamedTuple):
    """What a key takes, and whose it is."""

    type: Any
    default: Any
    owner: str


def resolve(defaults: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """All keys of an experiment with their values: a recipe's defaults, then each KEY=VALUE.

    >>> from fedlatest.experiments.mnist import DEFAULTS
    >>> resolve(DEFAULTS, ["period=50"])["period"]
    50
    """
    said = dict(split_pair(override) for override in overrides)
    chosen = {what: said.get(what, defaults[what]) for what in CHOICES}
    for what, name in chosen.items():
        if name not in CHOICES[what]:
            raise ConfigError(f"{what}={name}: unknown{did_you_mean(name, CHOICES[what])}")
    keys, usual = keys_for(chosen), keys_for({what: str(defaults[what]) for what in CHOICES})
    for key in said:
        if key not in keys and key not in CHOICES:
            raise ConfigError(_unknown(key, keys))
    values: dict[str, Any] = dict(chosen)
    for name, (kind, default, owner) in keys.items():
        if name in defaults and usual.get(name, Key(None, None, "")).owner == owner:
            default = defaults[name]  # a recipe's default for another component's key of that name says nothing here
        values[name] = parse_value(name, said[name], kind) if name in said else default
        if values[name] is inspect.Parameter.empty:
            raise ConfigError(f"{name}: {owner} needs it; add --set {name}=...")
    return values


def keys_for(chosen: Mapping[str, str]) -> dict[str, Key]:
    """The keys that go with a choice of algorithm, availability, partition and model."""
    keys = {name: Key(kind, inspect.Parameter.empty, "the recipe") for name, kind in COMMON.items()}
    for what, name in chosen.items():
        for keyword, key in keywords(CHOICES[what][name], f"{what}={name}").items():
            keys.setdefault(keyword, key)
    return keys


def keywords(factory: Factory, owner: str = "") -> dict[str, Key]:
    """The keywords of a factory that a user may set."""
    hints = get_type_hints(factory)
    return {
        name: Key(hints[name], parameter.default, owner)
        for name, parameter in inspect.signature(factory).parameters.items()
        if name not in _GIVEN
    }


def make(what: str, values: Mapping[str, Any], **given: Any) -> Any:
    """Build what the values name (an algorithm, a partition, a model) with its own keywords and what is given."""
    return CHOICES[what][values[what]](**given, **{name: values[name] for name in keywords_of(what, values)})


def keywords_of(what: str, values: Mapping[str, Any]) -> dict[str, Key]:
    """The keywords of the algorithm, partition, ... that the values name."""
    return keywords(CHOICES[what][values[what]])


def split_pair(override: str) -> tuple[str, str]:
    """KEY=VALUE as key and value."""
    key, equals, value = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {override}: expected KEY=VALUE, such as --set period=50")
    return key.strip(), value.strip()


def parse_value(name: str, text: str, kind: Any) -> Any:
    """A value of a key, of the type that it takes."""
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise ConfigError(f"{name}={text}: choose one of {', '.join(get_args(kind))}")
        return text
    if kind is bool:
        known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if text.lower() not in known:
            raise ConfigError(f"{name}={text}: expected true or false")
        return known[text.lower()]
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{name}={text}: expected {_NAMES[kind]}") from None


def _unknown(key: str, keys: Mapping[str, Key]) -> str:
    owners = [
        f"{what}={name}"
        for what, factories in CHOICES.items()
        for name, factory in factories.items()
        if key in keywords(factory)
    ]
    if owners:
        return f"{key}: is a key of {' and '.join(owners)}, which this run does not use"
    return f"{key}: unknown key{did_you_mean(key, [*CHOICES, *keys])}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a complaint about an unknown name: a close one, or all there are."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; choose one of {', '.join(known)}"
