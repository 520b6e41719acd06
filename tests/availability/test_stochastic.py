"""Random availability has the specified rates, independence and autocorrelation.

Seeds are fixed. By Bernstein's inequality, a count of n independent draws of probability p differs from n p by more
than t with a probability of at most 2 exp(-t^2 / (2 (v + t / 3))), v = n p (1 - p). For t = 6 + 6 sqrt(1 + v), which is
six standard deviations for large counts, this is at most 2 exp(-18) = 3e-8: of 10^4 seeds, a correct model fails a few
thousand comparisons with about one.
"""

import itertools
import math
import re
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from fedlatest import (
    ConfigError,
    bernoulli,
    both,
    either,
    interleaved_sine,
    label_rates,
    markov,
    restrict,
    shift,
    sine,
    staircase,
)
from fedlatest.availability import Availability
from fedlatest.availability.stochastic import Markov

Table = npt.NDArray[np.bool_]
MANY = 100_000


def assert_rate(draws: Table, probability: float) -> None:
    """The share of True among independent draws is `probability`; 0 and 1 must be exact."""
    variance = draws.size * probability * (1 - probability)
    allowed = 6 + 6 * math.sqrt(1 + variance) if variance else 0
    assert abs(draws.sum() - draws.size * probability) <= allowed


def assert_uncorrelated(first: Table, second: Table) -> None:
    """The correlation of n independent pairs is approximately normal(0, 1 / n)."""
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 6 / math.sqrt(first.size)


def test_bernoulli_rates() -> None:
    rates = [0.0, 0.1, 0.5, 0.99, 1.0]
    table = bernoulli(rates).table(40_000)
    for client, rate in enumerate(rates):
        assert_rate(table[:, client], rate)


def test_bernoulli_rates_at_a_late_round() -> None:
    assert_rate(np.asarray(bernoulli(np.full(MANY, 0.3)).available(10**6, seed=1)), 0.3)


def test_bernoulli_clients_rounds_and_seeds_are_uncorrelated() -> None:
    model = bernoulli(np.full(12, 0.5))
    table, other_seed = model.table(20_000, seed=0), model.table(20_000, seed=1)
    for first, second in itertools.combinations(range(12), 2):
        assert_uncorrelated(table[:, first], table[:, second])
    for lag in (1, 2, 7):
        assert_uncorrelated(table[lag:], table[:-lag])
    assert_uncorrelated(table, other_seed)


def test_bernoulli_draws_depend_on_ids() -> None:
    """Reordering the clients or removing some does not change the draws of the others."""
    everyone = bernoulli(np.full(10, 0.5)).table(100, seed=4)
    some = bernoulli(np.full(3, 0.5), ids=[7, 0, 4]).table(100, seed=4)
    assert some.tolist() == everyone[:, [7, 0, 4]].tolist()


PERIOD, AMPLITUDE, RATE, PHASE = 20, 0.3, 0.8, 0.1


@pytest.mark.parametrize("first", [0, 10**6])
def test_sine_follows_its_formula(first: int) -> None:
    """In round k of a period the probability is rate (1 - a + a sin(2 pi (k / P + phase))).

    10**6 is a multiple of P = 20. Over a whole period the sines cancel, so the mean is rate (1 - a) = 0.56. The
    variance of draws with different probabilities is at most that of draws with their mean, so the same bound holds.
    """
    model = sine(np.full(2_000, RATE), amplitude=AMPLITUDE, period=PERIOD, phase=PHASE)
    table = shift(model, rounds=first).table(10 * PERIOD).reshape(10, PERIOD, 2_000)
    for position in range(PERIOD):
        wave = math.sin(2 * math.pi * (position / PERIOD + PHASE))
        assert_rate(table[:, position], RATE * (1 - AMPLITUDE + AMPLITUDE * wave))
    assert_rate(table, 0.56)


def test_sine_with_a_phase_per_client_reaches_its_extremes() -> None:
    """Phase 1/4 is the maximum, rate; 3/4 is the minimum, rate (1 - 2 a); a phase of 1 is the same as 0."""
    phases = np.repeat([0.25, 0.75, 0.0, 1.0], MANY)
    draws = np.asarray(sine(np.full(4 * MANY, 0.9), amplitude=0.5, period=7, phase=phases).available(0, seed=2))
    maximum, minimum, zero_phase, full_phase = draws.reshape(4, MANY)
    assert_rate(maximum, 0.9)
    assert_rate(minimum, 0.0)
    assert_rate(zero_phase, 0.45)
    assert_rate(full_phase, 0.45)


