"""Asynchronous algorithms: the compiled loop equals an event queue in plain NumPy, and known special cases."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlatest import (
    Algorithm,
    ConfigError,
    DivergedError,
    Result,
    always,
    fedavg,
    fedlaavg,
    simulate,
    simulate_together,
)
from fedlatest.algorithms import ASYNCHRONOUS, ace, aced, ca2fl, fedasync, fedbuff, fedlaavg_async, fedvarp, scaffold
from fedlatest.algorithms.base import Cohort
from fedlatest.availability import Interval, diurnal, trace
from fedlatest.delays import Delays, Timing, constant, exponential, lognormal, recorded
from fedlatest.privacy import Privacy
from fedlatest.simulation import Engine, ExperimentSpec
from fedlatest.simulation.program import Record, State
from tests.event_queue import REFERENCES, EventQueue
from tests.problems import MODEL, coins, flat, small_federation
from tests.simulation.test_resume import assert_identical, interrupt_at

FEDERATION = small_federation(6)
STEPS, SEED = 12, 3
SOMETIMES = coins([0.5, 0.3, 0.6, 0.7, 0.4, 0.6])
DELAYS = {
    "random": Delays(training=lognormal([5, 10, 20, 5, 10, 40], sigma=0.7), upload=exponential(3.0)),
    "equal": Delays(training=10.0),
    "two kinds": Delays(training=constant([5, 10, 5, 10, 5, 10])),  # many arrivals at the same moment
    "none": Delays(),
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fedbuff": ("fedbuff", {"buffer": 2}),
    "fedbuff-5": ("fedbuff", {"buffer": 5, "staleness_power": 1.0, "server_step": 0.5}),
    "fedasync": ("fedasync", {"mixing": 0.4, "staleness_power": 0.8}),
    "fedasync-proximal": ("fedasync", {"mu": 0.8}),
    "ca2fl": ("ca2fl", {"buffer": 3, "server_step": 0.7}),
    "ace": ("ace", {"server_step": 0.3}),
    "ace-everyone": ("ace", {"server_step": 0.3, "first_step": "everyone"}),
    "aced": ("aced", {"server_step": 0.3, "max_age": 2}),
    "fedlaavg_async": ("fedlaavg_async", {"server_step": 0.5}),
    "fedlaavg_async-2": ("fedlaavg_async", {"buffer": 2}),
}


def both(
    algorithm: Algorithm,
    timing: Timing,
    availability: Any = SOMETIMES,
    *,
    in_flight: int = 3,
    seed: int = SEED,
    **options: Any,
) -> tuple[State, Record, EventQueue]:
    """Run the same experiment in the engine and in the reference."""
    spec = ExperimentSpec(
        FEDERATION, MODEL, algorithm, availability, in_flight, num_local_steps=4, batch_size=3, learning_rate=0.3,
        seeds=[seed], timing=timing,
    )  # fmt: skip
    engine = Engine([spec])
    states = engine.start()
    table = availability.table(2000, seed)
    assert timing.seconds_per_round is not None
    reference = REFERENCES[algorithm.name](
        FEDERATION,
        lambda round: table[round],
        lambda client, dispatch: int(timing.delays.milliseconds(seed, client, dispatch)),
        flat(states[0].server.params)[0],
        in_flight,
        steps=4,
        batch=3,
        rate=float(np.float32(0.3)),
        seed=seed,
        seconds_per_round=timing.seconds_per_round,
        interruption=timing.interruption,
        **options,
    )
    reference.run(STEPS)
    states, record = engine.advance(states, STEPS)
    return jax.tree.map(lambda leaf: leaf[0], states[0]), jax.tree.map(lambda leaf: leaf[0], record), reference


@pytest.mark.parametrize(
    "delays", [name if name == "random" else pytest.param(name, marks=pytest.mark.slow) for name in DELAYS]
)
@pytest.mark.parametrize("case", CASES)
def test_the_compiled_loop_equals_the_event_queue(case: str, delays: str) -> None:
    """Times, arrivals and versions are exactly the same; models are, to the rounding of float32 against float64."""
    name, options = CASES[case]
    timing = Timing(DELAYS[delays], seconds_per_round=10)
    state, record, reference = both(ASYNCHRONOUS[name](**options), timing, **options)
    assert_equal(state, record, reference)
    assert state.traffic is not None
    assert [int(count) for count in state.traffic] == [reference.num_started, *[len(reference.arrived)] * 2]


@pytest.mark.parametrize("interruption", ["pause", "fail"])
@pytest.mark.parametrize("case", ["fedbuff", "fedlaavg_async"])
def test_clients_that_become_unavailable(case: str, interruption: Any) -> None:
    name, options = CASES[case]
    timing = Timing(DELAYS["random"], seconds_per_round=10, interruption=interruption)
    state, record, reference = both(ASYNCHRONOUS[name](**options), timing, **options)
    assert_equal(state, record, reference)
    assert state.traffic is not None
    num_arrived, num_busy = len(reference.arrived), int(jnp.sum(state.flight.is_busy)) if state.flight else 0
    assert int(state.traffic.downloads) == reference.num_started
    assert (reference.num_started > num_arrived + num_busy) == (interruption == "fail")
    assert int(state.traffic.uploads) == int(state.traffic.merged) == num_arrived


@pytest.mark.parametrize("interruption", ["pause", "fail"])
def test_random_fleets_with_many_events_at_the_same_moment(interruption: Any) -> None:
    """Delays of whole seconds, some of them zero, and rounds of 2 s; one compiled program serves all fleets."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        delays = Delays(training=constant(rng.integers(0, 6, 6)))
        timing = Timing(delays, seconds_per_round=2, interruption=interruption)
        rates = rng.uniform(0.3, 1.0, 6).tolist()
        state, record, reference = both(fedlaavg_async(buffer=2), timing, coins(rates), seed=seed, buffer=2)
        assert_equal(state, record, reference)


