"""The contract of every availability model: its output at any round, and its smallest E."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from jax.tree_util import register_dataclass
from jax.typing import ArrayLike

import fedlatest.availability
from fedlatest import (
    ConfigError,
    Interval,
    alternating,
    always,
    bernoulli,
    both,
    diurnal,
    either,
    interleaved_sine,
    label_rates,
    lifetime,
    markov,
    restrict,
    shift,
    sine,
    staircase,
    trace,
    windows,
)
from fedlatest.availability import Availability
from fedlatest.availability.base import Subset
from fedlatest.availability.intervals import RoundIntervals, longest_absences, shifted

NUM_CLIENTS = 6
HORIZON = 60
MILLION = 10**6
HALF = np.arange(NUM_CLIENTS) < 3  # the first group: clients 0, 1, 2
RATES = [1.0, 0.0, 0.5, 0.2, 0.8, 0.9]  # client 0 is always available, client 1 never
INTERVALS = [Interval(0, 0, 5), Interval(1, 3, 9), Interval(3, 50, 70), Interval(4, 2, 3), Interval(4, 8, 40)]

MODELS: dict[str, Callable[[], Availability]] = {
    "always": lambda: always(NUM_CLIENTS),
    "diurnal": lambda: diurnal(HALF, period=4),
    "alternating": lambda: alternating(HALF, t1=3, t2=2),
    "windows": lambda: windows([0, 8, 16.5, 22, 12, 9], hours=[8, 9, 1, 20, 4, 1], rounds_per_day=24),
    "bernoulli": lambda: bernoulli(RATES),
    "markov": lambda: markov(RATES, correlation=3),
    "sine": lambda: sine(RATES, amplitude=0.4, period=7, phase=0.25),
    "interleaved_sine": lambda: interleaved_sine(RATES, amplitude=0.4, period=7, min_rate=0.25),
    "staircase": lambda: staircase(RATES, low=0.0, period=6),
    "label_rates": lambda: label_rates([0, 1, 2, 2, 0, 1], [1.0, 0.0, 0.4]),
    "trace": lambda: trace(INTERVALS, num_clients=NUM_CLIENTS),
    "trace that wraps": lambda: trace(INTERVALS, num_clients=NUM_CLIENTS, wrap=True),
    "trace with copies": lambda: trace(
        INTERVALS, num_clients=NUM_CLIENTS, devices="sample", day_length=35, drop_absent=True, seed=1, wrap=True
    ),
    "trace with copies, once": lambda: trace(INTERVALS, num_clients=NUM_CLIENTS, devices="repeat", day_length=10),
    "lifetime": lambda: lifetime([0, 10, 30, 70, 0, 0], departure=[2**31 - 1, 2**31 - 1, 50, 90, 0, MILLION]),
    "both": lambda: both(bernoulli(RATES), diurnal(HALF, period=4)),
    "either": lambda: either(lifetime([0, 5, 9, 2, 0, 50], departure=20), bernoulli(RATES)),
    "shift": lambda: shift(diurnal(HALF, period=4), rounds=5),
    "departures": lambda: both(staircase(RATES, low=0.5, period=6), lifetime([0] * 6, departure=[9, 9, 2**31 - 1] * 2)),
    "restrict": lambda: restrict(markov(np.ones(NUM_CLIENTS), correlation=2), HALF),
}

WITHOUT_INTERVALS = {
    "bernoulli", "markov", "sine", "interleaved_sine", "staircase", "label_rates", "both", "either", "departures",
    "restrict",  # of markov
}  # fmt: skip

# Availability in round 10**6, computed by hand ("?" is random).
AT_A_MILLION = {
    "always": "111111",
    "diurnal": "111000",  # 10**6 mod 8 = 0: the first group's first round
    "alternating": "111000",  # 10**6 mod 5 = 0
    "windows": "010100",  # 10**6 mod 24 = 16, so 16:00: in 8-17 and 22-18, before 16:30-17:30, after 12-16
    "bernoulli": "10????",
    "markov": "10????",
    "sine": "?0????",  # with amplitude 0.4 a rate of 1 varies, too
    "interleaved_sine": "?0????",
    "staircase": "000000",  # 10**6 mod 6 = 4: the second half, with probability 0
    "label_rates": "10??10",
    "trace": "000000",  # it ended in round 70
    "trace that wraps": "000100",  # 10**6 mod 70 = 50, the first round of 50-70
    # Clients are the devices 0, 1, 3, 4, and 4 and 0 shifted by 35 rounds. 10**6 mod 70 = 50, the first round of device
    # 3; for the shifted ones it is round 85 mod 70 = 15, in 8-40 of device 4.
    "trace with copies": "001010",
    "trace with copies, once": "000000",
    "lifetime": "110000",  # client 5 departs in this round
    "both": "10?000",
    "either": "10????",  # all lifetimes have ended, only the random draws are left
    "shift": "000111",  # (10**6 + 5) mod 8 = 5: the second block, 4-7
    "departures": "00?00?",  # clients 2 and 5 have not departed
    "restrict": "111000",
}

available = jax.jit(lambda model, round, seed: model.available(round, seed))
every_model = pytest.mark.parametrize("name", MODELS)
Table = npt.NDArray[np.bool_]


def smallest_e(table: Table) -> int | None:
    """The smallest E such that each client is available in every window of E consecutive rounds."""
    for size in range(1, len(table) + 1):
        if all(table[first : first + size].any(axis=0).all() for first in range(len(table) - size + 1)):
            return size
    return None


def test_every_public_model_is_in_the_table() -> None:
    others = {"devices_of_clients", "read_trace", "write_trace"}
    factories = {name for name in fedlatest.availability.__all__ if name.islower()} - others
    assert factories <= MODELS.keys()
    assert MODELS.keys() == AT_A_MILLION.keys()


@every_model
def test_returns_one_bool_per_client(name: str) -> None:
    model = MODELS[name]()
    result = model.available(0, seed=0)
    assert model.num_clients == NUM_CLIENTS
    assert result.shape == (NUM_CLIENTS,)
    assert result.dtype == np.dtype(bool)
    table = model.table(HORIZON)
    assert table.shape == (HORIZON, NUM_CLIENTS)
    assert table.dtype == np.dtype(bool)


@every_model
@pytest.mark.parametrize("round", [0, 17, MILLION])
def test_is_deterministic(name: str, round: int) -> None:
    """Same result for a second call, for a second instance of the model, and in a compiled program."""
    model = MODELS[name]()
    expected = model.available(round, seed=5).tolist()
    assert model.available(round, seed=5).tolist() == expected
    assert MODELS[name]().available(round, seed=5).tolist() == expected
    assert available(model, jnp.int32(round), jnp.uint32(5)).tolist() == expected


@every_model
def test_any_round_needs_no_history(name: str) -> None:
    """Rounds evaluated one at a time, in random order and with a traced round, equal the rows of the table."""
    model = MODELS[name]()
    table = model.table(HORIZON, seed=3)
    for round in np.random.default_rng(0).permutation(HORIZON):
        assert available(model, jnp.int32(round), jnp.uint32(3)).tolist() == table[round].tolist()


@every_model
def test_rounds_near_a_million_need_no_history(name: str) -> None:
    model = MODELS[name]()
    table = shift(model, rounds=MILLION - 8).table(16, seed=3)
    for row in np.random.default_rng(0).permutation(16):
        assert available(model, jnp.int32(MILLION - 8 + row), jnp.uint32(3)).tolist() == table[row].tolist()


@every_model
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_round_a_million(name: str, seed: int) -> None:
    result = available(MODELS[name](), jnp.int32(MILLION), jnp.uint32(seed))
    for expected, found in zip(AT_A_MILLION[name], result.tolist(), strict=True):
        assert expected == "?" or (expected == "1") is found


@every_model
@pytest.mark.parametrize("horizon", [1, 7, HORIZON])
def test_smallest_e_equals_brute_force(name: str, horizon: int) -> None:
    model = MODELS[name]()
    table = model.table(HORIZON, seed=4)[:horizon]
    assumption = model.assumption(horizon, seed=4)
    assert assumption.horizon == horizon
    assert assumption.smallest_e == smallest_e(table)
    assert assumption.never_available.tolist() == np.flatnonzero(~table.any(axis=0)).tolist()


@register_dataclass
@dataclass(frozen=True)
class Replay(Availability):
    """Replays a table, for tables that no other model produces."""

    rows: jax.Array  # bool[rounds, N]

    @property
    def num_clients(self) -> int:
        return self.rows.shape[1]

    def available(self, round: ArrayLike, seed: ArrayLike) -> jax.Array:
        del seed
        return self.rows[jnp.asarray(round)]


@given(table=arrays.arrays(bool, (12, 2)), horizon=st.integers(1, 12))
def test_smallest_e_of_any_table(table: Table, horizon: int) -> None:
    assumption = Replay(jnp.asarray(table)).assumption(horizon)
    assert assumption.smallest_e == smallest_e(table[:horizon])
    assert assumption.never_available.tolist() == np.flatnonzero(~table[:horizon].any(axis=0)).tolist()


def test_longest_absence_by_hand() -> None:
    """Absences of 2 rounds in the middle, 3 at the end, and all 6: without the last client, E is 4."""
    table = np.array([[1, 0, 0, 1, 0, 1], [1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]], bool).T
    assumption = Replay(jnp.asarray(table)).assumption(6)
    assert assumption.longest_absence.tolist() == [2, 3, 6]
    assert assumption.smallest_e is None
    assert assumption.never_available.tolist() == [2]
    assert Replay(jnp.asarray(table[:, :2])).assumption(6).smallest_e == 4
    assert Replay(jnp.asarray(table[:, :1])).assumption(6).smallest_e == 3


@pytest.mark.parametrize("horizon", [0, -1])
def test_an_empty_horizon_is_an_error(horizon: int) -> None:
    with pytest.raises(ConfigError, match=f"^horizon={horizon}:"):
        always(1).assumption(horizon)


@every_model
def test_a_subset_is_available_as_in_the_whole(name: str) -> None:
    """In any order, with all draws equal; also a subset of a subset."""
    model, clients = MODELS[name](), [4, 1, 5, 2]
    table = model.table(HORIZON, seed=3)
    subset = model.subset(clients)
    assert subset.num_clients == 4
    assert not isinstance(subset, Subset), "a model of the package evaluates only the chosen clients"
    assert subset.table(HORIZON, seed=3).tolist() == table[:, clients].tolist()
    assert subset.subset([2, 0]).table(HORIZON, seed=3).tolist() == table[:, [5, 4]].tolist()


def test_a_subset_of_a_model_without_one() -> None:
    table = np.array([[1, 0, 1], [0, 0, 1]], bool)
    assert Replay(jnp.asarray(table)).subset([2, 0]).table(2).tolist() == [[True, True], [True, False]]


@every_model
def test_intervals_give_the_absences_of_the_table(name: str) -> None:
    """Periods are 1, 5, 8, 24 and 70 rounds: the horizons lie before, at and after one and two of them."""
    model = MODELS[name]()
    assert (model.intervals() is None) == (name in WITHOUT_INTERVALS)
    for each in (model, restrict(model, HALF)):
        intervals = each.intervals()
        if intervals is not None:
            table = each.table(200)
            for horizon in (1, 2, 3, 5, 8, 13, 24, 25, 47, 48, 49, 139, 140, 200):
                found = longest_absences(intervals, num_clients=NUM_CLIENTS, horizon=horizon)
                assert found.tolist() == absences(table[:horizon])


@every_model
@pytest.mark.parametrize("horizon", [1, 45])
def test_mean_rates_are_the_shares_of_the_table(name: str, horizon: int) -> None:
    """Exactly for models without random draws and rates of 0 and 1; otherwise the means over 400 seeds agree.

    A mean over 400 seeds deviates by more than 0.15 = 6 / (2 sqrt(400)) with a probability below 1e-7.
    """
    model = MODELS[name]()
    rates = model.mean_rates(horizon)
    assert rates.shape == (NUM_CLIENTS,)
    assert rates.dtype == np.float64
    if name not in WITHOUT_INTERVALS:
        assert rates.tolist() == model.table(horizon).mean(axis=0).tolist()
        return
    seeds = jnp.arange(400, dtype=jnp.uint32)
    first = np.asarray(jax.vmap(lambda seed: model.available(horizon - 1, seed))(seeds)).mean(axis=0)
    probability = model.probability(horizon - 1)
    assert probability is not None
    np.testing.assert_allclose(probability, first, atol=0.15)
    rounds = jnp.arange(horizon)
    probabilities = np.asarray(jax.vmap(model.probability)(rounds), float)
    np.testing.assert_allclose(rates, np.broadcast_to(probabilities, (horizon, NUM_CLIENTS)).mean(axis=0), rtol=1e-5)


@every_model
def test_probabilities_of_a_subset_and_of_a_composition(name: str) -> None:
    """Subsets, shifts and restrictions have the probabilities of their clients and rounds, and the same cycle."""
    model, round = MODELS[name](), 11
    whole = np.asarray(model.probability(round))
    later = np.asarray(model.probability(round + 5))
    for chosen in (model.subset([4, 1]), Subset(model, jnp.asarray([4, 1]))):
        np.testing.assert_array_equal(chosen.probability(round), whole[[4, 1]])
        assert chosen.cycle() == model.cycle()
    np.testing.assert_array_equal(shift(model, rounds=5).probability(round), later)
    np.testing.assert_array_equal(restrict(model, HALF).probability(round), np.where(HALF, whole, 0))
    assert shift(model, rounds=5).cycle() == restrict(model, HALF).cycle() == model.cycle()


def test_mean_rates_by_hand() -> None:
    """Of 10 rounds: the first group has 0-3 and 8-9; a trace of 4 rounds; independent events a and b."""
    assert diurnal([True, False], period=4).mean_rates(10).tolist() == [0.6, 0.4]
    assert trace([Interval(0, 1, 3)], num_clients=2, wrap=True).mean_rates(10).tolist() == [0.6, 0.0]
    coins = bernoulli([0.5, 0.25])
    np.testing.assert_allclose(both(coins, coins).mean_rates(3), [0.25, 0.0625])
    np.testing.assert_allclose(either(coins, coins).mean_rates(3), [0.75, 0.4375])
    np.testing.assert_allclose((coins & lifetime([0, 0], departure=[2, 9])).mean_rates(10), [0.1, 0.225])


def test_mean_rates_of_a_model_without_probabilities_are_counted() -> None:
    table = np.array([[1, 0, 1], [0, 0, 1]], bool)
    model = Replay(jnp.asarray(table))
    assert model.mean_rates(2).tolist() == [0.5, 0.0, 1.0]
    assert both(model, model).probability(0) is None
    assert both(model, always(3)).mean_rates(1).tolist() == [1.0, 0.0, 1.0]
    assert either(always(3), model).mean_rates(1).tolist() == [1.0, 1.0, 1.0]
    assert restrict(model, [True, False, False]).mean_rates(2).tolist() == [0.5, 0.0, 0.0]


def test_mean_rates_of_a_million_clients() -> None:
    rates = np.linspace(0, 1, MILLION)
    np.testing.assert_allclose(staircase(rates, low=0.4, period=20).mean_rates(10**9), 0.7 * rates, rtol=1e-6)


def test_mean_rates_of_an_empty_horizon_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^horizon=0:"):
        always(1).mean_rates(0)


@given(
    pattern=arrays.arrays(bool, (7, 3)),
    period=st.one_of(st.none(), st.just(7)),
    horizon=st.integers(1, 30),
    rounds=st.integers(0, 20),
)
def test_absences_of_any_intervals(pattern: Table, period: int | None, horizon: int, rounds: int) -> None:
    """Intervals from a table of 7 rounds, repeated or not, seen from a later round or not."""
    edges = np.diff(pattern.T.astype(np.int8), axis=1, prepend=0, append=0)
    clients, starts = np.nonzero(edges == 1)
    intervals = RoundIntervals(clients, starts, np.nonzero(edges == -1)[1], period)
    repeated = np.tile(pattern, (8, 1)) if period else np.r_[pattern, np.zeros((49, 3), bool)]
    found = longest_absences(shifted(intervals, rounds), num_clients=3, horizon=horizon)
    assert found.tolist() == absences(repeated[rounds : rounds + horizon])


def test_a_sample_of_clients_says_so() -> None:
    model = bernoulli(np.full(1000, 0.5))
    whole, sample = model.assumption(200, seed=1), model.assumption(200, seed=1, max_clients=50)
    assert not whole.is_sample
    assert sample.is_sample
    assert (sample.clients.size, sample.num_clients) == (50, 1000)
    assert sample.longest_absence.tolist() == whole.longest_absence[sample.clients].tolist()
    assert sample.smallest_e == sample.longest_absence.max() + 1
    assert not model.assumption(200, max_clients=1000).is_sample
    assert not diurnal(np.arange(1000) < 5, period=4).assumption(200, max_clients=50).is_sample


def test_never_available_clients_of_a_sample_are_positions() -> None:
    model = bernoulli(np.where(np.arange(1000) % 2, 0.9, 0.0))
    sample = model.assumption(200, max_clients=50)
    assert sample.never_available.tolist() == [client for client in sample.clients if client % 2 == 0]


def absences(table: Table) -> list[int]:
    """The longest absence of each client, by counting."""
    longest = []
    for column in table.T.tolist():
        count, most = 0, 0
        for available in column:
            count = 0 if available else count + 1
            most = max(most, count)
        longest.append(most)
    return longest
