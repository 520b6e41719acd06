"""Keys of an experiment: their names, types and defaults, and how `--set KEY=VALUE` overrides them.

An experiment has the common keys below and the keyword arguments of the algorithm, availability model, partition and
model that it names: `mu` belongs to fedprox, `period` to diurnal, `hidden` to mlp, cnn and lstm.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from fedlatest.algorithms import ALGORITHMS, ASYNCHRONOUS
from fedlatest.availability import AVAILABILITY
from fedlatest.data import PARTITIONS, split_accounts
from fedlatest.delays import Interruption
from fedlatest.errors import ConfigError
from fedlatest.experiments.key_names import ALIASES, LISTED
from fedlatest.models import MODELS
from fedlatest.privacy import Mechanism
from fedlatest.simulation.augmentation import AugmentationName
from fedlatest.simulation.row_storage import RememberedType
from fedlatest.simulation.schedules import ScheduleName
from fedlatest.suggestions import did_you_mean

Factory = Callable[..., Any]
COMPONENTS: dict[str, Mapping[str, Factory]] = {
    "algorithm": {**ALGORITHMS, **ASYNCHRONOUS},
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
# Common keys that a recipe need not give; an experiment without one has no value for it.
OPTIONAL: dict[str, Any] = {
    "remembered_dtype": RememberedType,
    "schedule": ScheduleName,
    "schedule_rounds": float,
    "augmentation": AugmentationName,
    "epsilon": Literal["inf"] | float,  # JSON has no infinite number
    "delta": float,
    "clip_norm": float,
    "min_separation": int,
    "max_participations": int,
    "mechanism": Mechanism,
    "delays": str,
    "download_seconds": float,
    "training_seconds": float,
    "training_sigma": float,
    "upload_seconds": float,
    "deadline": float,
    "answers": int,
    "seconds_per_round": int,
    "interruption": Interruption,
    "until": float,
}
_OPTIONS = {"seed": "--seed or --seeds", "seeds": "--seeds", "data": "--data", "device": "--device", "out": "--out"}
SAME_KEY = {"num_local_steps": "local_steps"}  # names in Python: keys
# Arguments of factories that the code passes; a user cannot set them.
_PASSED_BY_CODE = {"clients", "labels", "tweet_set", "num_clients", "seed", "num_features", "num_classes"}
_TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


class Key(NamedTuple):
    """The type and default of a key, and the component that it belongs to."""

    type: Any
    default: Any
    owner: str  # such as "algorithm=fedprox"


def resolve(defaults: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return all keys of an experiment with their values: the recipe's defaults, changed by each KEY=VALUE.

    Raises ConfigError if a key is unknown, a value has the wrong type, or a key without a default is missing.

    >>> from fedlatest.experiments.mnist import DEFAULTS
    >>> resolve(DEFAULTS, ["period=50"])["period"]
    50
    """
    texts = dict(split_pair(override) for override in overrides)
    chosen = {component: texts.get(component, defaults[component]) for component in COMPONENTS}
    for component, name in chosen.items():
        if name not in COMPONENTS[component]:
            raise ConfigError(f"{component}={name}: unknown{suggest_name(component, name)}")
    keys = keys_for(chosen)
    default_keys = keys_for({component: str(defaults[component]) for component in COMPONENTS})
    for key in texts:
        if key not in keys and key not in COMPONENTS:
            raise ConfigError(_unknown_key(key, keys))
    values: dict[str, Any] = dict(chosen)
    for name, (kind, default, owner) in keys.items():
        # The recipe's default counts only if the key belongs to the same component as in the recipe.
        if name in defaults and name in default_keys and default_keys[name].owner == owner:
            default = defaults[name]
        if name in OPTIONAL and name not in texts and name not in defaults:
            continue
        values[name] = parse_value(name, texts[name], kind) if name in texts else default
        if values[name] is inspect.Parameter.empty:
            raise ConfigError(f"{name}: required by {owner}; add --set {name}=...")
    return values


def keys_for(chosen: Mapping[str, str]) -> dict[str, Key]:
    """Return the keys of an experiment with these components (component -> name)."""
    keys = {name: Key(kind, inspect.Parameter.empty, "the recipe") for name, kind in COMMON.items()}
    keys |= {name: Key(kind, None, "the recipe") for name, kind in OPTIONAL.items()}
    for component, name in chosen.items():
        for keyword, key in keywords(COMPONENTS[component][name], f"{component}={name}").items():
            keys.setdefault(keyword, key)
    return keys


def keywords(factory: Factory, owner: str = "") -> dict[str, Key]:
    """Return the keyword arguments of a factory that a user can set as text."""
    hints = get_type_hints(factory)
    parameters = inspect.signature(factory).parameters
    settable = {name for name in parameters if name not in _PASSED_BY_CODE and _is_text_type(hints[name])}
    return {
        name: Key(hints[name], parameter.default, owner) for name, parameter in parameters.items() if name in settable
    }


def describe_type(kind: Any) -> str:
    """Return what a value of a type is, for lists.

    >>> describe_type(Literal["average", "cohort"] | float), describe_type(int)
    ('average|cohort|NUMBER', 'a whole number')
    """
    if kind in _TYPE_NAMES:
        return _TYPE_NAMES[kind]
    return describe_values(Key(kind, None, ""))