def test_sine_without_amplitude_is_bernoulli() -> None:
    rates = np.linspace(0, 1, 11)
    flat = sine(rates, amplitude=0.0, period=9, phase=0.3).table(50, seed=6)
    assert flat.tolist() == bernoulli(rates).table(50, seed=6).tolist()


def test_staircase_by_hand() -> None:
    """Rate 1 for ten rounds, then 0.4: with low=0 the draws are certain; an odd period has the longer half first."""
    assert staircase([1.0], low=0.0, period=20).table(45)[:, 0].tolist() == [round % 20 < 10 for round in range(45)]
    assert staircase([1.0], low=0.0, period=3).table(7)[:, 0].tolist() == [True, True, False, True, True, False, True]
    assert staircase([1.0], low=1.0, period=1).table(3)[:, 0].all()
    table = staircase(np.full(2000, 0.5), low=0.4, period=20).table(40)
    for round in range(40):
        assert_rate(table[round], 0.5 if round % 20 < 10 else 0.2)


def test_interleaved_sine_by_hand() -> None:
    """0.2 (0.7 + 0.3 sin(pi r / 2)) is 0.14, 0.2, 0.14, 0.08 in rounds 0 .. 3, and 0.08 is cut off."""
    model = interleaved_sine(np.full(5000, 0.2), amplitude=0.3, period=4, min_rate=0.1)
    table = model.table(8)
    for round, rate in enumerate([0.14, 0.2, 0.14, 0.0] * 2):
        assert_rate(table[round], rate)
        np.testing.assert_allclose(np.asarray(model.probability(round)), rate, rtol=1e-6)
    assert not interleaved_sine([0.09], amplitude=0.3, period=4, min_rate=0.1).table(40).any()


def test_interleaved_sine_without_cutoff_is_the_sine() -> None:
    rates = [0.1, 0.5, 0.9]
    expected = sine(rates, amplitude=0.4, period=7).table(100, seed=2)
    found = interleaved_sine(rates, amplitude=0.4, period=7, min_rate=0.0).table(100, seed=2)
    assert found.tolist() == expected.tolist()


def test_label_rates_gives_each_client_the_rate_of_its_label() -> None:
    labels, rates = [2, 0, 1, 2], [0.1, 1.0, 0.7]
    table = label_rates(labels, rates).table(20_000)
    assert table.tolist() == bernoulli([0.7, 0.1, 1.0, 0.7]).table(20_000).tolist()
    for client, label in enumerate(labels):
        assert_rate(table[:, client], rates[label])
    assert_uncorrelated(table[:, 0], table[:, 3])


# Markov chains as (share, correlation, rounds between anchors), where 25 * 4 <= 2**7, 25 * 1 <= 2**5, 25 * 20 <= 2**9.
CHAINS = {"0.3": (0.3, 4.0, 128), "0.5 uncorrelated": (0.5, 0.05, 32), "0.8 with long correlation": (0.8, 20.0, 512)}
WINDOW = 40  # rounds, with the anchor in the middle


