"""What the arena compares: predefined availability cases, and methods and cases as the user writes them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedlatest.algorithms import ALGORITHMS, ASYNCHRONOUS
from fedlatest.availability import AVAILABILITY
from fedlatest.errors import ConfigError
from fedlatest.experiments.experiment import Recipe
from fedlatest.experiments.key_names import ALIASES, LISTED
from fedlatest.experiments.settings import key_of, keywords, split_pair
from fedlatest.suggestions import did_you_mean

CASES = {  # availability depends on the label, so that methods which ignore the absent clients learn the wrong mixture
    "always": "availability=always",
    "bernoulli": "availability=labels low=0.05 high=0.95",
    "markov": "availability=markov rate_by=labels correlation=50",
    "sine": "availability=sine rate_by=labels amplitude=0.5 period=100",
    "staircase": "availability=staircase rate_by=labels low=0.2 period=100",
    "interleaved": "availability=interleaved_sine rate_by=labels amplitude=0.5 period=100",
    "diurnal": "availability=diurnal",
    "windows": "availability=windows rounds_per_day=60",
    "departures": "availability=departures rate=0.3 leaving=0.3 leavers=labels",
    "phones": ("availability=trace trace=phones-300.csv.gz devices=sample drop_absent=true wrap=true round_length=300"),
}
# In time: a client that becomes unavailable fails, and the rounds of synchronous methods last at most a minute.
DAY = "seconds_per_round=60 interruption=fail deadline=60 until=86400"
PHONES_IN_TIME = (
    "availability=trace trace=phones-300.csv.gz devices=sample drop_absent=true wrap=true round_length=60 "
    f"delays=phones-300-delays.csv {DAY}"
)
TIMED_CASES = {
    "phones-time": PHONES_IN_TIME,
    "diurnal-time": f"availability=diurnal period=60 training_seconds=10 training_sigma=0.75 {DAY}",
}
TEXT_CASES = {
    "always": "availability=always",
    "sleep": "availability=sleep",
    "sleep-24": "availability=sleep rounds_per_day=24",
}
NOT_BY_DEFAULT = {"phones", *TIMED_CASES}  # cases that are compared only if the user asks for them
METHODS_IN_TIME = (
    "fedavg", "fedlaavg", "fedlaavg_fresh", "fedvarp", "mifa", "scaffold",
    "fedasync", "fedbuff", "ca2fl", "ace", "aced", "fedlaavg_async",
)  # fmt: skip
DELAYS = ("delays", "download_seconds", "training_seconds", "upload_seconds")
KEYS_OF_METHODS = ("participation", "deadline", "answers")  # common keys that a method may change for itself


class NamedOverrides(NamedTuple):
    """A method or an availability case: a name and the KEY=VALUE overrides that define it, its component first."""

    name: str
    overrides: tuple[str, ...]

    @property
    def component(self) -> str:
        """The name of the algorithm or of the availability model."""
        return split_pair(self.overrides[0])[1]


def named_cases(recipe: Recipe) -> Mapping[str, str]:
    """Return the predefined availability cases of a recipe: KEY=VALUE overrides, separated by spaces."""
    if recipe.defaults["partition"] == "account":
        return TEXT_CASES | {"phones-time": PHONES_IN_TIME}
    return CASES | TIMED_CASES


def default_cases(recipe: Recipe) -> list[str]:
    """Return the names of the cases that are compared if the user chooses none."""
    return [name for name in named_cases(recipe) if name not in NOT_BY_DEFAULT]


def ends_at_a_time(*overrides: str) -> bool:
    """Return whether KEY=VALUE overrides set the virtual time at which runs end.

    >>> ends_at_a_time("deadline=60", "until=86400")
    True
    """
    return any(key_of(override) == "until" for override in overrides)


def has_delays(*overrides: str) -> bool:
    """Return whether KEY=VALUE overrides give the clients delays.

    >>> has_delays("training_seconds=10", "deadline=60")
    True
    """
    return any(key_of(override) in DELAYS for override in overrides)


def default_methods(*, in_time: bool = False) -> list[str]:
    """Return the methods that are compared if the user chooses none.

    In cases with virtual time these are METHODS_IN_TIME, otherwise all with synchronous rounds, except sequential SGD
    on pooled data.
    """
    if in_time:
        return list(METHODS_IN_TIME)
    variants = ["fedstale:rates=known", "inverse_probability:rates=known"]
    return [*(name for name, factory in ALGORITHMS.items() if not factory().pooled), *variants]


def parse_methods(texts: Iterable[str]) -> tuple[NamedOverrides, ...]:
    """Return the methods that texts such as `fedavg`, `fedlaavg:fresh=cohort` or `fedavg:answers=8` describe.

    >>> parse_methods(["fedlaavg:fresh=cohort"])
    (NamedOverrides(name='fedlaavg-fresh=cohort', overrides=('algorithm=fedlaavg', 'fresh=cohort')),)
    """
    known = {**ALGORITHMS, **ASYNCHRONOUS}
    return _distinct([_parse("algorithm", text, known, KEYS_OF_METHODS) for text in texts])


def parse_cases(texts: Iterable[str], named: Mapping[str, str]) -> tuple[NamedOverrides, ...]:
    """Return the availability cases that texts such as `diurnal` or `bernoulli:rate=0.1` describe.

    Args:
        texts: names of `named`, or names of availability models with their keys.
        named: predefined cases by name, each with KEY=VALUE overrides separated by spaces.
    """
    return _distinct(
        [
            NamedOverrides(text, tuple(named[text].split()))
            if text in named
            else _parse("availability", text, AVAILABILITY, cases=named)
            for text in texts
        ]
    )


def _parse(
    component: str, text: str, known: Mapping[str, Any], others: Sequence[str] = (), *, cases: Iterable[str] = ()
) -> NamedOverrides:
    name, *changes = text.split(":")
    if name not in known:
        listed = f"fedlatest list {'cases' if cases else LISTED[component]}"
        raise ConfigError(f"{component} {name}: unknown{did_you_mean(name, [*cases, *known], listed=listed)}")
    keys = (*keywords(known[name]), *others)
    for change in changes:
        key, equals, _ = change.partition("=")
        if not equals or key not in keys:
            hint = did_you_mean(key, keys, aliases=ALIASES) if keys else "; it has none"
            raise ConfigError(f"{text}: {change!r} is not KEY=VALUE with a key of {name}{hint}")
    return NamedOverrides("-".join([name, *changes]).replace("/", "_"), (f"{component}={name}", *changes))


def _distinct(choices: Sequence[NamedOverrides]) -> tuple[NamedOverrides, ...]:
    names = [each.name for each in choices]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name}: is given twice")
    return tuple(choices)
