"""The command `list`: what can be named on the command line, one kind of it, or one of them in detail."""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from fedlatest.cli.app import app, command_line, out, print_prose
from fedlatest.errors import ConfigError
from fedlatest.suggestions import did_you_mean

if TYPE_CHECKING:
    from fedlatest.experiments.settings import Key

KIND_NAMES = "recipes, algorithms, availability, partitions, models, keys, cases, reproduce"  # a test compares them
ON_TEXTS = ("sleep", "account", "lstm")  # components that train on tweets only
IN_TIME = ("training_seconds=10", "seconds_per_round=60")  # what asynchronous algorithms need
_ARGUMENT = re.compile(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


class Kind(NamedTuple):
    """One kind of names."""

    use: str
    """How a name is used."""
    summaries: Mapping[str, str]
    """Name -> one sentence."""
    show: Callable[[str], None]
    """Prints the details of a name."""


@app.command("list")
def list_names(
    kind: Annotated[str | None, typer.Argument(help=f"One of {KIND_NAMES}.")] = None,
    name: Annotated[str | None, typer.Argument(help="One name of this kind, to see it in detail.")] = None,
) -> None:
    """List recipes, algorithms and other names, and their keys.

    `fedlatest list` shows all names, `fedlatest list algorithms` a sentence about each algorithm, and
    `fedlatest list algorithms fedlaavg` the details of one.
    """
    from fedlatest.experiments.key_names import ALIASES

    kinds = _kinds()
    if kind is None:
        _print_overview(kinds)
        return
    if kind not in kinds:
        owner = next((each for each, (_, summaries, _) in kinds.items() if kind in summaries), None)
        hint = did_you_mean(kind, kinds) if owner is None else f"; did you mean `fedlatest list {owner} {kind}`?"
        raise ConfigError(f"{kind}: cannot be listed{hint}")
    use, summaries, show = kinds[kind]
    if name is None:
        _print_names(kind, use, summaries)
        return
    if name not in summaries:
        hint = did_you_mean(name, summaries, aliases=ALIASES, listed=f"fedlatest list {kind}")
        raise ConfigError(f"{kind} {name}: unknown{hint}")
    print_prose(f"{name}: {summaries[name]}")
    show(name)


def described_arguments(function: Callable[..., Any]) -> dict[str, str]:
    """Return what the docstring of a function says about each of its arguments.

    >>> described_arguments(described_arguments)
    {'function': 'Has a docstring with a section "Args".'}

    Args:
        function: Has a docstring with a section "Args".
    """
    section = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2]
    section = re.split(r"^\S", section, maxsplit=1, flags=re.MULTILINE)[0]
    return {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(section)}


def _kinds() -> dict[str, Kind]:
    from fedlatest.experiments import RECIPES
    from fedlatest.experiments.arena_choices import CASES, TEXT_CASES, TIMED_CASES
    from fedlatest.experiments.key_names import LISTED
    from fedlatest.experiments.settings import COMMON, COMPONENTS, OPTIONAL
    from fedlatest.reproduction.papers import REPRODUCTIONS

    recipes = {recipe.name: recipe.summary for recipe in RECIPES.values()}
    papers = {name: reproduction.title for name, reproduction in REPRODUCTIONS.items()}
    keys = dict.fromkeys([*COMPONENTS, *COMMON, *OPTIONAL, *sorted(_owners())])
    return {
        "recipes": Kind("fedlatest run NAME", recipes, _show_recipe),
        **{
            LISTED[component]: Kind(
                f"--set {component}=NAME",
                {name: _first_line(factory) for name, factory in factories.items()},
                partial(_show_component, component),
            )
            for component, factories in COMPONENTS.items()
        },
        "keys": Kind("--set NAME=VALUE", {key: _sentence(_meaning(key)) for key in keys}, _show_key),
        "cases": Kind("fedlatest arena --availability NAME", TEXT_CASES | CASES | TIMED_CASES, _show_case),
        "reproduce": Kind("fedlatest reproduce NAME", papers, _show_paper),
    }


def _print_overview(kinds: Mapping[str, Kind]) -> None:
    for kind, (use, summaries, _) in kinds.items():
        out.print(Text.assemble((kind, "bold"), f": {use}"))
        print_prose(", ".join(summaries), indent=2)
    out.print("", Text("Details: fedlatest list algorithms, fedlatest list algorithms fedlaavg"), sep="\n")


def _print_names(kind: str, use: str, summaries: Mapping[str, str]) -> None:
    table = Table(kind, "description", box=None, header_style="bold", pad_edge=False)
    for name, summary in summaries.items():
        table.add_row(Text(name), Text(summary))
    out.print(table)
    first = next(iter(summaries))
    out.print("", Text(f"Use: {use}. Details: {command_line('list', kind, first)}"), sep="\n", soft_wrap=True)


