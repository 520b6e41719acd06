"""Compiled programs are identified by value: equal ones compile once, different ones are never mixed up."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

from fedlatest import Algorithm, Result, always, fedavg, fedlaavg, fedprox, logistic, simulate
from fedlatest.identity import ByValue, describe, value_key
from fedlatest.simulation import ExperimentSpec, rounds
from fedlatest.simulation.compilation_cache import enable_compilation_cache
from tests.problems import small_federation

FEDERATION = small_federation(8, seed=1)


def run(algorithm: Algorithm, **options: Any) -> Result:
    model = logistic(num_features=4, num_classes=3)
    defaults: dict[str, Any] = {"rounds": 3, "cohort_size": 3, "num_local_steps": 2, "batch_size": 3}
    return simulate(FEDERATION, model, algorithm, always(8), **(defaults | options))


def scaled(factor: Any) -> Algorithm:
    """FedAvg whose local steps are scaled by a captured number; name and settings do not show it."""

    def direction(gradient: Any, *rest: Any) -> Any:
        return jax.tree.map(lambda g: factor * g, gradient)

    return replace(fedavg(), direction=direction)


def num_programs() -> int:
    """Return how many programs of a block of rounds this process has compiled."""
    jitted: Any = rounds.advance
    return int(jitted._cache_size())


def test_captured_values_tell_algorithms_apart() -> None:
    """Closures of one factory share their code; only what they capture differs."""
    small, large = run(scaled(0.1)), run(scaled(3.0))
    assert np.abs(small.params["weight"] - large.params["weight"]).max() > 1e-4


FACTOR = 0.1  # a global that the function below names


def test_changed_globals_tell_algorithms_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook changes a global and calls the same code again."""

    def direction(gradient: Any, *rest: Any) -> Any:
        return jax.tree.map(lambda g: FACTOR * g, gradient)

    algorithm = replace(fedavg(), direction=direction)
    small = run(algorithm)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3.0)
    assert np.abs(small.params["weight"] - run(algorithm).params["weight"]).max() > 1e-4


def test_an_array_changed_in_place_tells_algorithms_apart() -> None:
    factor = np.full(1, 0.1, np.float32)
    small = run(scaled(factor))
    factor[:] = 3.0
    assert np.abs(small.params["weight"] - run(scaled(factor)).params["weight"]).max() > 1e-4


def test_an_equal_experiment_compiles_nothing() -> None:
    """The algorithm, the model and the federation's availability are made anew; numbers may differ."""
    run(scaled(0.1))
    run(fedprox(mu=0.1), learning_rate=0.1)
    count = num_programs()
    run(scaled(0.1))
    run(fedprox(mu=0.9), learning_rate=0.3)
    assert num_programs() == count
    run(scaled(0.2))
    assert num_programs() == count + 1


def test_server_optimizers_are_told_apart() -> None:
    first, second = (run(fedavg(server_optimizer=optax.trace(decay))) for decay in (0.0, 0.9))
    assert np.abs(first.params["weight"] - second.params["weight"]).max() > 1e-5


def make(factor: Any) -> Callable[[float], Any]:
    return lambda x: factor * x


def make_recursive(step: int) -> Callable[[int], int]:
    def count(n: int) -> int:
        return 0 if n <= 0 else 1 + count(n - step)

    return count


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (make(2), make(2), True),
        (make(2), make(3), False),
        (make(1), make(1.0), False),  # they compute numbers of different types
        (make((1, "a")), make((1, "a")), True),
        (make([1]), make([2]), False),
        (make({"a": 1}), make({"a": 2}), False),
        (make(make(2)), make(make(2)), True),
        (make(make(2)), make(make(3)), False),
        (make_recursive(1), make_recursive(1), True),
        (make_recursive(1), make_recursive(2), False),
        (make(np.ones(2)), make(np.ones(2)), True),
        (make(np.ones(2)), make(np.zeros(2)), False),
        (make(0.0), make(-0.0), False),
        (fedlaavg(), fedlaavg(), True),
        (fedlaavg(), fedlaavg(empty_round="hold"), False),
        (optax.trace(0.5), optax.trace(0.5), True),
        (optax.trace(0.5), optax.trace(0.6), False),
    ],
)
def test_identity_by_value(left: Any, right: Any, equal: bool) -> None:
    assert (value_key(left) == value_key(right)) == equal
    assert (ByValue(left) == ByValue(right)) == equal
    assert not equal or hash(ByValue(left)) == hash(ByValue(right))


