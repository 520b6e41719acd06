"""What the arena compares in time: keys of methods and cases, first steps of the search, and refused combinations."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedlatest.data import load_digits
from fedlatest.errors import ConfigError
from fedlatest.experiments import RECIPES, FederationBuilder
from fedlatest.experiments.arena import Arena
from fedlatest.experiments.arena_choices import METHODS_IN_TIME, NamedOverrides, named_cases, parse_cases, parse_methods
from fedlatest.experiments.step_search import Point

RECIPE = RECIPES["quickstart"]


def arena(methods: str, cases: str = "diurnal-time", *overrides: str) -> Arena:
    chosen = parse_cases(cases.split(","), named_cases(RECIPE)), parse_methods(methods.split(","))
    return Arena(RECIPE, *chosen, overrides, num_trials=3, num_search_seeds=1, num_seeds=2, root=Path())


def values(methods: str, *overrides: str) -> dict[str, Any]:
    [pair] = arena(methods, "diurnal-time", *overrides).pairs
    return arena(methods, "diurnal-time", *overrides).defaults[pair]


def test_only_synchronous_methods_have_limits_of_rounds() -> None:
    assert values("fedavg")["deadline"] == 60
    assert values("fedavg:deadline=20:answers=8:participation=0.13")["deadline"] == 20
    assert values("fedavg:answers=8")["answers"] == 8
    assert "deadline" not in values("fedbuff")
    assert "deadline" not in values("fedbuff", "deadline=30")
    assert values("fedbuff", "until=3600")["until"] == 3600


@pytest.mark.parametrize(
    ("method", "step"),
    [("fedlaavg_async", 0.1), ("fedlaavg_async:buffer=2", 0.2), ("ace", 0.1), ("ca2fl", 1.0), ("ca2fl:buffer=5", 0.5),
     ("fedbuff", 1.0), ("fedavg", 1.0), ("fedlaavg_async:server_step=0.7", 0.7)],
)  # fmt: skip
def test_the_first_server_step_is_scaled_for_averages_over_all_clients(method: str, step: float) -> None:
    """B / K, where 10 of 100 clients are at work; FedBuff's mean is over the buffer, and a given step is kept."""
    assert values(method)["server_step"] == step


def test_the_mixing_of_fedasync_is_searched_up_to_1() -> None:
    plan = arena("fedasync:mixing=0.3")
    [pair] = plan.pairs
    tried: dict[Point, float] = {}
    for _ in range(4):
        new = plan.next_points(pair, tried, 3)
        tried |= {point: point.server for point in new}
    mixings = [plan.trial(pair, point).values["mixing"] for point in tried]
    assert len({plan.trial(pair, point).name for point in tried}) == 12
    assert min(mixings) < 0.3 < 0.9 < max(mixings) <= 1


def test_the_pace_depends_on_the_method_and_not_on_the_steps() -> None:
    plan = arena("fedavg,fedasync,fedbuff").with_paces(FederationBuilder(load_digits()))
    found = {pair.method.name: plan.trial(pair, Point(1, 0)).values for pair in plan.pairs}
    assert found["fedasync"]["evaluate_every"] == pytest.approx(10 * found["fedbuff"]["evaluate_every"], rel=0.1)
    assert found["fedbuff"]["evaluate_every"] > found["fedavg"]["evaluate_every"] > 10
    assert all(each["rounds"] > 100 * each["evaluate_every"] for each in found.values())
    given = arena("fedavg", "diurnal-time", "evaluate_every=7").with_paces(FederationBuilder(load_digits()))
    [pair] = given.pairs
    assert given.trial(pair, Point()).values["evaluate_every"] == 7


def test_cases_in_time_share_a_compiled_program(tmp_path: Path) -> None:
    """Recorded phones with constant delays, and diurnal availability with log-normal ones."""
    builder = FederationBuilder(load_digits())
    lines = [f"{phone},0,86400" for phone in range(100)]
    (tmp_path / "trace.csv").write_text("\n".join(["client,start,end", *lines]))
    lines = [f"{phone},{5 + phone / 4}" for phone in range(100)]
    (tmp_path / "delays.csv").write_text("\n".join(["client,training_seconds", *lines]))
    phones = named_cases(RECIPE)["phones-time"]
    phones = phones.replace("phones-300.csv.gz", str(tmp_path / "trace.csv"))
    phones = phones.replace("phones-300-delays.csv", str(tmp_path / "delays.csv"))
    plan = arena("fedbuff,fedavg", "diurnal-time")
    both = (*plan.cases, NamedOverrides("phones", tuple(phones.split())))
    plan = replace(plan, cases=both).with_paces(builder)
    for method in plan.methods:
        pairs = [pair for pair in plan.pairs if pair.method == method]
        assert len({plan.trial(pair, Point()).spec(builder).batch_key for pair in pairs}) == 1


def test_an_arena_by_rounds_has_no_pace() -> None:
    plan = arena("fedavg", "diurnal")
    assert plan.with_paces(FederationBuilder(load_digits())) is plan


def test_default_methods_are_valid_in_time() -> None:
    arena(",".join(METHODS_IN_TIME)).check_keys()


@pytest.mark.parametrize(
    ("methods", "cases", "message"),
    [
        ("fedbuff", "always", "fedbuff: is asynchronous and needs a case with virtual time, such as diurnal-time"),
        ("fedavg", "always,diurnal-time", "diurnal-time compares methods by time, and other cases by rounds"),
        ("fedavg:deadline=9", "always", "deadline has no effect in always, which has no delays"),
        ("fedbuff:answers=9", "diurnal-time", "answers ends rounds, and asynchronous methods have none"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(methods: str, cases: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        arena(methods, cases).check_keys()


@pytest.mark.parametrize("override", ["deadline=30", "answers=5"])
def test_a_limit_of_rounds_that_no_method_has_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match=f"--set {override}: .* ends rounds, and all methods .* are asynchronous"):
        arena("fedbuff,ace", "diurnal-time", override).check_keys()
    arena("fedbuff,fedavg", "diurnal-time", override).check_keys()
