"""The Algorithm interface: what every algorithm must satisfy, and custom algorithms that use each part of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedlatest import (
    Algorithm,
    ConfigError,
    DivergedError,
    Model,
    Result,
    always,
    fedavg,
    fedlaavg,
    fedprox,
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
    fednova,
    fedstale,
    fedvarp,
    fedyogi,
    focus,
    inverse_probability,
    mifa,
    scaffold,
)
from fedlatest.algorithms.base import (
    ClientFacts,
    ClientState,
    Cohort,
    Contribution,
    Direction,
    RoundFacts,
    UpdateUpload,
    scale,
    subtract,
)
from fedlatest.simulation import Engine, ExperimentSpec
from fedlatest.simulation.program import State
from fedlatest.simulation.rounds import run_block
from tests.problems import MODEL, coins, flat, small_federation

FEDERATION = small_federation(8, seed=1)
EVERYONE = always(8)
UNKNOWN: Any = "unknown"  # a value that no setting has


def run(algorithm: Algorithm, **options: Any) -> Result:
    defaults: dict[str, Any] = {
        "rounds": 5, "cohort_size": 3, "num_local_steps": 2, "batch_size": 3, "learning_rate": 0.2,
        "evaluate_every": 5,
    }  # fmt: skip
    availability = options.pop("availability", EVERYONE)
    return simulate(FEDERATION, MODEL, algorithm, availability, **(defaults | options))


def final(algorithm: Algorithm, rounds: int = 5, **options: Any) -> State:
    spec = ExperimentSpec(
        FEDERATION, MODEL, algorithm, options.pop("availability", EVERYONE), 3,
        **({"num_local_steps": 2, "batch_size": 3, "learning_rate": 0.2} | options),
    )  # fmt: skip
    engine = Engine([spec])
    states, _ = engine.advance(engine.start(), rounds)
    return jax.tree.map(lambda leaf: leaf[0], states[0])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_states_what_it_is(name: str) -> None:
    """Lists, plots and run folders take name, title and settings from the algorithm itself."""
    algorithm = ALGORITHMS[name]()
    assert algorithm.name == name
    assert algorithm.title
    assert set(algorithm.numbers) <= set(algorithm.settings)
    assert algorithm.paper or name == "sequential"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_can_be_traced_with_64_bit_numbers(name: str) -> None:
    """JAX_ENABLE_X64=1 makes Python integers and sums 64 bits wide; a loop must keep the types of its state."""
    with jax.enable_x64(True):
        spec = ExperimentSpec(FEDERATION, MODEL, ALGORITHMS[name](), EVERYONE, 3)
        engine = Engine([spec])
        before = jax.eval_shape(lambda: jax.tree.map(lambda leaf: leaf[0], engine.start()[0]))
        [batch] = engine.batches
        after, _ = jax.eval_shape(
            lambda state: run_block(engine.program, engine.data, batch.trials, state, length=2), before
        )
    assert jax.tree.map(lambda leaf: leaf.dtype, after) == jax.tree.map(lambda leaf: leaf.dtype, before)


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"sequential"}))
def test_server_step_scales_the_first_round(name: str) -> None:
    """Everyone takes part in round 0: with server_step = 2 the model moves twice as far as with 1, in one program."""
    rates = np.ones(8) if "rates" in ALGORITHMS[name]().requires else None
    specs = [
        ExperimentSpec(
            FEDERATION, MODEL, ALGORITHMS[name](server_step=step), EVERYONE, 8, num_local_steps=2, batch_size=3,
            learning_rate=0.2, rates=rates,
        )
        for step in (1.0, 2.0)
    ]  # fmt: skip
    engine = Engine(specs)
    before = [flat(jax.tree.map(np.array, state.server.params)) for state in engine.start()]
    states, _ = engine.advance(engine.start(), 1)
    once, twice = np.concatenate([flat(s.server.params) for s in states]) - np.concatenate(before)
    assert np.abs(once).max() > 1e-4
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-4, atol=1e-6)


def test_direction_function_equals_the_declared_direction() -> None:
    """FedProx written as a function (gradient, local, start, broadcast, client, facts) is FedProx."""

    def direction(gradient: Any, local: Any, start: Any, broadcast: Any, client: Any, facts: ClientFacts) -> Any:
        del broadcast, client
        return jax.tree.map(lambda g, x, x0: facts.weight * g + 0.7 * (x - x0), gradient, local, start)

    own = replace(fedavg(), direction=direction)
    np.testing.assert_allclose(
        flat(final(own).server.params), flat(final(fedprox(mu=0.7)).server.params), rtol=1e-5, atol=1e-6
    )


def test_private_state_is_kept_per_client() -> None:
    """A client counts its own participations; K = 3 of 8 clients for 5 rounds make 15 in all."""

    def init_client(params: Any) -> ClientState:
        del params
        return ClientState(private={"count": jnp.int32(0)})

    def contribute(broadcast: Any, local: Any, client: ClientState, facts: ClientFacts) -> Contribution:
        update = UpdateUpload()(broadcast, local, client, facts)
        return update._replace(private={"count": client.private["count"] + 1})

    state = final(replace(fedavg(), init_client=init_client, contribute=contribute))
    counts = np.asarray(state.clients.private["count"])
    assert counts.sum() == 15
    assert ((counts > 0) == (np.asarray(state.last_round) >= 0)).all()


def test_brief_reaches_its_client() -> None:
    """Each client receives the number of its own position and uploads it: the sum is that of the cohort."""

    def brief(server: Any, facts: RoundFacts) -> dict[str, jax.Array]:
        del server
        return {"position": jnp.arange(facts.num_clients, dtype=jnp.float32)}

    def contribute(broadcast: Any, local: Any, client: ClientState, facts: ClientFacts) -> Contribution:
        del client
        return Contribution(
            fresh={"update": scale(subtract(local, broadcast.params), 0.0), "seen": facts.brief["position"]}
        )

    def merge(server: Any, sums: Any, facts: RoundFacts) -> Any:
        assert facts.cohort is not None
        expected = jnp.sum(jnp.where(facts.cohort.mask, facts.cohort.clients, 0))
        return jax.tree.map(lambda leaf: leaf + (sums.fresh["seen"] - expected), server)

    own = replace(fedavg(), brief=brief, contribute=contribute, merge=merge)
    start, end = final(own, rounds=0), final(own, rounds=4)
    np.testing.assert_array_equal(flat(start.server.params), flat(end.server.params))


def test_facts_of_a_client() -> None:
    """The learning rate, the last round and the participation rate of the client itself reach `contribute`."""
    rates = np.linspace(0.1, 0.8, 8)

    def init_client(params: Any) -> ClientState:
        del params
        return ClientState(private={name: jnp.float32(-9) for name in ("learning_rate", "last_round", "rate")})

    def contribute(broadcast: Any, local: Any, client: ClientState, facts: ClientFacts) -> Contribution:
        update = UpdateUpload()(broadcast, local, client, facts)
        seen = {"learning_rate": facts.learning_rate, "last_round": facts.last_round, "rate": facts.rate}
        return update._replace(private={name: jnp.float32(value) for name, value in seen.items()})

    own = replace(fedavg(), init_client=init_client, contribute=contribute, requires=("rates",))
    with pytest.raises(ConfigError, match="rates: fedavg needs the participation rate of each client"):
        final(own)
    schedule = optax.linear_schedule(0.4, 0.0, 4)
    engine = Engine([ExperimentSpec(FEDERATION, MODEL, own, EVERYONE, 3, rates=rates, learning_rate=schedule)])
    states = engine.start()
    for round in range(3):
        before = np.array(states[0].last_round[0])
        states, _ = engine.advance(states, 1)
        latest = np.asarray(states[0].last_round[0]) == round
        seen = {name: np.asarray(value[0]) for name, value in states[0].clients.private.items()}
        np.testing.assert_allclose(seen["learning_rate"][latest], 0.4 - 0.1 * round, rtol=1e-6)
        np.testing.assert_allclose(seen["rate"][latest], rates[latest], rtol=1e-6)
        assert seen["last_round"][latest].tolist() == before[latest].tolist()


def test_after_merge_sees_the_new_model() -> None:
    """FedAWE: the clients of the last cohort hold the new model exactly, the others older ones."""
    state = final(fedawe(), rounds=4)
    latest = np.asarray(state.last_round) == 3
    own, common = flat(state.clients.private["model"]), flat(state.server.params)
    np.testing.assert_array_equal(own[latest], np.broadcast_to(common, own[latest].shape))
    assert (np.abs(own[~latest] - common).max(axis=(1, 2)) > 0).all()


def test_learning_rate_schedule_of_a_constant_is_the_constant() -> None:
    constant, schedule = run(fedlaavg()), run(fedlaavg(), learning_rate=optax.constant_schedule(0.2))
    np.testing.assert_array_equal(constant.params["weight"], schedule.params["weight"])
    decayed = run(fedlaavg(), learning_rate=optax.exponential_decay(0.2, 1, 0.5))
    assert np.abs(constant.params["weight"] - decayed.params["weight"]).max() > 1e-4


def test_client_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """`optax.identity` is plain SGD; `optax.scale(2)` is twice the learning rate; momentum is neither."""
    monkeypatch.setenv("FEDLATEST_NATIVE", "0")  # kernels train without an optimizer only, and round differently
    plain = run(fedavg()).params["weight"]
    np.testing.assert_array_equal(run(fedavg(), client_optimizer=optax.identity()).params["weight"], plain)
    doubled = run(fedavg(), client_optimizer=optax.scale(2.0), learning_rate=0.1).params["weight"]
    np.testing.assert_allclose(doubled, plain, rtol=1e-5, atol=1e-6)
    momentum = run(fedavg(), client_optimizer=optax.trace(0.9)).params["weight"]
    assert np.abs(momentum - plain).max() > 1e-4


@pytest.mark.parametrize(
    "make",
    [
        lambda: run(fedavg(), client_optimizer=optax.adam(0.1)),
        lambda: fedavg(server_optimizer=optax.sgd(1.0)),
        lambda: fedlaavg(server_optimizer=optax.adam(0.1)),
    ],
)
def test_optimizers_with_a_learning_rate_are_refused(make: Callable[[], Any]) -> None:
    """`optax.adam(0.1)` returns -0.1 times a direction; the runtime would apply the sign and the step twice."""
    with pytest.raises(ConfigError, match=r"_optimizer: applies a learning rate and a sign .* optax\.scale_by_adam"):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedavg(server_step=0.0), "server_step=0.0: must be a finite number above 0"),
        (lambda: fedlaavg(server_step=float("nan")), "server_step=nan"),
        (lambda: mifa(server_step=-2.0), "server_step=-2.0"),
        (lambda: naive(server_step=0.0), "server_step=0.0"),
        (lambda: feddyn(server_step=0.0), "server_step=0.0"),
        (lambda: amplified_scaffold(server_step=0.0), "server_step=0.0"),
        (lambda: fedavg(server_optimizer=optax.identity(), server_step=0.0), "server_step=0.0: must be"),
        (lambda: scaffold(weighting="update"), "weighting='update': control variates"),
        (lambda: scaffold(server_step=-1.0), "server_step=-1.0"),
        (lambda: fedawe(weighting="update"), "weighting='update'"),
        (lambda: fedawe(server_step=float("inf")), "server_step=inf"),
        (lambda: fedau(cutoff=0), "cutoff=0: must be a whole number of rounds"),
        (lambda: fedau(weighting="update"), "weighting='update'"),
        (lambda: fedau(server_step=0.0), "server_step=0.0"),
        (lambda: amplified_fedavg(amplification=0.0), "amplification=0.0"),
        (lambda: amplified_fedavg(amplify_every=0), "amplify_every=0"),
        (lambda: amplified_scaffold(amplification=0.0), "amplification=0.0"),
        (lambda: amplified_scaffold(amplify_every=0), "amplify_every=0"),
        (lambda: amplified_scaffold(weighting="update"), "weighting='update': control variates"),
        (lambda: f3ast(smoothing=0.0), "smoothing=0.0"),
        (lambda: f3ast(weighting="update"), "weighting='update'"),
        (lambda: ca_fed(bias=-1.0), "bias=-1.0: must be a finite number, 0 or larger"),
        (lambda: ca_fed(tolerance=float("inf")), "tolerance=inf"),
        (lambda: ca_fed(smoothing=0.0), "smoothing=0.0"),
        (lambda: ca_fed(weighting="update"), "weighting='update': updates are weighted"),
        (lambda: focus(weighting="update"), "weighting='update': the server sums gradients"),
        (lambda: focus(server_step=0.0), "server_step=0.0"),
        (lambda: feddyn(penalty=0.0), "penalty=0.0"),
        (lambda: feddyn(weighting="update"), "weighting='update'"),
        (lambda: fednova(least_work=2.0), "least_work=2.0"),
        (lambda: fedyogi(b1=1.0), "b1=1.0"),
        (lambda: fedyogi(initial=0.0), "initial=0.0"),
        (lambda: fedvarp(server_step=0.0), "server_step=0.0"),
        (lambda: fedstale(beta=1.5), "beta=1.5: the weight of stale updates"),
        (lambda: fedstale(rates=UNKNOWN), "rates='unknown': choose one of cohort, counts, known"),
        (lambda: fedstale(weighting="update"), "weighting='update'"),
        (lambda: inverse_probability(rates=UNKNOWN), "rates='unknown': choose one of counts, known"),
        (lambda: inverse_probability(weighting="update"), "weighting='update'"),
        (lambda: fedlaavg(fresh=UNKNOWN), r"fresh='unknown': choose 'average' \(1/N, the paper\), 'cohort'"),
        (lambda: fedlaavg(average_over=UNKNOWN), "average_over='unknown': choose 'all'"),
        (lambda: fedlaavg(average_over="seen", weighting="update"), "average_over='seen': with weighting='update'"),
        (lambda: fedlaavg(damping=-1.0), "damping=-1.0: must be a finite number"),
        (lambda: fedlaavg(fresh=0.0), r"fresh=0.0: choose .* or a number in \(0, 1\]"),
        (lambda: fedlaavg(fresh=float("nan")), "fresh=nan"),
        (lambda: fedlaavg(fresh=True), "fresh=True"),
    ],
)
def test_values_out_of_range_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_parts_must_be_those_of_init_client() -> None:
    def contribute(broadcast: Any, local: Any, client: ClientState, facts: ClientFacts) -> Contribution:
        del client, facts
        return Contribution(remembered={"other": subtract(local, broadcast.params)})

    own = replace(fedlaavg(), init_client=UpdateUpload(remembered=True).init_client, contribute=contribute)
    expected = r"contribute returns the remembered parts \['other'\], init_client declares \['update'\]"
    with pytest.raises(ConfigError, match=expected):
        run(own)


@pytest.mark.parametrize("native", ["0", "1"])
def test_parts_must_have_the_shapes_of_init_client(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel would write beyond its rows."""
    monkeypatch.setenv("FEDLATEST_NATIVE", native)

    def contribute(broadcast: Any, local: Any, client: ClientState, facts: ClientFacts) -> Contribution:
        del broadcast, local, client, facts
        return Contribution(remembered={"update": jnp.ones(5000)})

    own = replace(
        fedlaavg(), init_client=lambda params: ClientState(remembered={"update": jnp.zeros(3)}), contribute=contribute
    )
    with pytest.raises(ConfigError, match=r"part update with the shape \(5000,\), init_client with \(3,\)"):
        run(own)