def assert_equal(state: State, record: Record, reference: EventQueue) -> None:
    assert state.now is not None
    assert state.flight is not None
    assert 1000 * int(state.now.seconds) + int(state.now.milliseconds) == reference.now
    assert int(state.flight.dispatches) == reference.dispatches
    size = reference.buffer
    arrived = [set(reference.arrived[first : first + size]) for first in range(0, len(reference.arrived), size)]
    positions, mask = np.asarray(record.cohort.clients), np.asarray(record.cohort.mask)
    assert [set(row[kept].tolist()) for row, kept in zip(positions, mask, strict=True)] == arrived
    if reference.latest:
        seen = {client: version for client, (_, version) in reference.latest.items()}
        assert {c: int(v) for c, v in enumerate(state.last_round) if v >= 0} == seen
    np.testing.assert_allclose(flat(state.server.params), reference.x, rtol=2e-5, atol=2e-6)


def run_engine(
    algorithm: Algorithm, timing: Timing | None, cohort_size: int = 3, num_steps: int = STEPS
) -> tuple[State, Record]:
    spec = ExperimentSpec(
        FEDERATION, MODEL, algorithm, always(6), cohort_size, num_local_steps=4, batch_size=3, learning_rate=0.3,
        seeds=[SEED], timing=timing,
    )  # fmt: skip
    engine = Engine([spec])
    states, record = engine.advance(engine.start(), num_steps)
    return states[0], record


@pytest.mark.parametrize(
    ("asynchronous", "synchronous"),
    [
        (fedbuff(buffer=3), fedavg()),
        (fedlaavg_async(buffer=3), fedlaavg()),
        (ca2fl(buffer=3), fedvarp()),
    ],
    ids=["fedbuff", "fedlaavg_async", "ca2fl"],
)
def test_equal_delays_give_the_synchronous_algorithm(asynchronous: Algorithm, synchronous: Algorithm) -> None:
    """Three clients at work arrive together and fill the buffer, so that the next three start with the new model."""
    state, record = run_engine(asynchronous, Timing(Delays(training=10), seconds_per_round=60))
    expected, expected_record = run_engine(synchronous, None)
    for arrivals, cohort in zip(record.cohort.clients[0], expected_record.cohort.clients[0], strict=True):
        assert set(arrivals.tolist()) == set(cohort.tolist())
    np.testing.assert_allclose(flat(state.server.params), flat(expected.server.params), rtol=2e-5, atol=2e-6)
    assert state.now is not None
    assert int(state.now.seconds[0]) == 10 * STEPS


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_no_asynchronous_algorithm_can_be_deployed(name: str) -> None:
    assert "it is asynchronous (buffer)" in ASYNCHRONOUS[name]().obstacles_to_deployment()


def test_aced_that_forgets_nothing_is_ace() -> None:
    timing = Timing(DELAYS["random"], seconds_per_round=60)
    states = [run_engine(algorithm, timing)[0] for algorithm in (ace(), aced(max_age=1000))]
    for one, other in zip(*(jax.tree.leaves(state.server) for state in states), strict=True):
        np.testing.assert_array_equal(one, other)


def test_ace_takes_its_first_step_along_the_updates_of_everyone() -> None:
    """All six clients train on the initial model, whoever arrives first: a round of FedAvg with all clients."""
    timing = Timing(DELAYS["random"], seconds_per_round=60)
    first, _ = run_engine(ace(first_step="everyone"), timing, cohort_size=6, num_steps=6)
    expected, _ = run_engine(fedavg(), None, cohort_size=6, num_steps=1)
    np.testing.assert_allclose(flat(first.server.params), flat(expected.server.params), rtol=2e-5, atol=2e-6)
    assert first.server.has_arrived.all()


