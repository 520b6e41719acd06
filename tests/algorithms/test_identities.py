"""Identities that tie the algorithms to each other and to the paper."""

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlatest import (
    Algorithm,
    Federation,
    always,
    diurnal,
    fedadam,
    fedavg,
    fedlaavg,
    fedprox,
    fedsgd,
    flexible,
    naive,
    simulate,
)
from fedlatest.algorithms import (
    ALGORITHMS,
    amplified_fedavg,
    amplified_scaffold,
    ca_fed,
    f3ast,
    fedau,
    fedawe,
    feddyn,
    fedlaavg_fresh,
    fednova,
    fedstale,
    fedvarp,
    fedyogi,
    focus,
    inverse_probability,
    mifa,
    scaffold,
)
from fedlatest.algorithms.ca_fed import exclude
from fedlatest.availability import Availability
from fedlatest.simulation import Engine, ExperimentSpec
from fedlatest.simulation.program import State
from tests.problems import MODEL, coins, days, flat, small_federation
from tests.reference import batches, gradient

FEDERATION = small_federation(8, seed=1)
GROUP = [True, False, True, False, False, True, True, False]
DAYS = days(GROUP, period=3)
COINS = coins([0.4] * 8)
ROUNDS = 10
NAME = attrgetter("name")  # of an algorithm, for the ids of tests


def engine_of(
    algorithm: Algorithm,
    availability: Availability,
    *,
    federation: Federation = FEDERATION,
    cohort_size: int = 3,
    steps: int = 4,
    rate: float = 0.2,
    seeds: Sequence[int] = (2,),
    clients_at_once: int | None = None,
) -> Engine:
    spec = ExperimentSpec(
        federation, MODEL, algorithm, availability, cohort_size, num_local_steps=steps, batch_size=3,
        learning_rate=rate, seeds=seeds,
    )  # fmt: skip
    return Engine([spec], clients_at_once=clients_at_once)


def final(algorithm: Algorithm, availability: Availability, **options: Any) -> State:
    """Return the state of seed 2 after ten rounds."""
    engine = engine_of(algorithm, availability, **options)
    states, _ = engine.advance(engine.start(), ROUNDS)
    return jax.tree.map(lambda leaf: leaf[0], states[0])


def same(left: State, right: State, tolerance: float = 3e-6) -> None:
    np.testing.assert_allclose(flat(left.server.params), flat(right.server.params), rtol=tolerance, atol=tolerance)


def test_fedlaavg_with_all_clients_is_fedavg() -> None:
    """K = N and always available: u is the average of this round's updates."""
    everyone = always(8)
    same(final(fedlaavg(), everyone, cohort_size=8), final(fedavg(), everyone, cohort_size=8))


def test_fresh_weight_of_1_over_n_is_fedlaavg() -> None:
    """Given as a number, 1/N adds 0 times the differences: the same model, bit for bit."""
    plain = final(fedlaavg(), COINS)
    same(final(fedlaavg(fresh=1 / 8), COINS), plain, tolerance=0)
    ours = final(fedlaavg(fresh=0.3), COINS)
    assert np.abs(flat(ours.server.params) - flat(plain.server.params)).max() > 1e-3


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (fedlaavg(fresh=0.2), fedlaavg(fresh=0.3)),
        (fedvarp(server_step=0.2), fedvarp(server_step=0.3)),
        (fedstale(beta=0.2), fedstale(beta=0.3)),
        (inverse_probability(server_step=0.2), inverse_probability(server_step=0.3)),
        (feddyn(penalty=0.2), feddyn(penalty=0.3)),
        (f3ast(smoothing=0.2), f3ast(smoothing=0.3)),
        (ca_fed(bias=0.2), ca_fed(bias=0.3)),
        (amplified_scaffold(amplify_every=2), amplified_scaffold(amplify_every=3)),
        (fedyogi(server_step=0.2), fedyogi(server_step=0.3)),
    ],
    ids=NAME,
)
def test_different_numbers_share_a_program(first: Algorithm, second: Algorithm) -> None:
    """They are arguments of the compiled program."""
    assert first.numbers != second.numbers
    assert engine_of(first, COINS).program == engine_of(second, COINS).program