def test_a_start_of_another_shape_is_refused() -> None:
    own = replace(fedavg(), start=lambda broadcast, client: {"weight": jnp.zeros(3), "bias": jnp.zeros(3)})
    with pytest.raises(ConfigError, match=r"start returns .*'weight': \(3,\)"):
        run(own)


def test_a_cohort_of_more_than_cohort_size_slots_is_refused() -> None:
    """There may be no rows for so many clients."""

    def select(server: Any, available: jax.Array, facts: RoundFacts) -> Cohort:
        del server, facts
        return Cohort(jnp.arange(available.shape[0]), available)

    with pytest.raises(ConfigError, match=r"select returns clients of shape \(8,\).* at most cohort_size=3"):
        run(replace(fedlaavg(), select=select))


@pytest.mark.parametrize("positions", [[0, 3, 3], [0, 1, 8], [-1, 1, 2]])
def test_a_cohort_with_repeated_or_impossible_positions_is_an_error(positions: list[int]) -> None:
    """Sums over such a cohort would be wrong without any other sign."""

    def select(server: Any, available: jax.Array, facts: RoundFacts) -> Cohort:
        del server, available
        return Cohort(jnp.where(facts.round == 2, jnp.array(positions), jnp.array([0, 1, 2])), jnp.ones(3, bool))

    with pytest.raises(
        ConfigError,
        match=r"select returned a position twice, outside 0 \.\. 7 or .* client in round 2 \(seed 0\)",
    ):
        run(replace(fedlaavg(), select=select))


