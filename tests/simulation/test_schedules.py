"""Schedules: the factor of each round, its key, and one compiled program for all learning rates."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest import ConfigError, always, fedavg, inverse_sqrt, load_digits, simulate
from fedlatest.experiments import RECIPES, FederationBuilder
from fedlatest.simulation import ExperimentSpec
from tests.problems import MODEL, small_federation

FEDERATION = small_federation(4)


@pytest.mark.parametrize("rounds", [10.0, 3.0])
def test_inverse_square_root(rounds: float) -> None:
    factors = [float(inverse_sqrt(rounds=rounds)(jnp.int32(round))) for round in range(50)]
    np.testing.assert_allclose(factors, [1 / np.sqrt(round / rounds + 1) for round in range(50)], rtol=1e-6)


def run(**options: Any) -> Any:
    return simulate(
        FEDERATION, MODEL, fedavg(), always(4), rounds=4, cohort_size=4, num_local_steps=2, batch_size=3,
        evaluate_every=2, **options,
    )  # fmt: skip


def test_it_multiplies_the_learning_rate() -> None:
    """A number and a schedule do the same as a function of the round that returns their product."""
    factor = inverse_sqrt(rounds=2)
    found = run(learning_rate=0.25, schedule=factor)
    expected = run(learning_rate=lambda round: 0.25 * factor(round))
    constant = run(learning_rate=0.25)
    for a, b, c in zip(*(jax.tree.leaves(result.params) for result in (found, expected, constant)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
        assert not np.allclose(a, c, rtol=1e-3)


def spec(**changes: Any) -> ExperimentSpec:
    return ExperimentSpec(
        federation=FEDERATION, model=MODEL, algorithm=fedavg(), availability=always(4), cohort_size=2, **changes
    )


def test_learning_rates_share_a_program_and_schedules_do_not() -> None:
    one = spec(learning_rate=0.1, schedule=inverse_sqrt())
    assert one.batch_key == spec(learning_rate=0.2, schedule=inverse_sqrt()).batch_key
    assert one.batch_key != spec(learning_rate=0.1, schedule=inverse_sqrt(rounds=3)).batch_key
    assert one.batch_key != spec(learning_rate=0.1).batch_key
    config = one.manifest()["config"]
    assert (config["learning_rate"], config["schedule"]) == (0.1, "inverse_sqrt(rounds=10.0)")
    assert "schedule" not in spec().manifest()["config"]


def test_two_schedules_are_an_error() -> None:
    with pytest.raises(ConfigError, match="schedule: learning_rate is a schedule already"):
        spec(learning_rate=lambda round: 0.1, schedule=inverse_sqrt())


@pytest.mark.parametrize(
    ("overrides", "description"),
    [
        (["schedule=inverse_sqrt"], "inverse_sqrt(rounds=10.0)"),
        (["schedule=inverse_sqrt", "schedule_rounds=5"], "inverse_sqrt(rounds=5.0)"),
        (["schedule=constant"], None),
        ([], None),
    ],
)
@pytest.mark.parametrize("recipe", ["mnist", "quickstart"])
def test_the_keys_of_a_recipe(recipe: str, overrides: list[str], description: str | None) -> None:
    experiment, *_ = RECIPES[recipe].experiments(["num_clients=20", "learning_rate=0.05", *overrides])
    config = experiment.spec(FederationBuilder(load_digits())).manifest()["config"]
    assert (config["learning_rate"], config.get("schedule")) == (0.05, description)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["schedule=cosine"], "schedule=cosine: choose one of constant, inverse_sqrt"),
        (["schedule_rounds=5"], "schedule_rounds=5.0: the learning rate is constant; add schedule=inverse_sqrt"),
        (["schedule=inverse_sqrt", "schedule_rounds=0"], "schedule_rounds=0.0: must be a finite number above 0"),
    ],
)
def test_the_keys_are_checked(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RECIPES["mnist"].named(" ".join(["num_clients=20", *overrides])).spec(FederationBuilder(load_digits()))