def test_kinds_of_fresh_weights_do_not_share_a_program() -> None:
    programs = [engine_of(fedlaavg(fresh=fresh), COINS).program for fresh in ("average", "cohort", 0.2)]
    assert programs[0] != programs[1] != programs[2] != programs[0]


def test_fedlaavg_fresh_is_fedlaavg_with_two_keywords() -> None:
    same(final(fedlaavg_fresh(), COINS), final(fedlaavg(fresh="cohort", selection="weighted"), COINS), tolerance=0)


def test_fedlaavg_fresh_with_all_clients_is_fedavg() -> None:
    everyone = always(8)
    same(final(fedlaavg_fresh(), everyone, cohort_size=8), final(fedavg(), everyone, cohort_size=8))


@pytest.mark.parametrize("algorithm", [mifa(), fedvarp(), fedstale(beta=0.7), inverse_probability(), f3ast()], ids=NAME)
def test_with_all_clients_it_is_fedavg(algorithm: Algorithm) -> None:
    """K = N and always available: every remembered update is replaced, and every participation rate is 1."""
    everyone = always(8)
    same(final(algorithm, everyone, cohort_size=8), final(fedavg(), everyone, cohort_size=8))


def test_ca_fed_without_exclusions_is_inverse_probability() -> None:
    """K = N, and the bias is too expensive for any exclusion; pi_i is the counted participation rate."""
    ours = final(ca_fed(bias=1e9), COINS, cohort_size=8)
    same(ours, final(inverse_probability(), COINS, cohort_size=8))
    assert not ours.server.excluded.any()
    everyone = always(8)
    same(final(ca_fed(bias=1e9), everyone, cohort_size=8), final(fedavg(), everyone, cohort_size=8))


@pytest.mark.parametrize(("correlation", "dropped"), [([0.1, 0.5, 0.0, 0.9], 1), ([-0.3, 0.2, 0.0, 0.9], 0)])
def test_ca_fed_excludes_the_most_correlated_client_first(correlation: list[float], dropped: int) -> None:
    """l = (2, 2, 1, 1), N = 4, bias = 1: J = 1.5 for all clients, 4/3 + 2/16 = 1.458 without client 0 or 1, 1 + 2/4 =
    1.5 without both, 5/3 + 2/16 = 1.79 without client 3. So client 3 stays, and one of 0 and 1 is excluded: the one
    with the higher |lambda_i|."""
    excess = jnp.array([2.0, 2.0, 1.0, 1.0])
    excluded = exclude(excess, jnp.array(correlation), jnp.arange(4), jnp.arange(4), bias=1.0, tolerance=0.0)
    assert np.flatnonzero(excluded).tolist() == [dropped]
    kept = exclude(excess, jnp.array(correlation), jnp.arange(4), jnp.arange(4), bias=1.0, tolerance=0.05)
    assert not kept.any()


def test_ca_fed_then_excludes_the_least_available_clients() -> None:
    """As above without correlations, so that ids decide first; then the second pass, by availability, continues.

    l = (1, 4, 2, 4): in the order of ids 0 stays (J = 2.75, without it 3.58), 1 leaves (2.58), 2 stays and 3 leaves
    (1.5 + 4/4 = 2.5). By availability 2 is next: without it J = 1 + 4 (9/16) = 3.25, so it stays.
    """
    excess, none = jnp.array([1.0, 4.0, 2.0, 4.0]), jnp.zeros(4)
    excluded = exclude(excess, none, jnp.array([3, 2, 1, 0]), jnp.arange(4), bias=1.0, tolerance=0.0)
    assert np.flatnonzero(excluded).tolist() == [1, 3]
    alone = exclude(excess, none, jnp.array([3, 2, 1, 0]), jnp.arange(4), bias=0.0, tolerance=0.0)
    assert np.flatnonzero(~alone).tolist() == [0]


def test_focus_with_one_local_step_is_mifa() -> None:
    """y_i is the new gradient minus the old one, both at the server's model. Somebody is available in every round."""
    same(final(focus(), DAYS, steps=1), final(mifa(), DAYS, steps=1))