def test_large_cohorts_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond PAIRWISE_COHORT slots the check sorts."""
    monkeypatch.setattr("fedlatest.simulation.rounds.PAIRWISE_COHORT", 2)

    def select(server: Any, available: jax.Array, facts: RoundFacts) -> Cohort:
        del server, available, facts
        return Cohort(jnp.array([4, 0, 4]), jnp.ones(3, bool))

    with pytest.raises(ConfigError, match="select returned a position twice"):
        run(replace(fedavg(), select=select))
    run(replace(fedavg(), select=lambda *_: Cohort(jnp.array([4, 0, 5]), jnp.ones(3, bool))))


def test_chunks_without_clients_are_not_trained() -> None:
    """2 of 8 clients are available, K = 8 and 2 train at once: one chunk of four is trained, in each of 3 rounds."""
    trained: list[int] = []

    def contribute(broadcast: Any, local: Any, client: ClientState, facts: ClientFacts) -> Contribution:
        jax.debug.callback(lambda number: trained.append(int(number)), facts.id)
        return UpdateUpload()(broadcast, local, client, facts)

    own = replace(fedavg(), contribute=contribute)
    availability = coins([1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    result = run(own, availability=availability, cohort_size=8, rounds=3, clients_at_once=2)
    jax.effects_barrier()
    assert sorted(trained) == [0, 0, 0, 5, 5, 5]
    whole = run(fedavg(), availability=availability, cohort_size=8, rounds=3, clients_at_once=8)
    np.testing.assert_allclose(result.params["weight"], whole.params["weight"], rtol=1e-5, atol=1e-6)


def test_sums_of_integers_and_flags_are_exact() -> None:
    """8 clients, 3 at a time, each upload a flag, a small and a large integer: 8, 800 and 8 (2^24 + 1)."""
    seen: dict[str, int] = {}

    def contribute(broadcast: Any, local: Any, client: ClientState, facts: ClientFacts) -> Contribution:
        update = UpdateUpload()(broadcast, local, client, facts).fresh["update"]
        parts = {"flag": jnp.bool_(True), "small": jnp.int8(100), "large": jnp.int32(2**24 + 1)}
        return Contribution(fresh={"update": update, **parts})

    def merge(server: Any, sums: Any, facts: RoundFacts) -> Any:
        for name in ("flag", "small", "large"):
            jax.debug.callback(lambda total, name=name: seen.update({name: int(total)}), sums.fresh[name])
        return server

    own = replace(fedavg(), contribute=contribute, merge=merge)
    run(own, cohort_size=8, rounds=1, evaluate_every=1, clients_at_once=3)
    jax.effects_barrier()
    assert seen == {"flag": 8, "small": 800, "large": 8 * (2**24 + 1)}


def test_sums_of_remembered_integers_are_exact() -> None:
    """8 clients, 3 of them per round: after 2 rounds 6 clients remember 100, which 8 bits cannot add up."""
    seen: list[int] = []

    def contribute(broadcast: Any, local: Any, client: ClientState, facts: ClientFacts) -> Contribution:
        del broadcast, local, client, facts
        return Contribution(remembered={"small": jnp.int8(100)})

    def merge(server: Any, sums: Any, facts: RoundFacts) -> Any:
        jax.debug.callback(lambda total: seen.append(int(total)), sums.total["small"])
        return server

    own = replace(
        fedlaavg(), init_client=lambda params: ClientState(remembered={"small": jnp.int8(0)}), contribute=contribute,
        merge=merge,
    )  # fmt: skip
    result = run(own, availability=coins([1.0] * 8), cohort_size=3, rounds=2, evaluate_every=2)
    jax.effects_barrier()
    assert seen == [300, 600]
    assert result.metrics.rows[-1].average_error == pytest.approx(0, abs=1e-5)


def test_amplified_scaffold_mifa_and_focus_accept_a_learning_rate_of_0() -> None:
    """The first round moves nothing and leaves the remembered gradients at 0."""
    warm_up = optax.linear_schedule(0.0, 0.1, 10)
    for algorithm, part in (
        (amplified_scaffold(amplify_every=2), "control"), (mifa(), "direction"), (focus(), "gradient")
    ):  # fmt: skip
        state = final(algorithm, rounds=1, learning_rate=warm_up)
        assert np.abs(flat(state.clients.remembered[part])).max() == 0


def test_scaffold_accepts_a_learning_rate_of_0() -> None:
    """A warm-up that starts at 0: the first round moves nothing and leaves the controls at 0."""
    warm_up = optax.linear_schedule(0.0, 0.1, 10)
    state = final(scaffold(), rounds=1, learning_rate=warm_up)
    assert np.abs(flat(state.clients.remembered["control"])).max() == 0
    assert np.isfinite(flat(final(scaffold(), 5, learning_rate=warm_up).server.params)).all()
    with pytest.raises(ConfigError, match="client_optimizer: scaffold requires plain local SGD"):
        run(scaffold(), client_optimizer=optax.trace(0.9))


def test_a_model_that_is_not_finite_in_the_end_is_an_error() -> None:
    """All uploads are finite; the last merge is not."""

    def merge(server: Any, sums: Any, facts: RoundFacts) -> Any:
        return jax.tree.map(lambda leaf: jnp.where(facts.round == 4, jnp.inf, leaf), server)

    with pytest.raises(DivergedError, match=r"the model is not finite after round 4 \(seed 0\)"):
        run(replace(fedavg(), merge=merge))


def test_unavailable_clients_must_not_be_selected() -> None:
    def select(server: Any, available: jax.Array, facts: RoundFacts) -> Cohort:
        del server, available, facts
        return Cohort(jnp.array([0, 1, 2]), jnp.ones(3, bool))

    with pytest.raises(ConfigError, match="or of an unavailable client in round 0"):
        run(replace(fedavg(), select=select), availability=coins([1.0, 0.0, *[1.0] * 6]))


def test_after_merge_receives_the_brief() -> None:
    own = replace(
        fedawe(),
        brief=lambda server, facts: {"half": jnp.full(facts.num_clients, 0.5)},
        after_merge=lambda broadcast, client, facts: {"model": scale(broadcast.params, facts.brief["half"])},
    )
    state = final(own, rounds=1)
    latest = np.asarray(state.last_round) == 0
    np.testing.assert_allclose(
        flat(state.clients.private["model"])[latest][0], 0.5 * flat(state.server.params), rtol=1e-6
    )


def test_mistakes_in_a_custom_algorithm_are_explained() -> None:
    """A merge that returns another structure cannot be compiled; the error names the algorithm."""

    def merge(server: Any, sums: Any, facts: RoundFacts) -> Any:
        return (server, sums.num)

    with pytest.raises(ConfigError, match=r"algorithm fedavg: a round cannot be compiled \(.*docs/algorithms\.md"):
        run(replace(fedavg(), merge=merge))


def test_client_optimizer_with_a_low_precision_model() -> None:
    half = Model(
        lambda key: {"w": jnp.zeros((4, 3), jnp.bfloat16)},
        lambda params, features: (features.astype(jnp.bfloat16) @ params["w"]).astype(jnp.float32),
    )
    for algorithm in (fedavg(), fedlaavg(weighting="update"), scaffold()):
        optimizer = None if algorithm.name == "scaffold" else optax.trace(0.9)
        result = simulate(FEDERATION, half, algorithm, EVERYONE, rounds=2, cohort_size=3, client_optimizer=optimizer)
        assert result.params["w"].dtype == jnp.bfloat16


def test_optimizers_for_a_certain_structure_are_accepted() -> None:
    masked = optax.masked(optax.trace(0.9), {"weight": True, "bias": False})
    assert np.isfinite(run(fedavg(), client_optimizer=masked, rounds=1).params["weight"]).all()
    wrong: Any = "adam"
    with pytest.raises(ConfigError, match="client_optimizer='adam': give an optax transformation"):
        run(fedavg(), client_optimizer=wrong)


def test_plain_direction() -> None:
    assert Direction().plain
    assert not Direction(scale=lambda facts: 2.0).plain
