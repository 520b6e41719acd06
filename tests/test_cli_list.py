"""`fedlatest list`: an overview, one kind of names, and one name in detail with a command that runs."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedlatest.algorithms import ALGORITHMS, ASYNCHRONOUS
from fedlatest.cli.listing import KIND_NAMES
from fedlatest.experiments import RECIPES, FederationBuilder
from fedlatest.experiments.key_names import ALIASES, LISTED, MEANINGS
from fedlatest.experiments.settings import COMMON, COMPONENTS, OPTIONAL, keywords
from fedlatest.reproduction.papers import REPRODUCTIONS
from fedlatest.runs import RunFolder
from tests.algorithms.test_deployability import CAN_BE_DEPLOYED
from tests.command_line import fedlatest, fedlatest_here

NAMES = [(component, name) for component, factories in COMPONENTS.items() for name in factories]


@pytest.fixture(scope="module")
def builders() -> dict[str, FederationBuilder]:
    """The data of the recipes that the examples use."""
    return {name: FederationBuilder(RECIPES[name].load(None)) for name in ("digits", "tweets")}


def test_the_overview_fits_on_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    done = fedlatest("list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) < 60
    for name in (*RECIPES, *REPRODUCTIONS, *(name for _, name in NAMES), *COMMON, *OPTIONAL):
        assert name in done.stdout
    assert all(f"{kind}\x1b[0m: " in done.stdout for kind in KIND_NAMES.split(", "))


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_kind_has_a_line_for_each_name(component: str, tmp_path: Path) -> None:
    """The output is not a terminal, so nothing is cut or wrapped."""
    lines = fedlatest_here("list", LISTED[component], cwd=tmp_path).stdout.splitlines()
    assert len(lines) == 1 + len(COMPONENTS[component]) + 2
    for line, (name, factory) in zip(lines[1:], COMPONENTS[component].items(), strict=False):
        assert line.split() == [name, *(factory.__doc__ or "").strip().splitlines()[0].split()]


@pytest.mark.parametrize("kind", ["recipes", "keys", "cases", "reproduce"])
def test_other_kinds_are_listed(kind: str, tmp_path: Path) -> None:
    done = fedlatest_here("list", kind, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = {"recipes": RECIPES, "keys": {**COMPONENTS, **COMMON, **OPTIONAL}, "reproduce": REPRODUCTIONS}
    first_words = {line.split()[0] for line in done.stdout.splitlines() if line}
    assert first_words >= set(names.get(kind, ["always", "sleep-24", "phones-time"]))
    for name in names.get(kind, ()):
        detail = fedlatest_here("list", kind, name, cwd=tmp_path)
        assert detail.returncode == 0, detail.stderr
        assert detail.stdout.startswith(f"{name}: ")


@pytest.mark.parametrize(("component", "name"), NAMES)
def test_details_name_every_key_and_a_command_that_runs(
    component: str, name: str, builders: dict[str, FederationBuilder], tmp_path: Path
) -> None:
    """The experiment of the example can be built; a trace needs a file of the user."""
    text = fedlatest_here("list", LISTED[component], name, cwd=tmp_path).stdout
    for key in keywords(COMPONENTS[component][name]):
        assert f"\n  {key}=" in text
    *_, last = text.splitlines()
    assert last.startswith("example: fedlatest run ")
    assert f"{component}={name}" in last
    recipe, *options = shlex.split(last)[3:]
    if name != "trace":
        for experiment in RECIPES[recipe].experiments(options[1::2]):
            experiment.spec(builders[recipe])


@pytest.mark.parametrize("name", [*ALGORITHMS, *ASYNCHRONOUS])
def test_details_of_an_algorithm_say_whether_it_can_be_deployed(name: str, tmp_path: Path) -> None:
    text = fedlatest_here("list", "algorithms", name, cwd=tmp_path).stdout
    answer = "yes, with weighting=update or weighting=none" if CAN_BE_DEPLOYED.get(name, False) else "no: "
    assert f"\ndeployment: {answer}" in text
    assert f"\npaper: {COMPONENTS['algorithm'][name]().paper}\n" in text


def test_details_explain_the_keys(tmp_path: Path) -> None:
    text = fedlatest_here("list", "algorithms", "fedlaavg", cwd=tmp_path).stdout
    assert "\n  empty_round=step|hold\n      What happens when nobody takes part: " in text
    assert "\n  fresh=average|cohort|NUMBER\n" in text
    text = fedlatest_here("list", "keys", "learning_rate", cwd=tmp_path).stdout
    assert "values: a number\nrecipe quickstart: learning_rate=0.05\n" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedlaavg", "fedbuff"])
def test_the_example_runs(name: str, tmp_path: Path) -> None:
    *_, last = fedlatest_here("list", "algorithms", name, cwd=tmp_path).stdout.splitlines()
    done = fedlatest_here(*shlex.split(last)[2:], "--rounds", "3", "--out", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert RunFolder(tmp_path / "r").finished


def test_every_meaning_and_alias_belongs_to_a_key() -> None:
    def settable() -> Iterator[str]:
        for component, name in NAMES:
            yield from keywords(COMPONENTS[component][name])

    keys = {*COMPONENTS, *COMMON, *OPTIONAL, *settable()}
    assert set(MEANINGS) <= keys
    assert {*COMPONENTS, *COMMON, *OPTIONAL} <= set(MEANINGS)
    assert {meant for names in ALIASES.values() for meant in names.split()} <= keys
    assert not set(ALIASES) & keys


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("algoritms",), "algoritms: cannot be listed; did you mean algorithms?"),
        (("fedavg",), "fedavg: cannot be listed; did you mean `fedlatest list algorithms fedavg`?"),
        (("algorithms", "FedLaAvg"), "algorithms FedLaAvg: unknown; did you mean fedlaavg?"),
        (("algorithms", "xyzzy"), "algorithms xyzzy: unknown; `fedlatest list algorithms` lists the names"),
        (("keys", "lr"), "keys lr: unknown; did you mean learning_rate?"),
        (("models", "xyzzy"), "models xyzzy: unknown; choose one of cnn, logistic, lstm, mlp"),
    ],
)
def test_unknown_names_are_corrected(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = fedlatest_here("list", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"error: {message}\n"