def test_focus_with_all_clients_and_one_local_step_is_gradient_descent() -> None:
    everyone = always(8)
    ours = final(focus(), everyone, cohort_size=8, steps=1)
    same(ours, final(fedsgd(), everyone, cohort_size=8))


def test_focus_with_more_local_steps_differs() -> None:
    """The identities above would also hold if local steps did nothing."""
    one, many = (final(focus(), DAYS, steps=steps) for steps in (1, 4))
    assert np.abs(flat(one.server.params) - flat(many.server.params)).max() > 1e-3


def test_f3ast_selects_the_clients_with_the_lowest_rates() -> None:
    """All available and N / K = 4 with K = 2: in 4 rounds each of the 8 clients takes part once."""
    engine = engine_of(f3ast(smoothing=0.1), always(8), cohort_size=2)
    _, record = engine.advance(engine.start(), ROUNDS)
    assert sorted(record.cohort.clients[0, :4].ravel().tolist()) == list(range(8))


def test_mifa_is_fedlaavg_with_uniform_selection() -> None:
    """At a constant learning rate both step along the same average, also in empty rounds."""
    own = replace(fedlaavg(), select=fedavg().select)
    same(final(mifa(), COINS), final(own, COINS))


def test_mifa_scales_old_gradients_by_the_current_learning_rate() -> None:
    """Nobody is available in round 1; the step there is half that of round 0 if the learning rate is."""
    spec = ExperimentSpec(
        FEDERATION, MODEL, mifa(), days([True] * 8, period=1), 8, num_local_steps=4, batch_size=3,
        learning_rate=optax.exponential_decay(0.2, 1, 0.5), seeds=(2,),
    )  # fmt: skip
    engine = Engine([spec])
    states, models = engine.start(), []
    for _ in range(3):
        models.append(flat(states[0].server.params)[0])
        states, _ = engine.advance(states, 1)
    np.testing.assert_allclose(models[2] - models[1], 0.5 * (models[1] - models[0]), rtol=1e-4, atol=1e-6)


def test_fedvarp_with_oldest_first_selection_is_fedlaavg_fresh() -> None:
    own = replace(fedvarp(), select=fedlaavg().select)
    same(final(own, COINS), final(fedlaavg_fresh(empty_round="hold", selection="oldest"), COINS))


@pytest.mark.parametrize(
    ("algorithm", "limit"),
    [
        (fedstale(beta=1.0, rates="cohort"), fedvarp()),
        (fedstale(beta=0.0, rates="cohort"), fedavg()),
        (fedstale(beta=0.0, rates="counts"), inverse_probability()),
    ],
    ids=NAME,
)
def test_fedstale_limits(algorithm: Algorithm, limit: Algorithm) -> None:
    """With p_i = |S|/N, beta = 1 is FedVARP and beta = 0 is FedAvg; with counts, beta = 0 is inverse probability."""
    same(final(algorithm, COINS), final(limit, COINS))


def test_flexible_with_all_clients_is_fedavg() -> None:
    """K = N, always available and all work done: nothing to scale, nobody to drop."""
    everyone = always(8)
    ours = final(flexible(least_presence=1.0, trial=2), everyone, cohort_size=8)
    same(ours, final(fedavg(), everyone, cohort_size=8))
    assert not ours.server.dropped.any()


def test_naive_with_all_clients_is_fedavg() -> None:
    """K = N and always available: every round is a complete cycle."""
    everyone = always(8)
    same(final(naive(), everyone, cohort_size=8), final(fedavg(), everyone, cohort_size=8))


def test_fedprox_with_mu_0_is_fedavg() -> None:
    same(final(fedprox(mu=0.0), DAYS), final(fedavg(), DAYS), tolerance=0)


def test_fedprox_with_mu_above_0_differs() -> None:
    """The identity above would also hold if mu did nothing."""
    pulled, free = (final(fedprox(mu=mu), DAYS) for mu in (5.0, 0.0))
    assert np.abs(flat(pulled.server.params) - flat(free.server.params)).max() > 1e-3


