"""Availability by chance has the rates, the independence and the memory that it promises.

Seeds are fixed. By Bernstein's inequality a count of n independent draws of chance p is more than t off n p with a
probability of at most 2 exp(-t^2 / (2 (v + t / 3))), v = n p (1 - p). With t = 6 + 6 sqrt(1 + v), six sigma for counts
that are not small, this is 2 exp(-18) = 3e-8 or less: a right model fails a few thousand comparisons once in 1e4 seeds.
"""

import itertools
import math
import re
from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from fedlatest import ConfigError, bernoulli, both, either, label_rates, markov, restrict, shift, sine
from fedlatest.availability import Availability
from fedlatest.availability.stochastic import Markov

Table = npt.NDArray[np.bool_]
MANY = 100_000


def assert_rate(here: Table, chance: float) -> None:
    """The share of True among independent draws is `chance`; 0 and 1 must be exact."""
    variance = here.size * chance * (1 - chance)
    allowed = 6 + 6 * math.sqrt(1 + variance) if variance else 0
    assert abs(here.sum() - here.size * chance) <= allowed


def assert_unrelated(first: Table, second: Table) -> None:
    """The correlation of n independent pairs is about normal(0, 1 / n)."""
    assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 6 / math.sqrt(first.size)


def test_bernoulli_rates() -> None:
    rates = [0.0, 0.1, 0.5, 0.99, 1.0]
    table = bernoulli(rates).table(40_000)
    for client, rate in enumerate(rates):
        assert_rate(table[:, client], rate)


def test_bernoulli_rates_at_one_round_far_away() -> None:
    here = np.asarray(bernoulli(np.full(MANY, 0.3)).available(10**6, seed=1))
    assert_rate(here, 0.3)


def test_bernoulli_clients_rounds_and_seeds_are_unrelated() -> None:
    model = bernoulli(np.full(12, 0.5))
    table, other_seed = model.table(20_000, seed=0), model.table(20_000, seed=1)
    for first, second in itertools.combinations(range(12), 2):
        assert_unrelated(table[:, first], table[:, second])
    for lag in (1, 2, 7):
        assert_unrelated(table[lag:], table[:-lag])
    assert_unrelated(table, other_seed)


def test_bernoulli_coins_hang_on_ids() -> None:
    """Clients in another order, or fewer of them, toss the same coins."""
    everyone = bernoulli(np.full(10, 0.5)).table(100, seed=4)
    some = bernoulli(np.full(3, 0.5), ids=[7, 0, 4]).table(100, seed=4)
    assert some.tolist() == everyone[:, [7, 0, 4]].tolist()


PERIOD, AMPLITUDE, RATE, PHASE = 20, 0.3, 0.8, 0.1


@pytest.mark.parametrize("first", [0, 10**6])
def test_sine_follows_its_formula(first: int) -> None:
    """At place k of the period the chance is rate (1 - a + a sin(2 pi (k / P + phase))).

    10**6 is a multiple of P = 20. Over a whole period the sines cancel: the mean is rate (1 - a) = 0.56, and as the
    variance of a mean of unlike coins is at most that of like ones, the same bound holds.
    """
    model = sine(np.full(2_000, RATE), amplitude=AMPLITUDE, period=PERIOD, phase=PHASE)
    table = shift(model, rounds=first).table(10 * PERIOD).reshape(10, PERIOD, 2_000)
    for place in range(PERIOD):
        swing = math.sin(2 * math.pi * (place / PERIOD + PHASE))
        assert_rate(table[:, place], RATE * (1 - AMPLITUDE + AMPLITUDE * swing))
    assert_rate(table, 0.56)


def test_sine_swings_between_its_extremes_with_a_phase_per_client() -> None:
    """A quarter of a turn ahead is the crest, rate; three quarters the trough, rate (1 - 2 a); one turn is none."""
    phases = np.repeat([0.25, 0.75, 0.0, 1.0], MANY)
    here = np.asarray(sine(np.full(4 * MANY, 0.9), amplitude=0.5, period=7, phase=phases).available(0, seed=2))
    crest, trough, rising, turned = here.reshape(4, MANY)
    assert_rate(crest, 0.9)
    assert_rate(trough, 0.0)
    assert_rate(rising, 0.45)
    assert_rate(turned, 0.45)


def test_sine_without_amplitude_is_bernoulli() -> None:
    rates = np.linspace(0, 1, 11)
    flat = sine(rates, amplitude=0.0, period=9, phase=0.3).table(50, seed=6)
    assert flat.tolist() == bernoulli(rates).table(50, seed=6).tolist()