def describe_values(key: Key) -> str:
    """Return the default of a key, for lists, and its other values if these are names.

    >>> describe_values(Key(Literal["average", "cohort"] | float, "average", "algorithm=fedlaavg"))
    'average|cohort|NUMBER'
    """
    words, *numbers = _members(key.type) if _is_union(key.type) else (key.type,)
    names = get_args(words) if get_origin(words) is Literal else ()
    has_default = key.default not in (None, inspect.Parameter.empty)
    first = [str(key.default)] if has_default else [] if names else ["..."]
    return "|".join([*first, *(name for name in names if name != key.default), *["NUMBER"] * len(numbers)])


def component_keywords(component: str, values: Mapping[str, Any]) -> dict[str, Key]:
    """Return the settable keyword arguments of the algorithm, partition, ... that the values name."""
    return keywords(COMPONENTS[component][values[component]])


def build_component(component: str, values: Mapping[str, Any], **arguments: Any) -> Any:
    """Call the factory of the algorithm, availability model, partition or model that the values name.

    Args:
        component: a key of COMPONENTS.
        values: the experiment's values, which name the factory and hold its settable keyword arguments.
        **arguments: further arguments of the factory, which a user cannot set.

    Returns:
        What the factory returns.
    """
    settable = {name: values[name] for name in component_keywords(component, values)}
    return COMPONENTS[component][values[component]](**arguments, **settable)


def arrivals_per_step(values: Mapping[str, Any]) -> int | None:
    """Return the buffer of an asynchronous algorithm; None if the values name one with synchronous rounds.

    >>> arrivals_per_step({"algorithm": "fedbuff", "buffer": 5}), arrivals_per_step({"algorithm": "fedavg"})
    (5, None)
    """
    return int(values.get("buffer", 1)) if values["algorithm"] in ASYNCHRONOUS else None


def applicable(overrides: Iterable[str], *, algorithm: str, availability: str) -> list[str]:
    """Return the KEY=VALUE overrides that apply to an algorithm under an availability model.

    Those whose key belongs only to other algorithms or to other availability models are left out.

    >>> applicable(["mu=0.1", "rounds=9"], algorithm="fedavg", availability="always")
    ['rounds=9']
    """
    chosen = {"algorithm": algorithm, "availability": availability}

    def applies(key: str) -> bool:
        owners = {
            component: {name for name, factory in COMPONENTS[component].items() if key in keywords(factory)}
            for component in COMPONENTS
        }
        if any(chosen.get(component) in names for component, names in owners.items()):
            return True
        return not any(owners[component] for component in chosen)

    return [override for override in overrides if applies(key_of(override))]


def split_pair(override: str) -> tuple[str, str]:
    """Split KEY=VALUE into key and value."""
    key, equals, value = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {override}: expected KEY=VALUE, such as --set period=50")
    return key_of(override), value.strip()


def key_of(override: str) -> str:
    """Return the key of a KEY=VALUE; a name that `simulate` uses for a key is replaced by the key.

    >>> key_of("num_local_steps=5")
    'local_steps'
    """
    key = override.partition("=")[0].strip()
    return SAME_KEY.get(key, key)


def parse_value(name: str, text: str, kind: Any) -> Any:
    """Parse the value of a key.

    Args:
        name: the key, for the error message.
        text: the value as text.
        kind: the key's type: int, float, bool, str, a Literal of strings, or a union of a Literal and a number.

    Returns:
        The value, of type `kind`.

    Raises:
        ConfigError: the text is not a value of that type.

    >>> [parse_value("fresh", text, Literal["average", "cohort"] | float) for text in ("cohort", "0.02")]
    ['cohort', 0.02]
    """
    if _is_union(kind):
        words, number = _members(kind)
        if text in get_args(words):
            return text
        try:
            return number(text)
        except ValueError:
            choices = ", ".join(get_args(words))
            raise ConfigError(f"{name}={text}: choose one of {choices}, or give {_TYPE_NAMES[number]}") from None
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
        raise ConfigError(f"{name}={text}: expected {_TYPE_NAMES[kind]}") from None


def suggest_name(component: str, name: str) -> str:
    """Return the end of an error message about an unknown algorithm, availability model, partition or model."""
    return did_you_mean(name, COMPONENTS[component], listed=f"fedlatest list {LISTED[component]}")


def _unknown_key(key: str, keys: Mapping[str, Key]) -> str:
    if key in _OPTIONS:
        return f"{key}: is not a key; use the option {_OPTIONS[key]}"
    owners = [
        f"{component}={name}"
        for component, factories in COMPONENTS.items()
        for name, factory in factories.items()
        if key in keywords(factory)
    ]
    if owners:
        return f"{key}: belongs to {' and '.join(owners)}, which this run does not use"
    known = [*COMPONENTS, *keys]
    return f"{key}: unknown key{did_you_mean(key, known, aliases=ALIASES, listed='fedlatest list keys')}"


def _is_text_type(kind: Any) -> bool:
    """Return whether `parse_value` can parse the type."""
    return kind in (int, float, bool, str) or get_origin(kind) is Literal or _is_union(kind)


def _is_union(kind: Any) -> bool:
    """Return whether a type is the union of a Literal of strings and a number."""
    return len(_members(kind)) == 2


def _members(kind: Any) -> tuple[Any, ...]:
    """Return the Literal and the number type of such a union; nothing for any other type."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    words = [member for member in members if get_origin(member) is Literal]
    numbers = [member for member in members if member in (int, float)]
    return (*words, *numbers) if len(words) == len(numbers) == 1 and len(members) == 2 else ()