def test_fedsgd_is_fedavg_with_one_step() -> None:
    same(final(fedsgd(), DAYS, steps=4), final(fedavg(), DAYS, steps=1), tolerance=0)


def test_amplification_of_1_is_fedavg() -> None:
    same(final(amplified_fedavg(amplification=1.0, amplify_every=2), DAYS), final(fedavg(), DAYS))


def test_amplified_scaffold_with_periods_of_one_round_and_amplification_1_is_scaffold() -> None:
    ours, plain = final(amplified_scaffold(amplification=1.0, amplify_every=1), COINS), final(scaffold(), COINS)
    same(ours, plain)
    np.testing.assert_allclose(flat(ours.server.control), flat(plain.server.control), rtol=1e-5, atol=1e-5)


def test_amplified_scaffold_with_zero_controls_is_amplified_fedavg() -> None:
    """In the first period all control variates are 0."""
    ours, plain = (final(factory(amplify_every=ROUNDS), COINS) for factory in (amplified_scaffold, amplified_fedavg))
    same(ours, plain)


def test_feddyn_in_the_first_round_is_fedprox_with_a_doubled_step() -> None:
    """All g_i are 0 at first; with K = N, h = -alpha mean(u_i), so -h / alpha adds the mean update again."""
    ours, plain = (engine_of(each, always(8), cohort_size=8) for each in (feddyn(penalty=0.3), fedprox(mu=0.3)))
    before = flat(ours.start()[0].server.params)[0]
    mine, theirs = (flat(engine.advance(engine.start(), 1)[0][0].server.params)[0] for engine in (ours, plain))
    np.testing.assert_allclose(mine - before, 2 * (theirs - before), rtol=1e-4, atol=1e-6)


def test_fednova_with_all_work_done_is_fedavg() -> None:
    same(final(fednova(), COINS), final(fedavg(), COINS))


def test_fedyogi_is_fedavg_with_a_server_optimizer() -> None:
    yogi = optax.scale_by_yogi(b1=0.9, b2=0.99, eps=1e-3)
    ours = final(fedavg(server_optimizer=yogi, server_step=0.05), COINS)
    same(ours, final(fedyogi(server_step=0.05), COINS), tolerance=0)


def test_scaffold_with_zero_controls_is_fedavg() -> None:
    """In the first round all control variates are 0."""
    ours, plain = (engine_of(algorithm, always(8)) for algorithm in (scaffold(), fedavg()))
    (mine, _), (theirs, _) = (engine.advance(engine.start(), 1) for engine in (ours, plain))
    same(*(jax.tree.map(lambda leaf: leaf[0], states[0]) for states in (mine, theirs)))
    assert np.abs(mine[0].server.control["weight"]).max() > 0


def test_fedawe_and_fedau_with_all_clients_are_fedavg() -> None:
    """K = N and always available: every gap is 1, and every client starts from the common model."""
    everyone, plain = always(8), final(fedavg(), always(8), cohort_size=8)
    for algorithm in (fedawe(), fedau()):
        same(final(algorithm, everyone, cohort_size=8), plain)


def test_server_optimizer_identity_with_step_1_is_the_plain_step() -> None:
    for factory in (fedavg, fedlaavg):
        same(final(factory(server_optimizer=optax.identity()), COINS), final(factory(), COINS))


def test_fedlaavg_with_a_server_optimizer_takes_its_steps() -> None:
    """Without momentum and with step 0.5, ten rounds with every client always available move as x + 0.5 u does."""
    algorithm = fedlaavg(server_optimizer=optax.scale(0.5))
    engine = engine_of(algorithm, always(8), cohort_size=8)
    states = engine.start()
    before = flat(states[0].server.params)[0]
    states, _ = engine.advance(states, 1)
    after, total = flat(states[0].server.params)[0], flat(states[0].total["update"])[0]
    np.testing.assert_allclose(after - before, 0.5 * total / 8, rtol=1e-5, atol=1e-6)


def test_fedadam_is_fedavg_with_a_server_optimizer() -> None:
    adam = optax.scale_by_adam(b1=0.9, b2=0.99, eps=1e-3)
    ours = final(fedavg(server_optimizer=adam, server_step=0.05), COINS)
    same(ours, final(fedadam(server_step=0.05), COINS), tolerance=0)