def test_label_rates_gives_each_client_its_labels_rate() -> None:
    labels, rates = [2, 0, 1, 2], [0.1, 1.0, 0.7]
    table = label_rates(labels, rates).table(20_000)
    assert table.tolist() == bernoulli([0.7, 0.1, 1.0, 0.7]).table(20_000).tolist()
    for client, label in enumerate(labels):
        assert_rate(table[:, client], rates[label])
    assert_unrelated(table[:, 0], table[:, 3])


# Markov chains: (share, correlation, rounds between anchors). 25 * 4 <= 2**7, 25 * 1 <= 2**5, 25 * 20 <= 2**9.
CHAINS = {"0.3": (0.3, 4.0, 128), "0.5 without memory": (0.5, 0.05, 32), "0.8 with a long memory": (0.8, 20.0, 512)}
WINDOW = 40  # rounds, the anchor in the middle


@cache
def around_an_anchor(name: str, far: bool) -> Table:
    """bool[MANY, WINDOW]: around the first anchor, or around one near round 10**6."""
    share, correlation, spacing = CHAINS[name]
    model = markov(np.full(MANY, share), correlation=correlation)
    assert isinstance(model, Markov)
    assert 2**model.levels == spacing
    anchor = (10**6 // spacing if far else 1) * spacing
    return shift(model, rounds=anchor - WINDOW // 2).table(WINDOW, seed=8).T


@pytest.fixture(params=itertools.product(CHAINS, (False, True)), ids=lambda case: f"{case[0]}, far {case[1]}")
def chain(request: pytest.FixtureRequest) -> tuple[float, float, Table]:
    """(share, exp(-1 / correlation), what `around_an_anchor` gives)."""
    name, far = request.param
    share, correlation, _ = CHAINS[name]
    return share, math.exp(-1 / correlation), around_an_anchor(name, far)


def test_markov_share_in_every_round(chain: tuple[float, float, Table]) -> None:
    share, _, table = chain
    for round in range(WINDOW):
        assert_rate(table[:, round], share)


def test_markov_autocorrelation(chain: tuple[float, float, Table]) -> None:
    """corr(x_r, x_r+n) = m^n with m = exp(-1 / correlation), from every start before, at and after the anchor.

    Z = (x - p)(y - p) / (p q) has mean rho = m^n. As (x - p)^2 = p q + (1 - 2 p)(x - p), E Z^2 is
    1 + (1 - 2 p)^2 rho / (p q), so the mean of MANY independent Z has the variance (E Z^2 - rho^2) / MANY.
    """
    share, memory, table = chain
    spread = share * (1 - share)
    for lag in (1, 2, 5, 19):
        rho = memory**lag
        sigma = math.sqrt((1 + (1 - 2 * share) ** 2 * rho / spread - rho**2) / MANY)
        for start in range(WINDOW - lag):
            seen = ((table[:, start] - share) * (table[:, start + lag] - share)).mean() / spread
            assert abs(seen - rho) < 6 * sigma


def test_markov_moves_like_the_chain_from_every_round(chain: tuple[float, float, Table]) -> None:
    """on -> on has the chance p + q m, off -> on p (1 - m): also into an anchor and out of it.

    All rounds together tell a memory that is 2% off. Their steps are not independent of each other, but each has its
    chance whatever was before it: Freedman's inequality is Bernstein's for such steps.
    """
    share, memory, table = chain
    now, then = table[:, :-1], table[:, 1:]
    for start in range(WINDOW - 1):
        assert_rate(then[now[:, start], start], share + (1 - share) * memory)
        assert_rate(then[~now[:, start], start], share * (1 - memory))
    assert_rate(then[now], share + (1 - share) * memory)
    assert_rate(then[~now], share * (1 - memory))


def test_markov_remembers_nothing_but_the_last_round(chain: tuple[float, float, Table]) -> None:
    """Each of the 16 words of four rounds has the chance p(a) T(a, b) T(b, c) T(c, d), wherever it starts."""
    share, memory, table = chain
    on = [share * (1 - memory), share + (1 - share) * memory]  # chance of on after off, after on
    step = [[1 - on[0], on[0]], [1 - on[1], on[1]]]
    for start in range(WINDOW // 2 - 6, WINDOW // 2 + 3):
        words = table[:, start : start + 4] @ np.array([8, 4, 2, 1])
        for a, b, c, d in itertools.product((0, 1), repeat=4):
            chance = [1 - share, share][a] * step[a][b] * step[b][c] * step[c][d]
            assert_rate(words == 8 * a + 4 * b + 2 * c + d, chance)


def test_markov_run_lengths(chain: tuple[float, float, Table]) -> None:
    """A stay that begins 3 rounds before the anchor lasts over k more rounds with the chance s^k, s that of one more.

    Among the clients that have just come, s = p + q m; among those that have just left, s = q + p m.
    """
    share, memory, table = chain
    first = WINDOW // 2 - 3
    for here, stay in ((True, share + (1 - share) * memory), (False, 1 - share + share * memory)):
        just_changed = (table[:, first - 1] != here) & (table[:, first] == here)
        runs = table[just_changed, first:] == here
        for more in range(1, 20):
            assert_rate(runs[:, : more + 1].all(axis=1), stay**more)


def test_markov_certain_and_impossible() -> None:
    table = markov([0.0, 1.0], correlation=4).table(300)
    assert not table[:, 0].any()
    assert table[:, 1].all()


def test_markov_clients_and_seeds_are_unrelated() -> None:
    """Rounds 64 apart have the correlation e^-16 = 1e-7, so every 64th round is a sample of independent draws.

    Those 128 apart lie at the same place between two anchors, and are as unrelated.
    """
    model = markov(np.full(300, 0.5), correlation=4)
    table, other_seed = (model.table(64 * 40, seed=seed)[::64] for seed in (0, 1))
    assert_unrelated(table[:, 1:], table[:, :-1])
    assert_unrelated(table[1:], table[:-1])
    assert_unrelated(table[2:], table[:-2])
    assert_unrelated(table, other_seed)


def test_markov_chains_hang_on_ids() -> None:
    everyone = markov(np.full(10, 0.5), correlation=6).table(100, seed=4)
    some = markov(np.full(3, 0.5), correlation=6, ids=[7, 0, 4]).table(100, seed=4)
    assert some.tolist() == everyone[:, [7, 0, 4]].tolist()


def coins(rate: float) -> Availability:
    return bernoulli(np.full(MANY, rate))


def at_round_5(model: Availability) -> Table:
    return np.asarray(model.available(5, seed=3))


def test_composed_coins_are_different_coins() -> None:
    """Independent: p q for both, 1 - (1 - p)(1 - q) for either, also for a model with itself."""
    assert_rate(at_round_5(coins(0.5) & coins(0.4)), 0.2)
    assert_rate(at_round_5(coins(0.5) | coins(0.4)), 0.7)
    assert_rate(at_round_5(both(coins(0.5), coins(0.5))), 0.25)
    assert_rate(at_round_5(either(coins(0.5), coins(0.5))), 0.75)
    assert_rate(at_round_5(coins(0.5) & (coins(0.5) & coins(0.5))), 0.125)
    chains = markov(np.full(MANY, 0.5), correlation=4)
    assert_rate(at_round_5(chains & chains), 0.25)


@pytest.mark.parametrize(
    ("compose", "chance"),
    [
        (lambda coin: coin & coin & coin, 0.125),
        (lambda coin: coin | coin | coin, 0.875),
        (lambda coin: (coin & coin) & (coin & coin), 0.0625),
    ],
    ids=["and", "or", "pairs"],
)
def test_many_composed_coins_are_different_coins(
    compose: Callable[[Availability], Availability], chance: float
) -> None:
    assert_rate(at_round_5(compose(coins(0.5))), chance)


def test_restricting_leaves_the_coins_as_they_are() -> None:
    marked = np.arange(MANY) % 3 == 0
    here = at_round_5(coins(0.5))
    assert np.array_equal(at_round_5(restrict(coins(0.5), marked)), here & marked)


NONSENSE: list[tuple[str, Callable[[], object]]] = [
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
    ("share=2.0:", lambda: markov([2.0], correlation=3)),
    ("correlation=0:", lambda: markov([0.5], correlation=0)),
    ("correlation=-2.5:", lambda: markov([0.5], correlation=-2.5)),
    ("correlation=nan:", lambda: markov([0.5], correlation=math.nan)),
    ("correlation=inf:", lambda: markov([0.5], correlation=math.inf)),
    ("correlation=20000000.0:", lambda: markov([0.5], correlation=2e7)),
    ("rates_by_label: gives 2 rates, but the labels reach 2", lambda: label_rates([0, 2], [0.5, 0.5])),
    ("rates_by_label=7.0:", lambda: label_rates([0, 1], [0.5, 7.0])),
    ("rates_by_label:", lambda: label_rates([-1, 0], [0.5, 0.5])),
    ("labels: give one whole number", lambda: label_rates([], [0.5, 0.5])),
]


@pytest.mark.parametrize(("message", "make"), NONSENSE)
def test_nonsense_is_named(message: str, make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(message)):
        make()


MISSED: dict[str, tuple[str, Callable[[], object]]] = {
    "phases for other clients": ("phase", lambda: sine([0.5, 0.5], amplitude=0.1, period=3, phase=[0.1, 0.2, 0.3])),
    "labels that are no whole numbers": ("labels", lambda: label_rates([0.0, 1.0], [0.5, 0.5])),
}


@pytest.mark.parametrize("case", MISSED)
def test_more_nonsense_is_refused(case: str) -> None:
    message, make = MISSED[case]
    with pytest.raises(ConfigError, match=re.escape(message)):
        make()