def test_ace_waits_for_the_last_client() -> None:
    """Client 5 becomes available after 60 s. The others arrive once, after 10 s, and do not start again."""
    availability = trace([Interval(client, 6 if client == 5 else 0, 100) for client in range(6)], num_clients=6)
    timing = Timing(Delays(training=10), seconds_per_round=10)
    options: dict[str, Any] = {"first_step": "everyone"}
    state, record, reference = both(ace(**options), timing, availability, in_flight=6, **options)
    assert_equal(state, record, reference)
    assert sorted(reference.arrived[:5]) == [0, 1, 2, 3, 4]
    assert record.time is not None
    assert np.asarray(record.time.seconds).tolist() == [10] * 5 + [70] + [80] * 6


def test_ca2fl_with_a_client_that_arrives_twice_in_a_step() -> None:
    """Only client 2 is ever available: its second difference is relative to its first update."""
    availability = trace([Interval(2, 0, 100)], num_clients=6)
    timing = Timing(Delays(training=1), seconds_per_round=10)
    state, record, reference = both(ca2fl(buffer=2), timing, availability, buffer=2)
    assert reference.arrived == [2] * (2 * STEPS)
    assert_equal(state, record, reference)


def test_fedasync_that_takes_every_model_over() -> None:
    """With mixing 1, no discount and one client at work, the server's model is that of the last client."""
    timing = Timing(Delays(training=1), seconds_per_round=60)
    mixed, _ = run_engine(fedasync(mixing=1.0, staleness_power=0.0), timing, cohort_size=1)
    replaced, _ = run_engine(fedbuff(buffer=1), timing, cohort_size=1)
    np.testing.assert_allclose(flat(mixed.server.params), flat(replaced.server.params), rtol=1e-5, atol=1e-6)


def run_small(
    algorithm: Any = None, availability: Any = None, *, federation: Any = FEDERATION, **options: Any
) -> Result:
    defaults: dict[str, Any] = {
        "rounds": 10, "cohort_size": 3, "num_local_steps": 2, "batch_size": 3, "learning_rate": 0.2,
        "evaluate_every": 5, "timing": Timing(DELAYS["random"], seconds_per_round=10),
    }  # fmt: skip
    return simulate(federation, MODEL, algorithm or fedlaavg_async(), availability or SOMETIMES, **(defaults | options))


def test_a_resumed_run_is_identical(tmp_path: Path) -> None:
    """The clients at work, their uploads and the time are part of a checkpoint."""
    whole = run_small(out=tmp_path / "whole", seeds=(1, 2))
    with pytest.raises(KeyboardInterrupt):
        run_small(out=tmp_path / "cut", seeds=(1, 2), on_progress=interrupt_at(5))
    run_small(out=tmp_path / "cut", seeds=(1, 2), resume=True)
    assert_identical(whole, tmp_path / "cut")
    assert whole.metrics.column("time").shape == (2, 3)
    assert (np.diff(whole.metrics.column("time")) > 0).all()