def test_one_local_step_is_algorithm_1() -> None:
    """Algorithm 1 keeps gradients: g += (1/N) sum (g_i_new - g_i_old), x -= gamma g. Written out here in NumPy."""
    seed, rate = 2, float(np.float32(0.2))
    engine = engine_of(fedlaavg(), DAYS, steps=1)
    states = engine.start()
    x = flat(states[0].server.params)[0]
    states, record = engine.advance(states, ROUNDS)
    average, kept = np.zeros_like(x), np.zeros((8, *x.shape))
    for t in range(ROUNDS):
        cohort = record.cohort.clients[0, t][record.cohort.mask[0, t]]
        for i in cohort.tolist():
            rows = batches(FEDERATION, i, round=t, seed=seed, steps=1, size=3)[0]
            new = FEDERATION.weights[i] * gradient(x, FEDERATION.features[rows], FEDERATION.labels[rows])
            average = average + (new - kept[i]) / 8
            kept[i] = new
        x = x - rate * average
    np.testing.assert_allclose(flat(states[0].server.params)[0], x, rtol=1e-5, atol=2e-6)


def test_algorithm_3_gives_the_same_iterates() -> None:
    """Appendix: one loop over iterations t, in which x moves along the gradients that each client's latest round had at
    the same local step: x^t = x^(t-1) - gamma (1/N) sum_i g_i^(C (R_i - 1) + tau). (The text forgets the 1/N.)"""
    seed, rate, steps = 2, float(np.float32(0.2)), 4
    engine = engine_of(fedlaavg(), DAYS)
    states = engine.start()
    x = flat(states[0].server.params)[0]
    states, record = engine.advance(states, ROUNDS)
    latest = np.zeros((8, steps, *x.shape))  # gradients of each client's latest round, zero before the first
    local: dict[int, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
    for t in range(ROUNDS * steps):
        round, tau = divmod(t, steps)
        if tau == 0:
            cohort = record.cohort.clients[0, round][record.cohort.mask[0, round]].tolist()
            local = dict.fromkeys(cohort, x)
        for i in local:
            rows = batches(FEDERATION, i, round=round, seed=seed, steps=steps, size=3)[tau]
            latest[i, tau] = FEDERATION.weights[i] * gradient(
                local[i], FEDERATION.features[rows], FEDERATION.labels[rows]
            )
            local[i] = local[i] - rate * latest[i, tau]
        x = x - rate * latest[:, tau].mean(axis=0)
    np.testing.assert_allclose(flat(states[0].server.params)[0], x, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"sequential"}))
def test_client_order_does_not_matter(name: str) -> None:
    """Clients listed in another order, each with its own id, data and availability: the same run."""
    order = np.array([5, 2, 7, 0, 3, 6, 1, 4])
    parts = [FEDERATION.order[FEDERATION.offsets[i] : FEDERATION.offsets[i + 1]] for i in order]
    shuffled = replace(
        FEDERATION,
        order=np.concatenate(parts),
        offsets=np.concatenate([[0], np.cumsum([len(part) for part in parts])]),
        ids=FEDERATION.ids[order],
    )
    rates = np.linspace(0.2, 0.9, 8)
    straight = final(ALGORITHMS[name](), coins(rates.tolist()))
    permuted = final(ALGORITHMS[name](), coins(rates[order].tolist(), ids=order), federation=shuffled)
    same(straight, permuted)
    assert straight.last_round[order].tolist() == permuted.last_round.tolist()


@pytest.mark.parametrize("clients_at_once", [1, 2, 8])
def test_clients_at_once_do_not_matter(clients_at_once: int) -> None:
    """One by one, 2 + 1 of 3, more than there are: the same run, to rounding, as 3 at once."""
    same(final(fedlaavg(), DAYS, clients_at_once=clients_at_once), final(fedlaavg(), DAYS, clients_at_once=3))