def _show_recipe(name: str) -> None:
    """Print the keys that have a value in a recipe."""
    from fedlatest.experiments import RECIPES
    from fedlatest.experiments.settings import COMPONENTS, keys_for

    recipe = RECIPES[name]
    chosen = {component: recipe.defaults[component] for component in COMPONENTS if component in recipe.defaults}
    keys = keys_for(chosen)
    values = {**chosen, **{key: recipe.defaults.get(key, about.default) for key, about in keys.items()}}
    table = Table("key", "value", "meaning", box=None, header_style="bold", pad_edge=False)
    for key, value in values.items():
        if value is not None:
            table.add_row(key, str(value), Text(_sentence(_meaning(key))))
    out.print(table)
    print_prose("Others can be set as well: fedlatest list keys")
    _print_example("run", name)


def _show_component(component: str, name: str) -> None:
    """Print the keys of an algorithm, an availability model, a partition or a model, and a command that uses it."""
    from fedlatest.experiments.key_names import MEANINGS
    from fedlatest.experiments.settings import COMPONENTS, arrivals_per_step, describe_values, keywords

    factory = COMPONENTS[component][name]
    keys, meanings = keywords(factory), MEANINGS | described_arguments(factory)
    if component == "algorithm":
        print_prose(f"paper: {factory().paper}")
        print_prose(f"deployment: {_deployment(factory, has_weighting='weighting' in keys)}")
    print_prose("keys, each with its default and its other values:" if keys else "keys: none")
    for key, about in keys.items():
        out.print(Text(f"  {key}={describe_values(about)}", style="bold"), soft_wrap=True)
        print_prose(meanings[key], indent=6)
    extra = IN_TIME if arrivals_per_step({"algorithm": name}) else ["trace=FILE"] if name == "trace" else []
    settings = [part for each in (f"{component}={name}", *extra) for part in ("--set", each)]
    _print_example("run", "tweets" if name in ON_TEXTS else "digits", *settings)


def _deployment(factory: Callable[..., Any], *, has_weighting: bool) -> str:
    """Return whether an algorithm can be deployed, and with which weighting or why not."""
    if not factory().obstacles_to_deployment():
        return "yes"
    obstacles = factory(**({"weighting": "none"} if has_weighting else {})).obstacles_to_deployment()
    return f"no: {'; '.join(obstacles)}" if obstacles else "yes, with weighting=update or weighting=none"


def _show_key(name: str) -> None:
    """Print the values of a key, what it belongs to, and its values in the recipes."""
    from fedlatest.experiments import RECIPES
    from fedlatest.experiments.settings import COMMON, COMPONENTS, OPTIONAL, describe_type, describe_values

    if name in COMPONENTS:
        print_prose(f"values: {', '.join(COMPONENTS[name])}")
    elif name in COMMON or name in OPTIONAL:
        print_prose(f"values: {describe_type((COMMON | OPTIONAL)[name])}")
    owners: dict[str, list[str]] = {}
    for owner, about in _owners().get(name, {}).items():
        owners.setdefault(f"{name}={describe_values(about)}", []).append(owner)
    for default, names in owners.items():
        print_prose(f"{default} of {', '.join(names)}")
    for recipe in RECIPES.values():
        if name in recipe.defaults:
            print_prose(f"recipe {recipe.name}: {name}={recipe.defaults[name]}")


def _show_case(name: str) -> None:
    """Print a command that compares two methods in a case of the arena."""
    from fedlatest.experiments.arena_choices import CASES, TIMED_CASES

    dataset = "quickstart" if name in CASES | TIMED_CASES else "tweets"
    _print_example("arena", "--dataset", dataset, "--availability", name, "--algorithms", "fedlaavg,fedavg")


def _show_paper(name: str) -> None:
    """Print the figures of a task of the paper."""
    from fedlatest.reproduction.papers import REPRODUCTIONS

    table = Table("figure", "description", box=None, header_style="bold", pad_edge=False)
    for figure, make in REPRODUCTIONS[name].figures.items():
        table.add_row(figure, Text(_first_line(make)))
    out.print(table)
    _print_example("reproduce", name, "--figure", next(iter(REPRODUCTIONS[name].figures)))


def _owners() -> "dict[str, dict[str, Key]]":
    """Return for each key of a component what it belongs to: key -> `algorithm=fedprox` -> its type and default."""
    from fedlatest.experiments.settings import COMPONENTS, keywords

    owners: dict[str, dict[str, Key]] = {}
    for component, factories in COMPONENTS.items():
        for name, factory in factories.items():
            for key, about in keywords(factory, f"{component}={name}").items():
                owners.setdefault(key, {})[about.owner] = about
    return owners


def _meaning(key: str) -> str:
    """Return what a key is; for a key of several algorithms what it is in the first of them."""
    from fedlatest.experiments.key_names import MEANINGS
    from fedlatest.experiments.settings import COMPONENTS

    described = (described_arguments(make) for factories in COMPONENTS.values() for make in factories.values())
    return MEANINGS.get(key) or next(arguments[key] for arguments in described if key in arguments)


def _sentence(text: str) -> str:
    """Return the first sentence of a text."""
    return re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0]


def _first_line(factory: Callable[..., Any]) -> str:
    return (factory.__doc__ or "").strip().splitlines()[0]


def _print_example(*arguments: str) -> None:
    out.print("", Text(f"example: {command_line(*arguments)}"), sep="\n", soft_wrap=True)