@pytest.mark.parametrize("side_by_side", [False, True])
def test_specs_with_other_numbers_run_side_by_side(side_by_side: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two experiments that share a program gives what it gives alone, also as trials of one batch."""
    monkeypatch.setattr("fedlatest.simulation.engine._side_by_side", lambda: side_by_side)
    defaults: dict[str, Any] = {"num_local_steps": 2, "batch_size": 3, "learning_rate": 0.2, "evaluate_every": 5}

    def spec(power: float, seconds: float) -> ExperimentSpec:
        timing = Timing(Delays(training=lognormal(seconds, sigma=0.5)), seconds_per_round=10)
        algorithm = fedbuff(buffer=2, staleness_power=power)
        return ExperimentSpec(FEDERATION, MODEL, algorithm, SOMETIMES, 3, rounds=10, timing=timing, **defaults)

    first, second = spec(0.5, 10.0), spec(1.0, 20.0)
    together = simulate_together([first, second])
    for one, result in zip((first, second), together, strict=True):
        [alone] = simulate_together([one])
        assert isinstance(alone, Result)
        assert isinstance(result, Result)
        np.testing.assert_allclose(result.params["weight"], alone.params["weight"], rtol=1e-6 if side_by_side else 0)
        assert result.metrics.column("time").tolist() == alone.metrics.column("time").tolist()


def test_a_run_without_available_clients_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace ends after 30 s: three clients arrive at 20 s and three at 40 s, then nobody is left."""
    monkeypatch.setattr("fedlatest.simulation.arrivals.MAX_IDLE_ROUNDS", 100)
    jax.clear_caches()
    availability = trace([Interval(client, 0, 3) for client in range(6)], num_clients=6)
    with pytest.raises(ConfigError, match="availability: no update arrives after"):
        run_small(availability=availability, timing=Timing(Delays(training=20), seconds_per_round=10))
    jax.clear_caches()


def test_clients_that_fail_by_their_record_free_their_slots() -> None:
    """Clients 0 and 1 fail after 5 s in every task; without an interruption, the others arrive after 10 s."""
    fails = np.tile(np.arange(6) < 2, (50, 1))
    seconds = np.where(fails, 5.0, 10.0)
    delays = Delays(training=recorded(seconds, fails=fails))
    state, record = run_engine(fedbuff(buffer=2), Timing(delays, seconds_per_round=60))
    assert set(np.asarray(record.cohort.clients)[np.asarray(record.cohort.mask)].tolist()) <= {2, 3, 4, 5}
    assert int(state.round[0]) == STEPS


def test_a_run_in_which_all_clients_fail_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client is available for 30 s in turns, and needs 60 s."""
    monkeypatch.setattr("fedlatest.simulation.arrivals.MAX_IDLE_ROUNDS", 100)
    jax.clear_caches()
    timing = Timing(Delays(training=60), seconds_per_round=10, interruption="fail")
    with pytest.raises(ConfigError, match="or all that start fail"):
        run_small(availability=diurnal(np.arange(6) < 3, period=3), timing=timing)
    jax.clear_caches()


def test_an_upload_that_is_not_finite_ends_the_run() -> None:
    with pytest.raises(DivergedError, match=r"the upload of client \d in round \d+ \(seed 0\) is not finite"):
        run_small(federation=replace(FEDERATION, features=np.float32(1e30) * FEDERATION.features))


@pytest.mark.parametrize(
    ("select", "message"),
    [
        (lambda server, available, facts: Cohort(jnp.array([6]), jnp.array([True])), "outside 0 .. 5"),
        (lambda server, available, facts: Cohort(jnp.array([0]), jnp.array([True])), "or of an unavailable client"),
        (
            lambda server, available, facts: Cohort(jnp.arange(3), jnp.ones(3, bool)),
            r"select returns clients of shape \(3,\) .* for a cohort_size of 1",
        ),
    ],
    ids=["out-of-range", "at-work", "too-many"],
)
def test_a_wrong_selection_ends_the_run(select: Any, message: str) -> None:
    """A client that is at work already is not available."""
    with pytest.raises(ConfigError, match=message):
        run_small(replace(fedlaavg_async(), select=select))


def test_updates_are_never_of_the_same_client_twice_at_work() -> None:
    """With as many slots as clients, everyone is at work all the time."""
    state, _ = run_engine(fedbuff(buffer=2), Timing(DELAYS["random"], seconds_per_round=60), cohort_size=6)
    assert state.flight is not None
    busy = np.asarray(state.flight.clients[0])[np.asarray(state.flight.is_busy[0])]
    assert len(set(busy.tolist())) == len(busy)
    assert jnp.asarray(state.flight.left).min() >= 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: run_small(timing=None), "fedlaavg_async is asynchronous; give the delays"),
        (lambda: run_small(timing=Timing(Delays())), "and seconds_per_round"),
        (
            lambda: run_small(timing=Timing(Delays(), seconds_per_round=1, deadline=3)),
            "deadline, answers: fedlaavg_async is asynchronous",
        ),
        (lambda: run_small(client_rows="seen"), "client_rows=seen: not supported by asynchronous"),
        (lambda: run_small(remembered_dtype="bfloat16"), "remembered_dtype=bfloat16: not supported by asynchronous"),
        (
            lambda: run_small(
                fedlaavg_async(weighting="none"),
                privacy=Privacy(epsilon=8, delta=1e-3, clip_norm=1, rounds=10, min_separation=2, max_participations=2),
            ),
            "privacy: not supported by asynchronous",
        ),
        (lambda: run_small(replace(scaffold(), buffer=2)), "an asynchronous algorithm cannot have direction with an"),
        (lambda: fedbuff(buffer=0), "buffer=0: must be a whole number, at least 1"),
        (lambda: fedbuff(staleness_power=-1), "staleness_power=-1: must be a finite number"),
        (lambda: fedbuff(weighting="update"), "weighting='update': the mean of the buffer"),
        (lambda: fedasync(mixing=0), r"mixing=0: must be in \(0, 1\]"),
        (lambda: ace(first_step="none"), "first_step='none': choose one of arrival, everyone"),  # type: ignore[arg-type]
        (lambda: fedasync(mu=-1), "mu=-1: the proximal coefficient must be a finite number"),
    ],
)
def test_arguments_are_checked(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