def test_blocks_do_not_matter() -> None:
    """10 rounds at once are 1 + 8 + 1 rounds."""
    engine = engine_of(fedlaavg(), COINS)
    whole, _ = engine.advance(engine.start(), ROUNDS)
    pieces = engine.start()
    for rounds in (1, 8, 1):
        pieces, _ = engine.advance(pieces, rounds)
    same(*(jax.tree.map(lambda leaf: leaf[0], states[0]) for states in (whole, pieces)))


@pytest.mark.parametrize("side_by_side", [False, True])
def test_number_of_seeds_does_not_matter(side_by_side: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 2 alone is seed 2 among others, each alone (CPU) and in one program (accelerators)."""
    monkeypatch.setattr("fedlatest.simulation.engine._side_by_side", lambda: side_by_side)
    engine = engine_of(fedlaavg(), COINS, seeds=[0, 2, 5])
    assert len(engine.batches) == (1 if side_by_side else 3)
    states, _ = engine.advance(engine.start(), ROUNDS)
    together = jax.tree.map(lambda *leaves: np.concatenate(leaves)[1], *jax.device_get(states))
    same(final(fedlaavg(), COINS), together)


ENGINE = engine_of(fedlaavg(), COINS)


@given(seed=st.integers(0, 2**32 - 1), rates=st.lists(st.sampled_from([0.05, 0.3, 0.9]), min_size=8, max_size=8))
def test_the_average_is_that_of_the_stored_updates(seed: int, rates: list[float]) -> None:
    """The invariant: u = (1/N) sum of all u_i, after any history of participation, to float32 rounding."""
    engine = ENGINE
    [batch] = engine.batches
    trial = batch.trials._replace(seed=jnp.uint32(seed), availability=coins(rates))
    engine.batches = [batch._replace(trials=trial)]
    states = engine.start()
    for _ in range(2):
        states, _ = engine.advance(states, ROUNDS)
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(states[0].clients.remembered))
    error = engine.measure(states).average_error
    assert float(error[0]) <= 1e-6 * max(largest, 1e-3)


def test_empty_rounds_step_or_hold() -> None:
    """All clients for ten rounds, then none: the paper's algorithm goes on along u, `hold` does not move."""
    gone = days([True] * 8, period=ROUNDS)
    for empty_round in ("step", "hold"):
        engine = engine_of(fedlaavg(empty_round=empty_round), gone)
        states, _ = engine.advance(engine.start(), ROUNDS)
        before, total = flat(states[0].server.params)[0], flat(states[0].total["update"])[0]
        states, record = engine.advance(states, ROUNDS)
        assert record.cohort_size.tolist() == [[0] * ROUNDS]
        walked = flat(states[0].server.params)[0] - before
        expected = ROUNDS * total / 8 if empty_round == "step" else 0 * total
        np.testing.assert_allclose(walked, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize(("period", "cohort_size"), [(3, 3), (5, 2), (2, 8), (7, 1)])
def test_lemma_1(period: int, cohort_size: int, random: bool) -> None:
    """Oldest first: staleness never exceeds I = ceil(N / K) E - 1, with the smallest E that the model reports."""
    pattern = coins([1 / period] * 8) if random else days(GROUP, period=period)
    horizon = 120
    smallest = pattern.assumption(horizon, seed=2).smallest_e
    assert smallest is not None
    engine = engine_of(fedlaavg(), pattern, cohort_size=cohort_size, steps=1, rate=0.01)
    states, bound = engine.start(), -(-8 // cohort_size) * smallest - 1
    for _ in range(horizon // ROUNDS):
        states, record = engine.advance(states, ROUNDS)
        assert record.max_staleness.max() <= bound


def test_uniform_selection_breaks_lemma_1() -> None:
    """The lemma is about oldest-first selection: random selection leaves some client out for longer."""
    pattern = diurnal(GROUP, period=3)
    bound = 8 * (pattern.assumption(400).smallest_e or 0) - 1
    result = simulate(
        FEDERATION, MODEL, fedavg(), pattern, rounds=400, cohort_size=1, num_local_steps=1, batch_size=1,
        evaluate_every=400,
    )  # fmt: skip
    assert result.largest_staleness > bound