def test_defaults_are_part_of_the_identity() -> None:
    def make_with_default(value: int) -> Callable[[int], int]:
        def function(x: int, y: int = value) -> int:
            return x + y

        return function

    assert value_key(make_with_default(1)) == value_key(make_with_default(1)) != value_key(make_with_default(2))


def test_descriptions_name_what_is_captured() -> None:
    """They are stored with a run and compared when it is resumed."""
    assert describe(optax.linear_schedule(0.1, 0.0, 5)).startswith("polynomial_schedule(end_value=0.0, init_value=0.1")
    assert describe(optax.scale_by_adam(b1=0.8)) != describe(optax.scale_by_adam(b1=0.9))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"rates": np.full(8, 0.5)}, {"rates": np.full(8, 0.4)}),
        ({"learning_rate": lambda round: 0.1}, {"learning_rate": lambda round: 0.2}),
        (
            {"learning_rate": optax.piecewise_constant_schedule(0.1, {2: 0.5})},
            {"learning_rate": optax.piecewise_constant_schedule(0.1, {1: 0.5})},
        ),
        ({"client_optimizer": optax.trace(0.9)}, {"client_optimizer": optax.trace(0.5)}),
        (
            {"client_optimizer": optax.inject_hyperparams(optax.trace)(decay=0.9)},
            {"client_optimizer": optax.inject_hyperparams(optax.trace)(decay=0.5)},
        ),
    ],
)
def test_another_experiment_is_not_resumed(first: dict[str, Any], second: dict[str, Any], tmp_path: Path) -> None:
    """The run folder identifies schedules, optimizers and rates by what they are made of."""

    def manifest(options: dict[str, Any]) -> Any:
        model = logistic(num_features=4, num_classes=3)
        return ExperimentSpec(FEDERATION, model, fedavg(), always(8), 3, **options).manifest()["config"]

    assert manifest(first) == manifest(first)
    assert manifest(first) != manifest(second)


def test_numbers_of_a_custom_algorithm_identify_its_run() -> None:
    model = logistic(num_features=4, num_classes=3)
    small, large = (
        ExperimentSpec(FEDERATION, model, replace(fedavg(), numbers={"mu": mu}), always(8), 3).manifest()["config"]
        for mu in (0.1, 0.2)
    )
    assert small != large


SCRIPT = """
import sys
import jax
from fedlatest import fedavg
from tests.simulation.test_programs import run
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
run(fedavg(weighting="none"), num_local_steps=3)
print("hits", sum(event == "/jax/compilation_cache/cache_hits" for event in hits))
"""


@pytest.mark.slow
def test_a_second_process_finds_the_programs_on_disk(tmp_path: Path) -> None:
    """Without any setting by the user; the folder is private."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment["FEDLATEST_CACHE"] = str(tmp_path)
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, env=environment
        )
        found.append(int(done.stdout.split()[-1]))
    assert found[0] == 0 < found[1]
    assert (tmp_path / "programs").stat().st_mode & 0o077 == 0


@pytest.fixture
def _no_cache_configured() -> Any:
    before = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.usefixtures("_no_cache_configured")
def test_the_cache_is_only_used_where_it_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where others may write, not where nobody may, and not if it is switched off."""
    monkeypatch.setenv("FEDLATEST_CACHE", str(tmp_path))
    monkeypatch.setenv("FEDLATEST_COMPILATION_CACHE", "0")
    enable_compilation_cache()
    assert not jax.config.values["jax_compilation_cache_dir"]
    monkeypatch.delenv("FEDLATEST_COMPILATION_CACHE")
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs").chmod(0o777)
    enable_compilation_cache()
    assert not jax.config.values["jax_compilation_cache_dir"]
    monkeypatch.setenv("FEDLATEST_CACHE", str(tmp_path / "a file"))
    (tmp_path / "a file").write_text("")
    enable_compilation_cache()
    assert not jax.config.values["jax_compilation_cache_dir"]


@pytest.mark.usefixtures("_no_cache_configured")
def test_a_cache_of_the_user_is_left_alone(tmp_path: Path) -> None:
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    enable_compilation_cache()
    assert jax.config.values["jax_compilation_cache_dir"] == str(tmp_path)