@cache
def around_an_anchor(name: str, late: bool) -> Table:
    """bool[MANY, WINDOW]: the rounds around the first anchor, or around an anchor near round 10**6."""
    share, correlation, spacing = CHAINS[name]
    model = markov(np.full(MANY, share), correlation=correlation)
    assert isinstance(model, Markov)
    assert 2**model.levels == spacing
    anchor = (10**6 // spacing if late else 1) * spacing
    return shift(model, rounds=anchor - WINDOW // 2).table(WINDOW, seed=8).T


@pytest.fixture(params=itertools.product(CHAINS, (False, True)), ids=lambda case: f"{case[0]}, late {case[1]}")
def chain(request: pytest.FixtureRequest) -> tuple[float, float, Table]:
    """(share, exp(-1 / correlation), the table of `around_an_anchor`)."""
    name, late = request.param
    share, correlation, _ = CHAINS[name]
    return share, math.exp(-1 / correlation), around_an_anchor(name, late)


def test_markov_share_in_every_round(chain: tuple[float, float, Table]) -> None:
    share, _, table = chain
    for round in range(WINDOW):
        assert_rate(table[:, round], share)


def test_markov_autocorrelation(chain: tuple[float, float, Table]) -> None:
    """corr(x_r, x_r+n) = m^n with m = exp(-1 / correlation), for every start before, at and after the anchor.

    Z = (x - p)(y - p) / (p q) has mean rho = m^n. As (x - p)^2 = p q + (1 - 2 p)(x - p), E Z^2 is
    1 + (1 - 2 p)^2 rho / (p q), so the mean of MANY independent Z has the variance (E Z^2 - rho^2) / MANY.
    """
    share, decay, table = chain
    variance = share * (1 - share)
    for lag in (1, 2, 5, 19):
        rho = decay**lag
        sigma = math.sqrt((1 + (1 - 2 * share) ** 2 * rho / variance - rho**2) / MANY)
        for start in range(WINDOW - lag):
            seen = ((table[:, start] - share) * (table[:, start + lag] - share)).mean() / variance
            assert abs(seen - rho) < 6 * sigma


def test_markov_transition_probabilities_in_every_round(chain: tuple[float, float, Table]) -> None:
    """on -> on has the probability p + q m and off -> on p (1 - m), also into and out of an anchor.

    All rounds together detect an m that is 2% off. The steps of a chain are not independent, but each has its
    probability given all earlier ones, so Freedman's inequality gives the bound of Bernstein's.
    """
    share, decay, table = chain
    before, after = table[:, :-1], table[:, 1:]
    for start in range(WINDOW - 1):
        assert_rate(after[before[:, start], start], share + (1 - share) * decay)
        assert_rate(after[~before[:, start], start], share * (1 - decay))
    assert_rate(after[before], share + (1 - share) * decay)
    assert_rate(after[~before], share * (1 - decay))


def test_markov_depends_on_the_last_round_only(chain: tuple[float, float, Table]) -> None:
    """Each of the 16 sequences of four rounds has the probability p(a) T(a, b) T(b, c) T(c, d), for any first round."""
    share, decay, table = chain
    on = [share * (1 - decay), share + (1 - share) * decay]  # probability of on after off, and after on
    step = [[1 - on[0], on[0]], [1 - on[1], on[1]]]
    for start in range(WINDOW // 2 - 6, WINDOW // 2 + 3):
        sequences = table[:, start : start + 4] @ np.array([8, 4, 2, 1])
        for a, b, c, d in itertools.product((0, 1), repeat=4):
            probability = [1 - share, share][a] * step[a][b] * step[b][c] * step[c][d]
            assert_rate(sequences == 8 * a + 4 * b + 2 * c + d, probability)


def test_markov_run_lengths(chain: tuple[float, float, Table]) -> None:
    """A run that begins 3 rounds before the anchor lasts for k more rounds with the probability s^k.

    s = p + q m for clients that have just become available, s = q + p m for those that have just become unavailable.
    """
    share, decay, table = chain
    first = WINDOW // 2 - 3
    for state, stay in ((True, share + (1 - share) * decay), (False, 1 - share + share * decay)):
        just_changed = (table[:, first - 1] != state) & (table[:, first] == state)
        runs = table[just_changed, first:] == state
        for more in range(1, 20):
            assert_rate(runs[:, : more + 1].all(axis=1), stay**more)


def test_markov_with_shares_0_and_1() -> None:
    table = markov([0.0, 1.0], correlation=4).table(300)
    assert not table[:, 0].any()
    assert table[:, 1].all()


def test_markov_clients_and_seeds_are_uncorrelated() -> None:
    """Rounds 64 apart have the correlation e^-16 = 1e-7, so every 64th round is a sample of independent draws.

    Rounds 128 apart have the same position between two anchors and must be uncorrelated, too.
    """
    model = markov(np.full(300, 0.5), correlation=4)
    table, other_seed = (model.table(64 * 40, seed=seed)[::64] for seed in (0, 1))
    assert_uncorrelated(table[:, 1:], table[:, :-1])
    assert_uncorrelated(table[1:], table[:-1])
    assert_uncorrelated(table[2:], table[:-2])
    assert_uncorrelated(table, other_seed)


def test_markov_chains_depend_on_ids() -> None:
    everyone = markov(np.full(10, 0.5), correlation=6).table(100, seed=4)
    some = markov(np.full(3, 0.5), correlation=6, ids=[7, 0, 4]).table(100, seed=4)
    assert some.tolist() == everyone[:, [7, 0, 4]].tolist()


def draws(rate: float) -> Availability:
    return bernoulli(np.full(MANY, rate))


def at_round_5(model: Availability) -> Table:
    return np.asarray(model.available(5, seed=3))


def test_composed_models_draw_independently() -> None:
    """p q for both and 1 - (1 - p)(1 - q) for either, also if a model is composed with itself."""
    assert_rate(at_round_5(draws(0.5) & draws(0.4)), 0.2)
    assert_rate(at_round_5(draws(0.5) | draws(0.4)), 0.7)
    assert_rate(at_round_5(both(draws(0.5), draws(0.5))), 0.25)
    assert_rate(at_round_5(either(draws(0.5), draws(0.5))), 0.75)
    assert_rate(at_round_5(draws(0.5) & (draws(0.5) & draws(0.5))), 0.125)
    chains = markov(np.full(MANY, 0.5), correlation=4)
    assert_rate(at_round_5(chains & chains), 0.25)


@pytest.mark.parametrize(
    ("compose", "probability"),
    [
        (lambda model: model & model & model, 0.125),
        (lambda model: model | model | model, 0.875),
        (lambda model: (model & model) & (model & model), 0.0625),
    ],
    ids=["and", "or", "pairs"],
)
def test_nested_compositions_draw_independently(
    compose: Callable[[Availability], Availability], probability: float
) -> None:
    assert_rate(at_round_5(compose(draws(0.5))), probability)


def test_restrict_does_not_change_the_draws() -> None:
    marked = np.arange(MANY) % 3 == 0
    expected = at_round_5(draws(0.5)) & marked
    assert np.array_equal(at_round_5(restrict(draws(0.5), marked)), expected)


INVALID: list[tuple[str, Callable[[], object]]] = [
    ("rates=1.5:", lambda: bernoulli([0.5, 1.5])),
    ("rates=-0.25:", lambda: bernoulli([-0.25])),
    ("rates=nan:", lambda: bernoulli([0.5, np.nan])),
    ("rates: give one", lambda: bernoulli([])),
    ("rates: give one", lambda: bernoulli(0.5)),
    ("rates: give one", lambda: bernoulli([[0.5]])),
    ("ids: give one id per client (2), not an array of shape (3,)", lambda: bernoulli([0.5, 0.5], ids=[1, 2, 3])),
    ("amplitude=0.75:", lambda: sine([0.5], amplitude=0.75, period=3)),
    ("amplitude=-0.1:", lambda: sine([0.5], amplitude=-0.1, period=3)),
    ("amplitude=nan:", lambda: sine([0.5], amplitude=math.nan, period=3)),
    ("period=0:", lambda: sine([0.5], amplitude=0.1, period=0)),
    ("phase=inf:", lambda: sine([0.5], amplitude=0.1, period=3, phase=math.inf)),
    ("low=1.5:", lambda: staircase([0.5], low=1.5, period=4)),
    ("period=0:", lambda: staircase([0.5], low=0.5, period=0)),
    ("rates=2.0:", lambda: staircase([2.0], low=0.5, period=4)),
    ("min_rate=-0.1:", lambda: interleaved_sine([0.5], amplitude=0.1, period=3, min_rate=-0.1)),
    ("amplitude=0.6:", lambda: interleaved_sine([0.5], amplitude=0.6, period=3, min_rate=0.1)),
    ("share=2.0:", lambda: markov([2.0], correlation=3)),
    ("correlation=0:", lambda: markov([0.5], correlation=0)),
    ("correlation=-2.5:", lambda: markov([0.5], correlation=-2.5)),
    ("correlation=nan:", lambda: markov([0.5], correlation=math.nan)),
    ("correlation=inf:", lambda: markov([0.5], correlation=math.inf)),
    ("correlation=20000000.0:", lambda: markov([0.5], correlation=2e7)),
    ("rates_by_label: has 2 rates, but the largest label is 2", lambda: label_rates([0, 2], [0.5, 0.5])),
    ("rates_by_label=7.0:", lambda: label_rates([0, 1], [0.5, 7.0])),
    ("rates_by_label:", lambda: label_rates([-1, 0], [0.5, 0.5])),
    ("labels: give one whole number", lambda: label_rates([], [0.5, 0.5])),
]


@pytest.mark.parametrize(("message", "make"), INVALID)
def test_invalid_arguments_are_named(message: str, make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(message)):
        make()


OTHER_INVALID: dict[str, tuple[str, Callable[[], object]]] = {
    "phases for another number of clients": (
        "phase",
        lambda: sine([0.5, 0.5], amplitude=0.1, period=3, phase=[0.1, 0.2, 0.3]),
    ),
    "labels that are not whole numbers": ("labels", lambda: label_rates([0.0, 1.0], [0.5, 0.5])),
}


@pytest.mark.parametrize("case", OTHER_INVALID)
def test_other_invalid_arguments_are_rejected(case: str) -> None:
    message, make = OTHER_INVALID[case]
    with pytest.raises(ConfigError, match=re.escape(message)):
        make()
