"""A table of bits is available exactly as the model from which it was made."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike

from fedlatest import Availability, bernoulli, diurnal, fedavg, markov, simulate
from fedlatest.availability import tabulated
from fedlatest.availability.tabulated import tabulate
from fedlatest.simulation import ExperimentSpec, simulate_spec
from tests.problems import MODEL, small_federation

RATES = np.linspace(0.1, 0.9, 11)  # not a multiple of 8 clients


@pytest.mark.parametrize("model", [bernoulli(RATES), markov(RATES, correlation=5), diurnal(RATES < 0.5, period=3)])
def test_a_table_equals_its_model(model: Availability) -> None:
    table = tabulate(model, 20, seed=7)
    np.testing.assert_array_equal(table.table(20, seed=0), model.table(20, seed=7))
    np.testing.assert_array_equal(table.subset([9, 2]).table(20), model.table(20, seed=7)[:, [9, 2]])


def test_tables_of_different_models_share_a_program_and_give_the_same_run() -> None:
    """The models differ in structure, so that specs without tables do not share a program."""
    federation = small_federation(8)
    models = [bernoulli(np.full(8, 0.5)), diurnal(np.arange(8) < 4, period=2)]

    def spec(model: Availability, *, tabulated: bool) -> ExperimentSpec:
        return ExperimentSpec(
            federation, MODEL, fedavg(), model, cohort_size=3, rounds=10, evaluate_every=5, tabulated=tabulated
        )

    assert len({spec(model, tabulated=True).batch_key for model in models}) == 1
    assert len({spec(model, tabulated=False).batch_key for model in models}) == 2
    trials = spec(models[0], tabulated=True).trials()
    direct = spec(models[0], tabulated=False).trials()
    for round in range(10):
        expected = direct[0].availability.available(round, direct[0].seed)
        np.testing.assert_array_equal(trials[0].availability.available(round, trials[0].seed), expected)
    plain = simulate(federation, MODEL, fedavg(), models[0], rounds=10, cohort_size=3, evaluate_every=5)
    table = simulate_spec(spec(models[0], tabulated=True))
    for ours, theirs in zip(table.params.values(), plain.params.values(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_models_without_randomness_share_one_table() -> None:
    model = diurnal(RATES < 0.5, period=3)
    assert tabulate(model, 20, seed=1) is tabulate(model, 20, seed=2)
    assert tabulate(bernoulli(RATES), 20, seed=1) is not tabulate(bernoulli(RATES), 20, seed=2)


def test_classes_of_the_same_name_have_tables_of_their_own() -> None:
    """As in a notebook in which a class is defined again."""

    def redefined(period: int) -> Availability:
        @register_dataclass
        @dataclass(frozen=True)
        class Mine(Availability):
            size: int = field(default=3, metadata={"static": True})

            @property
            def num_clients(self) -> int:
                return self.size

            def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
                return jnp.full(self.size, jnp.asarray(round) % period == 0)

        return Mine()

    first, second = (tabulate(redefined(period), 8, seed=0).table(8).sum() for period in (2, 7))
    assert (first, second) == (3 * 4, 3 * 2)


def test_a_table_that_is_too_large_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabulated, "MAX_TABLE_BYTES", 39)
    model = bernoulli(RATES)
    assert tabulate(model, 20, seed=0) is model  # 20 rounds of 2 bytes
    assert tabulate(model, 19, seed=0) is not model
